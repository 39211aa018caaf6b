"""Writes a value as JSON text: nothing is rounded or cut."""

from __future__ import annotations

import base64
import json
import math
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

from millpond.digits import duration_text, written


def to_json(value: Any, *, micros: bool = False) -> str:
    """Writes JSON: decimals are numbers with all their digits, times ISO 8601, binary base64, NaN and infinity strings.
    With ``micros`` times have their microseconds also if they are 0, like rows of whole tables.
    """
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
        return written(value)
    if isinstance(value, dict):
        parts = (f"{to_json(_key(k))}:{to_json(v, micros=micros)}" for k, v in value.items())
        return "{" + ",".join(parts) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(to_json(v, micros=micros) for v in value) + "]"
    if micros and isinstance(value, datetime):
        return f'"{value.isoformat(timespec="microseconds").replace("+00:00", "Z")}"'
    return to_json(plain(value))


def plain(value: Any) -> str:
    """Returns the text of a value that has no form of its own in JSON."""
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, timedelta):
        return duration_text(value)
    return str(value)


def _key(value: Any) -> str:
    return value if isinstance(value, str) else to_json(value).strip('"')


def _special(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"
