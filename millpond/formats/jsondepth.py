"""Measures how deeply JSON is nested, without parsing it."""

from __future__ import annotations

import re

import numpy as np

from millpond.formats.blocks import count_of

MAX_DEPTH = 100
_BRACE, _BRACKET, _BREAK = b"{[\n"
_OTHER = re.compile(rb'"(?:[^"\\]|\\.)*"?|[^\[\]{}"]+', re.DOTALL)
_STEPS = np.zeros(256, np.int64)
_STEPS[list(b"[{")] = 1
_STEPS[list(b"]}")] = -1


def may_be_deeper(lines: bytes, limit: int) -> bool:
    """Returns whether one of some lines, each an object, has more brackets than the limit. It is cheap if there are
    few.
    """
    opening = count_of(lines, _BRACE) + count_of(lines, _BRACKET)
    if opening - count_of(lines, _BREAK) < limit:
        return False
    text = np.frombuffer(lines, np.uint8)
    ends = np.flatnonzero(text == _BREAK)
    brackets = np.flatnonzero((text == _BRACE) | (text == _BRACKET))
    return bool(np.diff(np.searchsorted(brackets, ends), prepend=0).max(initial=0) > limit)


def is_deeper(text: bytes, limit: int) -> bool:
    """Returns whether a value is nested deeper than the limit; brackets in strings are ignored."""
    if text.count(b"{") + text.count(b"[") <= limit:
        return False
    steps = _STEPS[np.frombuffer(_OTHER.sub(b"", text), np.uint8)]
    return bool(np.cumsum(steps).max(initial=0) > limit)
