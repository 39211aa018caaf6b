"""Where records of CSV end, without parsing them: a line break within quotes does not end one.

A quote opens only where a value begins, and a doubled one within quotes is a quote: so of each run of quotes only
counts whether their number is odd, and an odd run outside of the beginning of a value always ends up outside of quotes.
Whether a place is within quotes is then the parity of the odd runs at beginnings since the last other odd run.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import numpy.typing as npt

from millpond.formats.blocks import Positions, Records

Flags = npt.NDArray[np.bool_]
_LF, _CR = 10, 13


class CsvRecords(Records):
    hint: ClassVar[str] = (
        "a quote may not be closed there; raise 'max.record' if the row is meant to be that long"
    )

    def __init__(self, delimiter: str, quote: str | None, escape: str | None):
        self._delimiter = ord(delimiter)
        self._quote = quote.encode() if quote else None
        self._escape = escape.encode() if escape and escape != quote else None

    def ends(self, data: bytes) -> Positions:
        return self._breaks(data)[0]

    def last_end(self, data: bytes) -> int:
        if self._is_plain(data) and data.count(b"\r") == data.count(b"\r\n"):
            return data.rfind(b"\n") + 1
        ends = self.ends(data)
        return int(ends[-1]) if len(ends) else 0

    def is_open(self, data: bytes) -> bool:
        return self._breaks(data)[1]

    def _is_plain(self, data: bytes) -> bool:
        return not any(c in data for c in (self._quote, self._escape) if c)

    def _breaks(self, data: bytes) -> tuple[Positions, bool]:
        """The positions after records, and whether the end is within quotes."""
        text = np.frombuffer(data, np.uint8)
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
            return breaks + 1, False
        runs, is_inside = self._quoting(text, escaped)
        if not len(runs):
            return breaks + 1, False
        before = np.searchsorted(runs, breaks) - 1
        return breaks[~((before >= 0) & is_inside[before])] + 1, bool(is_inside[-1])

    def _quoting(self, text: npt.NDArray[np.uint8], escaped: Flags | None) -> tuple[Positions, Flags]:
        """Where odd runs of quotes begin, and whether what follows each is within quotes."""
        assert self._quote is not None
        quotes = np.flatnonzero(text == self._quote[0])
        if escaped is not None:
            quotes = quotes[~escaped[quotes]]
        runs, lengths = _runs(quotes)
        runs = runs[lengths % 2 == 1]
        before = text[np.maximum(runs - 1, 0)]
        at_begin = (runs == 0) | (before == self._delimiter) | (before == _LF) | (before == _CR)
        if escaped is not None:
            at_begin &= (runs == 0) | ~escaped[np.maximum(runs - 1, 0)]
        begins = np.cumsum(at_begin)
        others = np.maximum.accumulate(np.where(at_begin, -1, np.arange(len(runs))))
        since = np.where(others >= 0, begins[np.maximum(others, 0)], 0)
        return runs, (begins - since) % 2 == 1


def _runs(places: Positions) -> tuple[Positions, Positions]:
    """Where runs of neighbouring places begin, and how long they are."""
    first = np.flatnonzero(np.diff(places, prepend=-2) != 1)
    return places[first], np.diff(first, append=len(places))


def _after_odd_runs(text: npt.NDArray[np.uint8], byte: int) -> Flags:
    """Which bytes follow an odd number of a byte."""
    found = np.zeros(len(text) + 1, bool)
    runs, lengths = _runs(np.flatnonzero(text == byte))
    found[(runs + lengths)[lengths % 2 == 1]] = True
    return found[:-1]
