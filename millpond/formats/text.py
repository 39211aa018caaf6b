"""Converts columns of text to columns of values, a whole column at a time, and infers the type of a text.

A decimal never passes through a float. A timestamp without a zone is UTC; digits beyond microseconds are dropped.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond.formats.decimals import decimals_of, may_have_letters
from millpond.formats.merge import is_numeric, merge_types
from millpond.formats.read_records import bad_places
from millpond.types import NUMBER, TIMESTAMP

_ZONE = r"(?:Z|[+-]\d{2}(?::?\d{2})?)"
_DAY = r"\d{4}-\d{2}-\d{2}"
_TIME = r"\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?"
_BOOLEAN = r"^(?i:true|false)$"
_INTEGER = r"^[+-]?\d+$"
_NUMBER = r"^[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|Infinity)$|^NaN$"
_DATE = f"^{_DAY}$"
_TIMESTAMP = f"^{_DAY}(?:[ T]{_TIME}{_ZONE}?)?$"

# Characters that no text of the type has: most misfits are found by them, without trying each value.
_STRANGE = {
    "integer": r"[!-*,./:-~]",
    "decimal": r"[!-*,/:-DF-df-~]",
    "date": r"[!-,./:-~]",
    "timestamp": r"[!-*,/;-SU-Y\[-su-y{-~]",
}

# ``pa.scalar`` would load pandas, a quarter of a second.
_NULL = pa.nulls(1, pa.string())[0]
_EMPTY = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(bytes(8)), pa.py_buffer(b"")])[0]


class Misfit(ValueError):
    """Reports that ``value`` at ``index`` of a column is not of the type."""

    def __init__(self, index: int, value: str):
        super().__init__(value)
        self.index = index
        self.value = value


def convert(texts: pa.Array, dtype: pa.DataType, *, empty_is_null: bool = True) -> pa.Array:
    """Converts a column of text to values; raises Misfit for the first that is not of the type.

    Except for STRING and BINARY, blanks around a value are ignored, and an empty text is NULL or a misfit.
    """
    if pa.types.is_string(dtype) or pa.types.is_null(texts.type):
        return texts.cast(dtype)
    try:
        return _cast(texts, dtype)
    except pa.ArrowInvalid:
        pass
    tidy = _tidy(texts, dtype)
    if not empty_is_null and tidy.null_count > texts.null_count:
        index = pc.index(pc.and_(tidy.is_null(), texts.is_valid()), True).as_py()
        raise Misfit(index, texts[index].as_py())
    try:
        return _cast(tidy, dtype)
    except pa.ArrowInvalid:
        index = _first_bad(tidy, dtype)
        raise Misfit(index, texts[index].as_py()) from None


def misfits(texts: pa.Array, dtype: pa.DataType) -> list[int]:
    """Returns the places of all texts that are not of the type."""
    if pa.types.is_string(dtype) or pa.types.is_binary(dtype):
        return []
    wrong = np.zeros(len(texts), bool)
    strange = _STRANGE.get(_kind(dtype))
    if strange is not None:
        found = pc.fill_null(pc.match_substring_regex(texts, strange), False)
        wrong = np.asarray(found.to_numpy(zero_copy_only=False), bool)
    others = np.flatnonzero(~wrong)
    rest = texts.take(pa.array(others))

    def is_fine(begin: int, end: int) -> bool:
        try:
            convert(rest.slice(begin, end - begin), dtype)
        except Misfit:
            return False
        return True

    wrong[others[bad_places(len(rest), is_fine)]] = True
    return [int(i) for i in np.flatnonzero(wrong)]


def _kind(dtype: pa.DataType) -> str:
    t = pa.types
    kinds = {"integer": t.is_integer, "decimal": t.is_decimal, "date": t.is_date, "timestamp": t.is_timestamp}
    return next((name for name, is_it in kinds.items() if is_it(dtype)), "")


def holds(dtype: pa.DataType) -> bool:
    """Returns whether a single text can be a value of the type."""
    return not pa.types.is_nested(dtype) and not pa.types.is_duration(dtype)


def only_word(texts: pa.Array) -> str | None:
    """Returns the one text that is not a number, if all others are, and are more."""
    values = _tidy(texts, pa.int64()).drop_null()
    numbers = pc.match_substring_regex(values, _NUMBER)
    words = values.filter(pc.invert(numbers))
    if not len(words) or 2 * len(words) >= len(values) or len(words.unique()) > 1:
        return None
    return str(words[0].as_py())


def guess(texts: pa.Array) -> pa.DataType:
    """Returns the type of all the texts, as Spark's inferSchema does; STRING if there is none.

    Whole numbers beyond BIGINT are DECIMAL(38,0). Others are decimals too, unless one of them does not fit: then they
    are DOUBLE. VOID if there is no value.
    """
    values = _tidy(texts, pa.int64()).drop_null()
    if not len(values):
        return pa.null()
    candidates = (
        (_INTEGER, pa.int64()),
        (_INTEGER, pa.decimal128(38, 0)),
        (_NUMBER, NUMBER),
        (_NUMBER, pa.float64()),
        (_BOOLEAN, pa.bool_()),
        (_DATE, pa.date32()),
        (_TIMESTAMP, TIMESTAMP),
    )
    fits: dict[str, bool] = {}
    for pattern, dtype in candidates:
        if dtype == NUMBER and fits[_INTEGER]:
            return pa.string()
        if pattern not in fits:
            fits[pattern] = bool(pc.all(pc.match_substring_regex(values, pattern)).as_py())
        if fits[pattern]:
            try:
                _cast(_tidy(values, dtype), dtype)
            except pa.ArrowInvalid:
                continue
            return dtype
    return pa.string()


def further(dtype: pa.DataType, texts: pa.Array) -> pa.DataType:
    """Returns the numeric type that can represent more texts too; any other type stays, and texts that are not numbers
    are ignored.
    """
    if not is_numeric(dtype) or pa.types.is_floating(dtype):
        return dtype
    tidy = _tidy(texts, dtype)
    try:
        _cast(tidy, dtype)
    except pa.ArrowInvalid:
        found = guess(tidy.filter(pc.match_substring_regex(tidy, _NUMBER)))
        return merge_types(dtype, found) if is_numeric(found) else dtype
    return dtype


def _cast(texts: pa.Array, dtype: pa.DataType) -> pa.Array:
    if dtype == TIMESTAMP:
        return _instants(texts)
    # Arrow reads "0x1F" as a whole number.
    if pa.types.is_integer(dtype) and may_have_letters(texts) and _any_with(texts, "xX"):
        raise pa.ArrowInvalid("hexadecimal")
    if pa.types.is_decimal(dtype):
        return decimals_of(texts, dtype)
    return pc.cast(texts, dtype)


def _any_with(texts: pa.Array, characters: str) -> bool:
    return any(pc.any(pc.match_substring(texts, c)).as_py() for c in characters)


def _instants(texts: pa.Array) -> pa.Array:
    """Casts texts that all have a zone, or all have none, in one step; a mixture is completed first."""
    try:
        return pc.cast(pc.cast(texts, pa.timestamp("us")), TIMESTAMP)
    except pa.ArrowInvalid:
        zoned = pc.match_substring_regex(texts, f":\\d{{2}}(?:\\.\\d+)?{_ZONE}$")
    if not pc.all(zoned).as_py():
        day_only = pc.equal(pc.utf8_length(texts), 10)
        full = pc.if_else(day_only, pc.binary_join_element_wise(texts, "00:00", "T"), texts)
        texts = pc.if_else(zoned, texts, pc.binary_join_element_wise(full, "Z", ""))
    return pc.cast(texts, TIMESTAMP)


def _tidy(texts: pa.Array, dtype: pa.DataType) -> pa.Array:
    if pa.types.is_binary(dtype):
        return texts
    texts = pc.utf8_trim_whitespace(texts)
    texts = pc.if_else(pc.equal(texts, _EMPTY), _NULL, texts)
    if pa.types.is_integer(dtype):
        return pc.replace_substring_regex(texts, r"^\+(\d)", r"\1")
    if pa.types.is_timestamp(dtype):
        return pc.replace_substring_regex(texts, r"(\.\d{6})\d+", r"\1")
    return texts


def _first_bad(texts: pa.Array, dtype: pa.DataType) -> int:
    """Returns the index of the first text that does not cast, given that one does not: by halving."""
    low, high = 0, len(texts)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            _cast(texts[low:middle], dtype)
            low = middle
        except pa.ArrowInvalid:
            high = middle
    return low
