"""Recognises names that the app reserves: error tables, and the tables with the state of running statements."""

from __future__ import annotations

import re

from millpond.errors import InvalidOption, Place
from millpond.sql.querynames import FILLS

_OWN = re.compile(
    r".*\$(errors|waiting|state|values\d+|watermark|left|right|marks|files|rows|\d+)",
    re.IGNORECASE | re.DOTALL,
)


def is_own(name: str) -> bool:
    """Returns whether the app created a table of that name."""
    return _OWN.fullmatch(name) is not None


def check_free(name: str, kind: str, place: Place | None) -> None:
    """Raises if a table, stream or view cannot have this name."""
    if is_own(name):
        end = name[name.rindex("$") :]
        raise InvalidOption(
            f'"{name}" cannot be the name of a {kind}',
            hint=f'names that end with "{end}" are those of tables that the app makes',
            place=place,
        )
    start = next((start for start in FILLS if name.lower().startswith(start)), None)
    if start is not None:
        raise InvalidOption(
            f'"{name}" cannot be the name of a {kind}',
            hint=f'names that begin with "{start}" are those of queries',
            place=place,
        )
