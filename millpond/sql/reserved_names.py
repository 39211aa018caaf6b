"""Recognises names that the app reserves: error tables, and the tables with the state of running statements."""

from __future__ import annotations

import re

from millpond.errors import InvalidOption, Place
from millpond.sql.querynames import FILLS

_OWN = re.compile(
    r".*\$(errors|waiting|state|values\d+|watermark|left|right|marks|files|rows|changes|next|difference|\d+)",
    re.IGNORECASE | re.DOTALL,
)

SHADOW = "$next"
"""The end of the name of a table that is built beside another one, which it will replace."""
DIFFERENCE = "$difference"
"""The end of the name of the view with the rows that only one of both has."""
_SHADOW = re.compile(r"\$next(?=$|[$.])", re.IGNORECASE)


def shadow_of(name: str) -> str:
    """Returns the name of what is built beside a table, or beside its query."""
    return f"{name}{SHADOW}"


def difference_of(name: str) -> str:
    """Returns the name of the view that compares a table with what is built beside it."""
    return f"{name}{DIFFERENCE}"


def is_shadow(name: str) -> bool:
    """Returns whether a table is built beside another one."""
    return name.lower().endswith(SHADOW)


def without_shadow(name: str) -> str:
    """Returns the name that something has when what is built has replaced its table."""
    return _SHADOW.sub("", name)


def is_part(name: str, query: str) -> bool:
    """Returns whether a position or a table is one of a query, or of its part for one of several streams."""
    rest = name.lower().removeprefix(query.lower())
    return rest != name.lower() and rest[:1] in ("", "$", ".") and rest.partition(".")[0] != SHADOW


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
    if _SHADOW.search(name):
        raise InvalidOption(
            f'"{name}" cannot be the name of a {kind}',
            hint=f'names with "{SHADOW}" are those of tables that the app builds',
            place=place,
        )
    start = next((start for start in FILLS if name.lower().startswith(start)), None)
    if start is not None:
        raise InvalidOption(
            f'"{name}" cannot be the name of a {kind}',
            hint=f'names that begin with "{start}" are those of queries',
            place=place,
        )
