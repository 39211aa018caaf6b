"""The commands of docs/http.md answer what the page shows."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from tests.http.conftest import Serve

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "http.md"
_BLOCK = re.compile(r"^```console http\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)


def test_the_page_over_http(serve: Serve) -> None:
    text = PAGE.read_text(encoding="utf-8")
    sql = re.search(r"^```sql app.sql\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert sql is not None
    shop = serve(sql[1])
    commands = [c for block in _BLOCK.findall(text) for c in _COMMAND.findall(block)]
    assert len(commands) > 12
    for command, expected in commands:
        here = command.replace("localhost:8080", f"localhost:{shop.server.port}")
        done = subprocess.run(here, shell=True, capture_output=True, text=True, timeout=60)
        assert done.stdout.strip() == expected.strip(), command
