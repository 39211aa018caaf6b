"""Finds where CSV records end, without parsing them: a line break within quotes does not end one.

A quote opens only where a value begins, and a doubled one within quotes is a quote. So only whether the length of each
run of quotes is odd matters, and an odd run that is not at the beginning of a value always ends outside of quotes.
Whether a place is within quotes is then the parity of the odd runs at beginnings since the last other odd run.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import numpy.typing as npt

from millpond.formats.blocks import Positions, Records
from millpond.options import Option

QUOTING_OPTIONS: tuple[Option, ...] = (
    Option("quote", "text", "the quote around CSV values that contain delimiters or line breaks", '"'),
    Option(
        "escape",
        "text",
        "the escape character before a quote inside a CSV value; by default quotes are doubled",
    ),
    Option("null.value", "text", "the unquoted text that means NULL in CSV", ""),
)
"""The options of every CSV source for quotes and for NULL."""

Flags = npt.NDArray[np.bool_]
_LF, _CR = 10, 13
_TAIL = 4096
"""Bytes that are first searched for the last record."""


class CsvRecords(Records):
    hint: ClassVar[str] = (
        "a quote may not be closed there; raise 'max.record' if the row is meant to be that long"
    )

    def __init__(self, delimiter: str, quote: str | None, escape: str | None):
        self._delimiter = ord(delimiter)
        self._quote = quote.encode() if quote else None
        self._escape = escape.encode() if escape and escape != quote else None

    def ends(self, data: bytes) -> Positions:
        return self._ends(data, 0)[0]

    def last_end(self, data: bytes) -> int:
        if b"\r" not in data and self._is_plain(data):
            return data.rfind(b"\n") + 1
        for tail in (_TAIL, _TAIL << 4):
            if tail < len(data) and not (self._escape and self._escape in data):
                ends, _ = self._ends(data, self._start(data, len(data) - tail))
                if len(ends):
                    return int(ends[-1])
        ends = self.ends(data)
        return int(ends[-1]) if len(ends) else 0

    def is_open(self, data: bytes) -> bool:
        return self._ends(data, 0)[1]

    def _is_plain(self, data: bytes) -> bool:
        return not any(c in data for c in (self._quote, self._escape) if c)

    def _start(self, data: bytes, place: int) -> int:
        """Returns a place that is in no run of quotes and in no line break."""
        runs = (self._quote or b"") + b"\r"
        while place and data[place - 1] in runs:
            place -= 1
        return place

    def _ends(self, data: bytes, start: int) -> tuple[Positions, bool]:
        """Returns the positions after records that end after ``start``, and whether the end of the data is within
        quotes.

        If ``start`` is not the beginning, those before the first conclusive quote are left out.
        """
        text = np.frombuffer(data, np.uint8)[start:]
        breaks = np.flatnonzero(text == _LF)
        if b"\r" in data:
            # The last byte may be the first half of a line break.
            returns = np.flatnonzero(text[:-1] == _CR)
            breaks = np.union1d(breaks, returns[text[returns + 1] != _LF])
        escaped: Flags | None = None
        if self._escape and self._escape in data:
            escaped = _after_odd_runs(text, self._escape[0])
            breaks = breaks[~escaped[breaks]]
        if self._quote is None or self._quote not in data:
            return breaks + (start + 1), False
        runs, is_inside, is_known = self._quoting(text, escaped, data[start - 1] if start else _LF)
        before = np.searchsorted(runs, breaks)
        is_known, is_inside = np.append(start == 0, is_known | (start == 0)), np.append(False, is_inside)
        return breaks[is_known[before] & ~is_inside[before]] + (start + 1), bool(is_inside[-1])

    def _quoting(
        self, text: npt.NDArray[np.uint8], escaped: Flags | None, before: int
    ) -> tuple[Positions, Flags, Flags]:
        """Returns where odd runs of quotes begin, whether what follows each is within quotes, and whether that is known
        without knowing whether the text begins within them. ``before`` is the byte before the text.
        """
        assert self._quote is not None
        quotes = np.flatnonzero(text == self._quote[0])
        if escaped is not None:
            quotes = quotes[~escaped[quotes]]
        runs, lengths = _runs(quotes)
        runs = runs[lengths % 2 == 1]
        ahead = np.where(runs == 0, before, text[np.maximum(runs - 1, 0)])
        at_begin = (ahead == self._delimiter) | (ahead == _LF) | (ahead == _CR)
        if escaped is not None:
            at_begin &= (runs == 0) | ~escaped[np.maximum(runs - 1, 0)]
        begins = np.cumsum(at_begin)
        others = np.maximum.accumulate(np.where(at_begin, -1, np.arange(len(runs))))
        since = np.where(others >= 0, begins[np.maximum(others, 0)], 0)
        return runs, (begins - since) % 2 == 1, others >= 0


def _runs(places: Positions) -> tuple[Positions, Positions]:
    """Returns where runs of neighbouring places begin, and their lengths."""
    first = np.flatnonzero(np.diff(places, prepend=-2) != 1)
    return places[first], np.diff(first, append=len(places))


def _after_odd_runs(text: npt.NDArray[np.uint8], byte: int) -> Flags:
    """Returns which bytes follow an odd number of a byte."""
    found = np.zeros(len(text) + 1, bool)
    runs, lengths = _runs(np.flatnonzero(text == byte))
    found[(runs + lengths)[lengths % 2 == 1]] = True
    return found[:-1]
