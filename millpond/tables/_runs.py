"""Stores sorted rows of integers in files, and reads only a page at a time."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

from millpond.errors import StateCorrupt
from millpond.tables._shelf import Shelf

Matrix = npt.NDArray[np.int64]
"""Rows with the columns that identify a key first, sorted by the first of them, and its slot last."""

ABSENT = int(np.iinfo(np.int64).min)
"""Neither a slot nor a deleted slot."""
_PAGE = 256
_PART = 65_536
_NEAR = 8
"""Pages that are read without being needed, to read others with them."""


class Run:
    """Represents one file of rows. The first number of each page is in memory. The file has no name, and is removed
    with the object.
    """

    def __init__(self, shelf: Shelf, parts: Iterable[Matrix]):
        """Writes the rows of all parts. Raises OSError, and leaves nothing behind."""
        self._file = shelf.nameless()
        weakref.finalize(self, os.close, self._file)
        self.rows, self._width = 0, 2
        firsts = []
        for part in parts:
            if len(part):
                self._width = part.shape[1]
                firsts.append(part[-self.rows % _PAGE :: _PAGE, 0].copy())
                _write(self._file, np.ascontiguousarray(part))
                self.rows += len(part)
        self._firsts = np.concatenate(firsts) if firsts else np.empty(0, dtype=np.int64)
        self.size = self.rows * self._width * 8

    def nbytes(self) -> int:
        return int(self._firsts.nbytes)

    def read(self, start: int, end: int) -> Matrix:
        """Returns the rows from ``start`` up to ``end``."""
        width = self._width * 8
        wanted, found = (end - start) * width, []
        while wanted:
            some = os.pread(self._file, wanted, end * width - wanted)
            if not some:
                raise StateCorrupt(
                    "keys that were spilled are gone", hint="start the app again: the journal has the rows"
                )
            found.append(some)
            wanted -= len(some)
        return np.frombuffer(b"".join(found), dtype=np.int64).reshape(-1, self._width)

    def parts(self) -> Iterator[Matrix]:
        """Yields all rows."""
        for start in range(0, self.rows, _PART):
            yield self.read(start, min(start + _PART, self.rows))

    def find(self, codes: Matrix) -> npt.NDArray[np.int64]:
        """Returns the slots of keys, which are sorted as the rows are; ABSENT for a missing one."""
        found = np.full(len(codes), ABSENT, dtype=np.int64)
        first = np.maximum(np.searchsorted(self._firsts, codes[:, 0], side="left") - 1, 0).tolist()
        last = np.searchsorted(self._firsts, codes[:, 0], side="right").tolist()
        start = 0
        while start < len(codes):
            # What is close together is read together.
            low = first[start]
            stop = start + 1
            while (
                stop < len(codes)
                and first[stop] <= last[stop - 1] + _NEAR
                and last[stop] - low <= _PART // _PAGE
            ):
                stop += 1
            high = min(last[stop - 1] * _PAGE, self.rows)
            if high > low * _PAGE:
                found[start:stop] = _matching(self.read(low * _PAGE, high), codes[start:stop])
            start = stop
        return found

    def place(self, number: int) -> int:
        """Returns how many rows are below the number."""
        page = max(int(np.searchsorted(self._firsts, number, side="left")) - 1, 0)
        start = page * _PAGE
        rows = self.read(start, min(start + _PAGE, self.rows))
        return start + int(np.searchsorted(rows[:, 0], number, side="left"))

    def bounds(self) -> Matrix:
        """Returns numbers that divide the rows into parts."""
        return self._firsts[:: _PART // _PAGE]


def _matching(rows: Matrix, codes: Matrix) -> npt.NDArray[np.int64]:
    sorted_by = np.ascontiguousarray(rows[:, 0])
    at = np.searchsorted(sorted_by, codes[:, 0], side="left")
    found = np.full(len(codes), ABSENT, dtype=np.int64)
    open_ = np.flatnonzero(at < len(rows))
    while len(open_):
        # The first of rows with an equal first number, then, if it is another key, the next.
        open_ = open_[sorted_by[at[open_]] == codes[open_, 0]]
        same = (rows[at[open_], :-1] == codes[open_]).all(axis=1)
        found[open_[same]] = rows[at[open_[same]], -1]
        open_ = open_[~same]
        at[open_] += 1
        open_ = open_[at[open_] < len(rows)]
    return found


def merged(older: Run, newer: Run) -> Iterator[Matrix]:
    """Yields the rows of both; if both have a key, those of the newer one."""
    bounds = np.unique(np.concatenate((older.bounds(), newer.bounds())))[1:].tolist()
    runs = (older, newer)
    begin = [0, 0]
    for bound in [*bounds, None]:
        end = [run.rows if bound is None else run.place(bound) for run in runs]
        rows = np.concatenate([run.read(*span) for run, *span in zip(runs, begin, end, strict=True)])
        rows = rows[np.lexsort(rows[:, -2::-1].T)]
        last = np.ones(len(rows), dtype=np.bool_)
        last[:-1] = (rows[1:, :-1] != rows[:-1, :-1]).any(axis=1)
        yield rows[last]
        begin = end


def _write(file: int, rows: Matrix) -> None:
    left = memoryview(rows.data).cast("B")
    while left:
        left = left[os.write(file, left) :]
