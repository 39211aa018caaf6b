"""Decodes JSON lines that all have the same form: the same fields in the same order, none nested, no escapes.

The text between the values is then the same on every line. It is compared at once for all lines, and the values are cut
out of the block as they are. Each value is checked to be what JSON allows. Anything else is left to another reader.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from millpond.formats.blocks import Positions, count_of
from millpond.formats.decimals import decimals_of
from millpond.formats.text import Misfit, convert

Bytes = npt.NDArray[np.uint8]
_Mask = npt.NDArray[np.bool_]
_FIELD = re.compile(rb'([{,] *"([^"]*)": *)("[^"]*"|[^\[{", }]+)')
_TAIL = re.compile(rb" *}\n")
_QUOTE, _COLON, _MINUS, _POINT, _ZERO, _BREAK, _NULL = b'":-.0\nn'
_WORD = {word: int.from_bytes(word, "little") for word in (b"null", b"true", b"fals")}


class _Other(Exception):
    """Reports that the lines are not of one form, or a value needs another reader."""


class _Field(NamedTuple):
    name: str
    lead: bytes
    """The text before its value: ``, "name": ``."""
    sample: bytes


class Flat(NamedTuple):
    rows: pa.RecordBatch
    others: frozenset[str]
    """The fields that the schema does not have."""


class _Values(NamedTuple):
    """Contains where the values of a field begin and end in the block."""

    begins: Positions
    ends: Positions


def read_flat(lines: bytes, schema: pa.Schema) -> Flat | None:
    """Returns the rows of lines in UTF-8, or None if another reader must read them."""
    form = _form(lines, schema)
    if form is None:
        return None
    try:
        return Flat(_Cut(lines, *form).rows(schema), frozenset(f.name for f in form[0]) - {*schema.names})
    except (_Other, Misfit, pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None


def _form(lines: bytes, schema: pa.Schema) -> tuple[list[_Field], bytes] | None:
    """Returns the fields of the first line, and the text at its end."""
    fields: list[_Field] = []
    at = 0
    while (found := _FIELD.match(lines, at)) and lines[at] == b"{,"[bool(fields)]:
        fields.append(_Field(found[2].decode(), found[1], found[3]))
        at = found.end()
    tail = _TAIL.match(lines, at)
    lowered = {f.name.lower() for f in fields}
    spelled = {name.lower(): name for name in schema.names}
    if tail is None or not fields or len(lowered) < len(fields) or not lines.endswith(b"\n"):
        return None
    if b"\\" in lines or any(spelled.get(f.name.lower(), f.name) != f.name for f in fields):
        return None
    return fields, tail[0]


class _Cut:
    """Cuts the values out of a block."""

    def __init__(self, lines: bytes, fields: Sequence[_Field], tail: bytes):
        self._lines = lines
        self._text: Bytes = np.frombuffer(lines, np.uint8)
        self._fields = fields
        ends = np.flatnonzero(self._text == _BREAK) + 1
        colons = np.flatnonzero(self._text == _COLON)
        marks = colons[self._text[colons - 1] == _QUOTE] - 1
        if len(marks) != len(ends) * len(fields) or np.count_nonzero(self._text < 32) != len(ends):
            raise _Other
        self._rows = len(ends)
        grid = marks.reshape(self._rows, len(fields))
        leads = [grid[:, i] - f.lead.index(b'":') for i, f in enumerate(fields)]
        last = ends - len(tail)
        if leads[0][0] != 0 or (leads[0][1:] != ends[:-1]).any() or not self._are(last, tail):
            raise _Other
        self._values: list[_Values] = []
        for i, field in enumerate(fields):
            values = _Values(leads[i] + len(field.lead), leads[i + 1] if i + 1 < len(fields) else last)
            if not self._are(leads[i], field.lead) or (values.ends <= values.begins).any():
                raise _Other
            self._values.append(values)
        # The text as pieces: what is before a value, the value, …, and the end of the line.
        self._pieces = np.empty((self._rows, 2 * len(fields) + 1), np.int32)
        for i, values in enumerate(self._values):
            self._pieces[:, 2 * i] = leads[i]
            self._pieces[:, 2 * i + 1] = values.begins
        self._pieces[:, -1] = last
        self._strings = 0
        """How many texts in quotes were found among the values."""

    def rows(self, schema: pa.Schema) -> pa.RecordBatch:
        known = {f.name: f.type for f in schema}
        nulls = [self._check(i, known.get(f.name)) for i, f in enumerate(self._fields)]
        # No other quotes: so none is inside a text, and each text ends where it seems to.
        if count_of(self._lines, _QUOTE) != 2 * (self._strings + self._rows * len(self._fields)):
            raise _Other
        offsets = np.append(self._pieces.reshape(-1), np.int32(len(self._lines)))
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(self._lines)]
        pieces = pa.Array.from_buffers(pa.string(), len(offsets) - 1, buffers)
        found: dict[str, pa.Array] = {}
        for i, field in enumerate(self._fields):
            dtype = known.get(field.name)
            if dtype is not None and pa.types.is_boolean(dtype):
                begins = self._values[i].begins
                found[field.name] = pa.array(self._text[begins] == ord("t"), mask=nulls[i])
            elif dtype is not None or not _is_text(field.sample, None):
                places = np.arange(2 * i + 1, self._pieces.size, self._pieces.shape[1])
                texts = pieces.take(pa.array(places, mask=nulls[i]))
                value = self._convert(i, texts, dtype, nulls[i])
                if dtype is not None:
                    found[field.name] = value
        columns = [found[f.name] if f.name in found else pa.nulls(self._rows, f.type) for f in schema]
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def _check(self, i: int, dtype: pa.DataType | None) -> _Mask | None:
        """Returns which values of a field are null, and counts its texts; their quotes are cut off."""
        values = self._values[i]
        nulls = self._nulls(values)
        if _is_word(self._fields[i].sample, dtype):
            self._check_words(values, nulls)
        elif _is_text(self._fields[i].sample, dtype):
            begins, ends = values if nulls is None else _Values(*(v[~nulls] for v in values))
            if not (self._all(begins, _QUOTE) and self._all(ends - 1, _QUOTE)) or (ends - begins < 2).any():
                raise _Other
            self._strings += len(begins)
            self._pieces[:, 2 * i + 1] += 1
            self._pieces[:, 2 * i + 2] -= 1
        return nulls

    def _nulls(self, values: _Values) -> _Mask | None:
        nulls = self._text[values.begins] == _NULL
        if not nulls.any():
            return None
        begins, ends = values.begins[nulls], values.ends[nulls]
        if (ends - begins != 4).any() or not self._are(begins, b"null"):
            raise _Other
        return np.asarray(nulls)

    def _check_words(self, values: _Values, nulls: _Mask | None) -> None:
        words = self._window(4)[np.minimum(values.begins, len(self._lines) - 4)]
        lengths = values.ends - values.begins
        true = (words == _WORD[b"true"]) & (lengths == 4)
        false = (words == _WORD[b"fals"]) & (lengths == 5) & (self._text[values.ends - 1] == ord("e"))
        if not (true | false | (False if nulls is None else nulls)).all():
            raise _Other

    def _convert(self, i: int, texts: pa.Array, dtype: pa.DataType | None, nulls: _Mask | None) -> Any:
        t, dtype = pa.types, pa.float64() if dtype is None else dtype
        if t.is_string(dtype):
            return texts
        if t.is_date(dtype) or t.is_timestamp(dtype):
            return convert(texts, dtype, empty_is_null=False)
        self._check_numbers(self._values[i], texts, nulls)
        if t.is_integer(dtype):
            return pc.cast(texts, dtype)  # raises ArrowInvalid for one with a point
        if t.is_decimal128(dtype):
            return decimals_of(texts, dtype)
        return pc.cast(texts, dtype)

    def _check_numbers(self, values: _Values, texts: pa.Array, nulls: _Mask | None) -> None:
        """Refuses what JSON does not allow as a number, and exponents; the cast refuses a second point."""
        begins, ends = values if nulls is None else _Values(*(v[~nulls] for v in values))
        stops = np.frombuffer(texts.buffers()[1], np.int32)
        data = np.frombuffer(texts.buffers()[2], np.uint8)[: stops[len(texts)]] if len(begins) else b""
        used = np.frombuffer(data, np.uint8)
        negative = self._text[begins] == _MINUS
        first = begins + negative
        zero = (self._text[first] == _ZERO) & (ends - first > 1) & (self._text[first + 1] != _POINT)
        allowed = np.count_nonzero(used - np.uint8(_ZERO) < 10) + np.count_nonzero(used == _POINT)
        minuses = np.count_nonzero(negative)
        if allowed + minuses != len(used) or np.count_nonzero(used == _MINUS) != minuses or zero.any():
            raise _Other
        digits = self._text[first], self._text[ends - 1]
        if any((d - np.uint8(_ZERO) >= 10).any() for d in digits):
            raise _Other

    def _all(self, places: Positions, byte: int) -> bool:
        return bool((self._text[places] == byte).all())

    def _are(self, places: Positions, text: bytes) -> bool:
        """Returns whether the text is at all of the places, which are in order; compares up to eight bytes at once."""
        for at in range(0, len(text), 8):
            part = text[at : at + 8]
            size = 1 << (len(part) - 1).bit_length()
            if places[0] + at < 0 or places[-1] + at + size > len(self._lines):
                return False
            found = self._window(size)[places + at]
            if len(part) < size:
                found &= (1 << 8 * len(part)) - 1
            if (found != int.from_bytes(part, "little")).any():
                return False
        return True

    def _window(self, size: int) -> npt.NDArray[Any]:
        """Returns the numbers that the bytes at each place are."""
        return np.ndarray((len(self._lines) - size + 1,), f"<u{size}", self._lines, strides=(1,))


def _is_text(sample: bytes, dtype: pa.DataType | None) -> bool:
    if dtype is None:
        return sample.startswith(b'"')
    return bool(pa.types.is_string(dtype) or pa.types.is_date(dtype) or pa.types.is_timestamp(dtype))


def _is_word(sample: bytes, dtype: pa.DataType | None) -> bool:
    return sample in (b"true", b"false", b"null") if dtype is None else bool(pa.types.is_boolean(dtype))
