"""A value as text: for a table on a screen, for a line of JSON, for a cell of CSV. Nothing is rounded or cut."""

from __future__ import annotations

import base64
import json
import math
import re
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_SHORT = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}
_QUOTED = re.compile(r'[",\r\n]|^\s|\s$')


def to_cell(value: Any) -> str:
    """For a table on a screen. Control characters are spelled out: data must not steer the terminal."""
    if isinstance(value, str):
        return _CONTROL.sub(_spell, value) if not value.isprintable() else value
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, datetime):
        text = value.replace(tzinfo=None).isoformat(" ")
        return text.rstrip("0") if value.microsecond else text
    if isinstance(value, bytes):
        return value.hex().upper()
    if isinstance(value, list | dict):
        return _CONTROL.sub(_spell, to_json(value))
    return str(value)


def to_json(value: Any) -> str:
    """JSON: decimals are numbers with all their digits, times ISO 8601, binary base64, NaN and infinity strings."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else f'"{_special(value)}"'
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, dict):
        return "{" + ",".join(f"{to_json(_key(k))}:{to_json(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(to_json(v) for v in value) + "]"
    return to_json(_plain(value))


def to_csv(value: Any) -> str:
    """RFC 4180: NULL is nothing at all, the empty string is ``""``; nested values are JSON."""
    if value is None:
        return ""
    if isinstance(value, list | dict):
        text = to_json(value)
    elif isinstance(value, str):
        text = value
    elif isinstance(value, bool | int | float | Decimal):
        text = to_json(value).strip('"')
    else:
        text = str(_plain(value))
    if text == "" or _QUOTED.search(text):
        return '"' + text.replace('"', '""') + '"'
    return text


def _plain(value: Any) -> str:
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, timedelta):
        return f"PT{value.total_seconds():g}S"
    return str(value)


def _key(value: Any) -> str:
    return value if isinstance(value, str) else to_json(value).strip('"')


def _special(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def _spell(match: re.Match[str]) -> str:
    char = match[0]
    return _SHORT.get(char) or (f"\\x{ord(char):02x}" if ord(char) < 256 else f"\\u{ord(char):04x}")
