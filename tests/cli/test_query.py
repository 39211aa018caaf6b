from __future__ import annotations

import json
import signal

APP = "CREATE TABLE t (id BIGINT PRIMARY KEY, name STRING);\nINSERT INTO t VALUES (1, 'one'), (2, 'two');\n"


def test_without_any_app(cli):
    assert cli("query", "SELECT 1 + 1 AS n", "--format", "csv").out == "n\n2\n"
    cli.file("x.csv", "id,name\n1,a\n2,b\n")
    done = cli("query", f"SELECT * FROM file://{cli.cwd}/x.csv", "--format", "json")
    assert [json.loads(line) for line in done.out.splitlines()] == [
        {"id": 1, "name": "a"},
        {"id": 2, "name": "b"},
    ]
    done = cli("query", "SELECT * FROM prices")
    assert done.code == 1 and "query:1:15:" in done.err and "--state" in done.err


def test_while_the_app_runs_and_after(cli):
    cli.file("app.sql", APP)
    run = cli.start("run", "app.sql", "--state", "st")
    run.wait_for("running app.sql")
    assert "millpond query" in run.err.read_text() and "--state st" in run.err.read_text()
    assert cli("query", "SELECT COUNT(*) AS n FROM t", "--state", "st", "--format", "csv").out == "n\n2\n"
    assert cli("query", "INSERT INTO t VALUES (3, 'three')", "--state", "st").out == "ok, 1 row\n"
    found = cli("query", "SELECT MAX(id) AS m FROM t", "--format", "csv")
    assert found.out == "m\n3\n" and f"asking the app that runs on {cli.cwd}/st" in found.err
    wrong = cli("query", "SELECT id,\n nam FROM t", "--state", "st")
    assert wrong.code == 1 and "query:2:2: " in wrong.err and "^^^" in wrong.err and "hint" in wrong.err
    assert run.stop(signal.SIGTERM) == 0
    done = cli("query", "SELECT name FROM t ORDER BY id", "--state", "st", "--format", "csv")
    assert done.out == "name\none\ntwo\nthree\n"
    done = cli("query", "INSERT INTO t VALUES (4, 'four')", "--state", "st")
    assert done.code == 1 and "reading only" in done.err
    assert not list((cli.cwd / "tmp" / next((cli.cwd / "tmp").iterdir()).name).glob("*"))


def test_an_app_that_was_not_named_is_not_changed(cli):
    cli.file("app.sql", APP)
    cli.start("run", "app.sql", "--state", "st").wait_for("running app.sql")
    for change in (
        "INSERT INTO t VALUES (3, 'three')",
        "SELECT 1; DELETE FROM t",
        "BEGIN",
        "CREATE TABLE u (id INT)",
        "EXPLAIN ANALYZE DELETE FROM t",
    ):
        done = cli("query", change)
        assert done.code == 1 and f"--state {cli.cwd}/st" in done.err, change
    assert cli("query", "EXPLAIN DELETE FROM t").code == 0
    assert cli("query", "SELECT COUNT(*) AS n FROM t", "--format", "csv").out == "n\n2\n"


def test_two_apps_need_a_choice(cli):
    cli.file("app.sql", APP)
    one = cli.start("run", "app.sql", "--state", "one")
    two = cli.start("run", "app.sql", "--state", "two")
    one.wait_for("running")
    two.wait_for("running")
    done = cli("query", "SELECT 1")
    assert (
        done.code == 1
        and f"{cli.cwd}/one" in done.err
        and f"{cli.cwd}/two" in done.err
        and "--state" in done.err
    )
    assert cli("query", "SELECT 1 AS n", "--state", "one", "--format", "csv").out == "n\n1\n"


def test_after_a_kill_the_registry_and_the_socket_are_stale(cli):
    cli.file("app.sql", APP)
    run = cli.start("run", "app.sql", "--state", "st")
    run.wait_for("running")
    run.stop(signal.SIGKILL)
    assert cli("query", "SELECT 1 AS n", "--format", "csv").out == "n\n1\n"
    done = cli("query", "SELECT COUNT(*) AS n FROM t", "--state", "st", "--format", "csv")
    assert done.out == "n\n2\n", done.err


def test_a_directory_that_is_no_state(cli):
    done = cli("query", "SELECT 1", "--state", "nowhere")
    assert done.code == 1 and "is not a state directory" in done.err and not (cli.cwd / "nowhere").exists()


def test_a_long_path(cli):
    cli.file("app.sql", APP)
    state = cli.cwd / ("long" * 40) / "state"
    run = cli.start("run", "app.sql", "--state", state)
    run.wait_for("running")
    assert cli("query", "SELECT COUNT(*) AS n FROM t", "--state", state, "--format", "csv").out == "n\n2\n"
