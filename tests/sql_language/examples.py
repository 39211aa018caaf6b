"""The statements of ``examples.sql``, one in a line."""

from __future__ import annotations

from pathlib import Path

EXAMPLES = [
    line.removesuffix(";")
    for line in (Path(__file__).parent / "examples.sql").read_text(encoding="utf-8").splitlines()
    if line and not line.startswith("-- ")
]
