"""Formats a value as text: for a table on a screen, for a line of JSON, for a cell of CSV. Nothing is
rounded or cut.
"""

from __future__ import annotations

import re
from datetime import datetime
from decimal import Decimal
from typing import Any

from millpond.digits import written
from millpond.records.text import plain, to_json

__all__ = ["to_cell", "to_csv", "to_json"]

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_SHORT = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}
_QUOTED = re.compile(r'[",\r\n]|^\s|\s$')


def to_cell(value: Any) -> str:
    """Formats a value for a table on a screen. Control characters are spelled out: data must not control
    the terminal.
    """
    if isinstance(value, str):
        return _CONTROL.sub(_spell, value) if not value.isprintable() else value
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Decimal):
        return written(value)
    if isinstance(value, datetime):
        text = value.replace(tzinfo=None).isoformat(" ")
        return text.rstrip("0") if value.microsecond else text
    if isinstance(value, bytes):
        return value.hex().upper()
    if isinstance(value, list | dict):
        return _CONTROL.sub(_spell, to_json(value))
    return str(value)


def to_csv(value: Any) -> str:
    """Formats a value as in RFC 4180: NULL is nothing at all, the empty string is ``""``; nested values are JSON."""
    if value is None:
        return ""
    if isinstance(value, list | dict):
        text = to_json(value)
    elif isinstance(value, str):
        text = value
    elif isinstance(value, bool | int | float | Decimal):
        text = to_json(value).strip('"')
    else:
        text = str(plain(value))
    if text == "" or _QUOTED.search(text):
        return '"' + text.replace('"', '""') + '"'
    return text


def _spell(match: re.Match[str]) -> str:
    char = match[0]
    return _SHORT.get(char) or (f"\\x{ord(char):02x}" if ord(char) < 256 else f"\\u{ord(char):04x}")
