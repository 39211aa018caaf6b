"""``millpond test`` and the plug-in of pytest, with the cases of the documentation."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "testing.md"


def written(cli) -> None:
    for name, text in re.findall(r"```\w+ (\w+\.\w+)\n(.*?)```", PAGE.read_text(), re.DOTALL):
        cli.file(name, text)


def test_cases_of_the_documentation(cli):
    written(cli)
    done = cli("test", "shop.test", "--cuts", "2")
    assert done.code == 0 and done.out.count("ok  ") == 2 and "2 passed, 0 failed" in done.err
    done = cli("test", "clock.test", "topics.test")
    assert done.code == 0 and "2 passed, 0 failed" in done.err
    done = cli("test", ".", "--case", "GOLD")
    assert done.code == 0 and "1 passed" in done.err


def test_what_fails_is_shown(cli):
    written(cli)
    text = (cli.cwd / "shop.test").read_text()
    cli.file("shop.test", text.replace("10 | Ada  | true", "10 | Ada  | false") + "\n--- nothing\n")
    done = cli("test", "shop.test")
    assert done.code == 1 and "shop.test:" in done.err and '"nothing" is not a section' in done.err
    cli.file("shop.test", text.replace("10 | Ada  | true", "10 | Ada  | false"))
    done = cli("test", "shop.test")
    assert done.code == 1 and "- 10 | Ada  | false" in done.out and "+ 10 | Ada  | true" in done.out
    assert "1 passed, 1 failed" in done.err
    assert cli("test", "nowhere").code == 2
    cli.file("shop.test", "=== x\n--- app none.sql\n")
    done = cli("test", "shop.test")
    assert done.code == 1 and "none.sql" in done.err


def test_pytest_collects_them(cli):
    written(cli)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:millpond",
        "-p",
        "millpond.testing.plugin",
        "--millpond-cuts",
        "2",
        ".",
    ]
    done = subprocess.run(command, cwd=cli.cwd, capture_output=True, text=True)
    assert done.returncode == 0 and "4 passed" in done.stdout
    text = (cli.cwd / "shop.test").read_text()
    cli.file("shop.test", text.replace("7        | 2.75", "7        | 2.76"))
    done = subprocess.run(command, cwd=cli.cwd, capture_output=True, text=True)
    assert done.returncode == 1 and "+ 7        | 2.75" in done.stdout and "Traceback" not in done.stdout


def test_what_an_app_writes_to_a_topic_is_looked_at(cli):
    cli.file(
        "out.test",
        "=== out\n--- app\nCREATE STREAM s (id INT, v STRING) WITH ('connector' = 'kafka://in');\n"
        "INSERT INTO kafka://out SELECT id, upper(v) AS v FROM s WHERE id > 1;\n"
        "--- send s\nid | v\n1 | a\n2 | b\n--- emits\nid | v\n2 | B\n",
    )
    done = cli("test", "out.test")
    assert done.code == 0, done.out + done.err
