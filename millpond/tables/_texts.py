"""Stores the texts of one column, each once, by a code.

In a column whose texts hardly repeat every text gets a new code: comparing would gain nothing. Texts that were added as
Arrow stay so until a reader first needs one.
"""

from __future__ import annotations

from bisect import bisect_right
from threading import Lock
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Codes = npt.NDArray[np.int32]

UNREAD = ...
"""Represents in ``values`` a text that is only in Arrow yet."""
_READ_AT_ONCE = 1024
_SAMPLE = 1024
_ONE_PIECE = 1 << 30
_MOST_PIECES = 256
_OBJECT = 49
"""Bytes of a Python text in addition to its letters."""


class Texts:
    """Stores texts: one writer adds, many readers read. Code 0 is NULL; a code never changes its text."""

    __slots__ = ("_added", "_codes", "_in_pieces", "_lock", "_pieces", "_read", "values")

    def __init__(self) -> None:
        self.values: list[Any] = [None]
        self._codes: dict[str, int] | None = {}
        self._added = 0
        self._lock = Lock()
        # The first code of each piece, and the pieces. The pair is replaced as a whole: ``read`` takes no lock.
        self._pieces: tuple[list[int], list[pa.Array]] = ([0], [pa.nulls(1, pa.string())])
        self._in_pieces = 1
        self._read = 0  # approximate bytes of the Python texts

    def code(self, text: str) -> int:
        """Returns the code of one text."""
        codes = self._codes
        if codes is None:
            self._read += _OBJECT + len(text)
            self.values.append(text)
            return len(self.values) - 1
        found = codes.get(text)
        self._added += 1
        if found is None:
            found = codes[text] = len(self.values)
            self.values.append(text)
            if found > _SAMPLE and 2 * found > self._added:
                self._codes = None
        return found

    def encode(self, array: pa.Array) -> Codes:
        """Returns the codes of many texts."""
        if len(array) < 64:
            code = self.code
            return np.array([0 if text is None else code(text) for text in array.to_pylist()], dtype=np.int32)
        if self._codes is not None and not _repeat(array):
            self._codes = None
        if self._codes is None:
            first = self._add_piece(array)
            codes = np.arange(first, first + len(array), dtype=np.int32)
            if array.null_count:
                codes[array.is_null().to_numpy(zero_copy_only=False)] = 0
            return codes
        encoded = array.dictionary_encode()
        new = [0 if text is None else self.code(text) for text in encoded.dictionary.to_pylist()]
        self._added += len(array) - len(new)
        by_index = np.array([*new, 0], dtype=np.int32)
        indices = encoded.indices.fill_null(len(new)) if array.null_count else encoded.indices
        found: Codes = by_index[
            np.frombuffer(indices.buffers()[1], np.int32, len(indices), 4 * indices.offset)
        ]
        return found

    def read(self, code: int) -> str | None:
        """Returns the text of a code that is UNREAD in ``values``; its neighbours are read with it."""
        starts, pieces = self._pieces
        at = bisect_right(starts, code) - 1
        start = starts[at]
        first = (code - start) // _READ_AT_ONCE * _READ_AT_ONCE
        part = pieces[at].slice(first, _READ_AT_ONCE)
        texts = part.to_pylist()
        self._read += int(part.nbytes) + _OBJECT * len(texts)
        self.values[start + first : start + first + len(texts)] = texts
        text: str | None = texts[code - start - first]
        return text

    def text(self, code: int) -> str | None:
        """Returns the text of a code."""
        text = self.values[code]
        return self.read(code) if text is UNREAD else cast(str | None, text)

    def texts(self, codes: list[int]) -> list[Any]:
        """Returns the texts of many codes."""
        found = list(map(self.values.__getitem__, codes))
        if UNREAD in found:
            found = list(map(self.text, codes))
        return found

    def take(self, codes: pa.Array) -> pa.Array:
        """Returns the texts of the codes as Arrow."""
        with self._lock:
            self._flush()
            starts, pieces = list(self._pieces[0]), list(self._pieces[1])
        if len(pieces) > _MOST_PIECES:
            return self._take_anywhere(codes)
        wanted = cast(Codes, np.from_dlpack(codes))
        given = wanted != 0
        whole = bool(given.all())
        some = wanted if whole else wanted[given]
        if not len(some):
            return pa.nulls(len(wanted), pa.string())
        first, last = (bisect_right(starts, int(code)) - 1 for code in (some.min(), some.max()))
        if first == last:
            return _take(pieces[first], wanted - starts[first], None if whole else ~given)
        if whole and (wanted[1:] >= wanted[:-1]).all():
            cuts = np.searchsorted(wanted, starts[first + 1 : last + 1]).tolist()
            spans = zip([0, *cuts], [*cuts, len(wanted)], range(first, last + 1), strict=True)
            return pa.concat_arrays([_take(pieces[n], wanted[a:b] - starts[n], None) for a, b, n in spans])
        return self._take_anywhere(codes)

    def _take_anywhere(self, codes: pa.Array) -> pa.Array:
        with self._lock:
            pieces = list(self._pieces[1])
            if sum(int(p.nbytes) for p in pieces) < _ONE_PIECE:
                pieces = [pa.concat_arrays(pieces)]
                self._pieces = ([0], pieces)
        found = (pieces[0] if len(pieces) == 1 else pa.chunked_array(pieces)).take(codes)
        return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found

    def nbytes(self) -> int:
        known = 0 if self._codes is None else 100 * len(self._codes)
        return known + 8 * len(self.values) + self._read + sum(int(p.nbytes) for p in list(self._pieces[1]))

    def _flush(self) -> None:
        """Moves the texts that were added one by one to Arrow."""
        fresh = self.values[self._in_pieces :]
        if fresh:
            for array in _arrays(fresh):
                self._append(array)

    def _add_piece(self, array: pa.Array) -> int:
        with self._lock:
            self._flush()
            first = self._in_pieces
            self.values.extend([UNREAD] * len(array))
            self._append(array)
            return first

    def _append(self, array: pa.Array) -> None:
        starts, pieces = self._pieces
        pieces.append(array)
        starts.append(self._in_pieces)
        self._in_pieces += len(array)


def _arrays(texts: list[str]) -> list[pa.Array]:
    """Returns the texts as Arrow. ``pa.array`` would load pandas, a quarter of a second, at its first call."""
    encoded = [text.encode() for text in texts]
    ends = np.zeros(len(texts) + 1, dtype=np.int64)
    np.cumsum([len(text) for text in encoded], out=ends[1:])
    if ends[-1] >= 1 << 31:  # more than one array can hold
        half = len(texts) // 2
        return _arrays(texts[:half]) + _arrays(texts[half:])
    buffers = [None, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(b"".join(encoded))]
    return [pa.Array.from_buffers(pa.string(), len(texts), buffers)]


def _take(piece: pa.Array, places: Codes, nulls: npt.NDArray[np.bool_] | None) -> pa.Array:
    """Returns the texts at these places; contiguous texts are not copied."""
    if nulls is None and len(places) and int(places[-1]) - int(places[0]) == len(places) - 1:
        if (places[1:] > places[:-1]).all():
            return piece.slice(int(places[0]), len(places))
    return piece.take(pa.array(places, mask=nulls))


def _repeat(array: pa.Array) -> bool:
    """Returns whether the texts seem to repeat, by a sample."""
    size = max(_SAMPLE, len(array) // 16)
    if len(array) < _SAMPLE:
        return True
    sample = array.slice(0, size)
    return 2 * len(sample.dictionary_encode().dictionary) <= len(sample)
