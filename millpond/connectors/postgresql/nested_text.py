"""Splits PostgreSQL texts that contain several values (arrays, rows, hstore), for a whole column at once.

What a character means depends on the quotes before it. Since every text closes its quotes, that is a running count over
the bytes of all texts, and no text is parsed separately.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

_QUOTE, _BACKSLASH = 34, 92
_NULL = np.frombuffer(b"NULL", np.uint8)


@dataclass(frozen=True, slots=True)
class Pieces:
    """Contains the pieces. ``counts``: how many each text has. ``texts``: the pieces of all, without quotes and
    escapes. ``quoted``: which of them had quotes.
    """

    counts: np.ndarray
    texts: pa.Array
    quoted: np.ndarray


def bytes_of(texts: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Returns the concatenated bytes of texts that are not NULL, and where each begins and the last ends."""
    offsets = np.frombuffer(texts.buffers()[1], np.int32)[texts.offset : texts.offset + len(texts) + 1]
    data = texts.buffers()[2]
    if data is None:
        return np.zeros(0, np.uint8), np.zeros(len(texts) + 1, np.int64)
    found = np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]]
    return found, (offsets - offsets[0]).astype(np.int64)


def texts_of(data: np.ndarray, lengths: np.ndarray) -> pa.Array:
    """Returns texts of these lengths from their bytes."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(np.ascontiguousarray(data))]
    return pa.Array.from_buffers(pa.string(), len(lengths), buffers)


def split(
    texts: pa.Array, separators: bytes, *, fenced: bool, doubled: bool = False, skipped: bytes = b""
) -> Pieces:
    """Splits texts that are not NULL into pieces. ``fenced``: each is in brackets; ``doubled``: a quote in quotes is
    written twice; ``skipped``: bytes that mean nothing outside of quotes.
    """
    data, bounds = bytes_of(texts)
    begins, ends = bounds[:-1], bounds[1:]
    place = np.arange(len(data))
    backslash = data == _BACKSLASH
    other = np.maximum.accumulate(np.where(backslash, -1, place)) if len(data) else place
    before = np.concatenate([[-1], other[:-1]]) if len(data) else place
    escaped = ((place - 1 - before) & 1).astype(bool)
    quote = (data == _QUOTE) & ~escaped
    inside = (np.cumsum(quote) & 1).astype(bool)
    outside = ~inside & ~quote
    separator = outside & np.isin(data, np.frombuffer(separators, np.uint8))
    dropped = quote | (backslash & ~escaped) | separator
    if doubled and len(data):
        dropped[1:] &= ~(quote[1:] & quote[:-1] & inside[1:])
    if skipped:
        dropped |= outside & np.isin(data, np.frombuffer(skipped, np.uint8))
    if fenced:
        dropped[begins] = True
        dropped[ends - 1] = True
    full = ends - begins > (2 if fenced and not doubled else 0)
    at = np.flatnonzero(separator)
    first = np.sort(np.concatenate([begins[full], at]))
    last = np.sort(np.concatenate([at, ends[full] - (1 if fenced else 0)]))
    kept = np.concatenate([[0], np.cumsum(~dropped)])
    quotes = np.concatenate([[0], np.cumsum(quote)])
    counted = np.concatenate([[0], np.cumsum(separator)])
    counts = counted[ends] - counted[begins] + full
    pieces = texts_of(data[~dropped], kept[last] - kept[first])
    return Pieces(counts, pieces, quotes[last] > quotes[first])


def are_null(pieces: Pieces) -> np.ndarray:
    """Returns which pieces are the word NULL, without quotes."""
    data, bounds = bytes_of(pieces.texts)
    found: np.ndarray = ~pieces.quoted & (np.diff(bounds) == len(_NULL))
    at = bounds[:-1][found]
    for i, letter in enumerate(_NULL):
        same = data[at + i] == letter
        found[np.flatnonzero(found)[~same]] = False
        at = at[same]
    return found


def with_nulls(texts: pa.Array, null: np.ndarray) -> pa.Array:
    """Returns the texts, NULL where flagged."""
    if not null.any():
        return texts
    valid = pa.array(~null).buffers()[1]
    return pa.Array.from_buffers(pa.string(), len(texts), [valid, *texts.buffers()[1:]], offset=texts.offset)
