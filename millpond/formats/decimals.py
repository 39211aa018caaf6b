"""Parses decimals from text, a whole column at a time, and never through a float."""

from __future__ import annotations

import re
from decimal import Context, Decimal, Inexact, InvalidOperation

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond.types import NUMBER

MAX_DIGITS = 38
_WIDEST = 76
_EXACT = Context(prec=MAX_DIGITS, traps=[Inexact, InvalidOperation])
_EXPONENT = r"^(?P<digits>[+-]?(?:\d+\.?\d*|\.\d+))[eE](?P<power>[+-]?\d{1,3})$"
_SHORT = re.compile(r"[+-]?\d{1,19}\.\d{1,19}")


def is_number(text: str) -> bool:
    """Returns whether a text is a number that NUMBER can represent, with all its digits."""
    if _SHORT.fullmatch(text):
        return True
    try:
        _decimal(text, NUMBER)
    except pa.ArrowInvalid:
        return False
    return True


def decimals_of(texts: pa.Array, dtype: pa.DataType) -> pa.Array:
    """Parses texts to numbers. Raises ArrowInvalid if one is not a number, or has more digits than the type."""
    if may_have_letters(texts):
        return _with_exponents(texts, dtype)
    if _casts_exactly(texts, dtype):
        return pc.cast(texts, dtype)
    return _one_by_one(texts, dtype)


def may_have_letters(texts: pa.Array) -> bool:
    """Checks all bytes of the column at once; those of values that a slice has left out are included."""
    data = texts.buffers()[2]
    return data is not None and bool((np.frombuffer(data, np.uint8) >= ord("A")).any())


def _casts_exactly(texts: pa.Array, dtype: pa.DataType) -> bool:
    """Returns whether Arrow's cast to a decimal is right: it wraps around, without an error, if digits and scale
    together are more than a decimal has.
    """
    length = pc.max(pc.binary_length(texts)).as_py() or 0
    whole = dtype.precision - dtype.scale
    if length > MAX_DIGITS:
        return False
    if length <= whole:
        return True
    return bool(pc.all(pc.match_substring_regex(texts, rf"^[+-]?0*\d{{0,{whole}}}(?:\.\d*)?$")).as_py())


def _with_exponents(texts: pa.Array, dtype: pa.DataType) -> pa.Array:
    """Parses numbers some of which have exponents: the digits of those with the same one are numbers of
    another scale.
    """
    found = pc.extract_regex(texts, _EXPONENT)
    plain = np.asarray(found.is_null())
    signed = pc.fill_null(pc.struct_field(found, "power"), "0")
    powers = np.asarray(pc.replace_substring(signed, "+", "").cast(pa.int64()))
    rest = texts.filter(pa.array(plain))
    if pc.any(pc.match_substring_regex(rest, "[A-Za-z]")).as_py():
        raise pa.ArrowInvalid("not a number")
    digits = pc.if_else(pa.array(plain), texts, pc.struct_field(found, "digits"))
    parts, places = [pa.nulls(0, dtype)], [np.empty(0, np.int64)]
    for power in np.unique(powers):
        here = np.flatnonzero(powers == power)
        parts.append(_shifted(digits.take(pa.array(here)), int(power), dtype))
        places.append(here)
    order = np.empty(len(texts), np.int64)
    order[np.concatenate(places)] = np.arange(len(texts))
    return pa.concat_arrays(parts).take(pa.array(order))


def _shifted(digits: pa.Array, power: int, dtype: pa.DataType) -> pa.Array:
    """Multiplies numbers by a power of ten."""
    scale = dtype.scale + power
    longest = pc.max(pc.binary_length(digits)).as_py() or 0
    if scale < 0 or longest + scale > _WIDEST:
        return _one_by_one(pc.binary_join_element_wise(digits, str(power), "e"), dtype)
    wide = pc.cast(digits, pa.decimal256(_WIDEST, scale))
    moved = pa.decimal256(_WIDEST, dtype.scale)
    return pa.Array.from_buffers(moved, len(wide), wide.buffers(), offset=wide.offset).cast(dtype)


def _one_by_one(texts: pa.Array, dtype: pa.DataType) -> pa.Array:
    return pa.array([_decimal(t, dtype) for t in texts.to_pylist()], dtype)


def _decimal(text: str | None, dtype: pa.DataType) -> Decimal | None:
    """Returns the number with exactly the scale of the type, so that Arrow has nothing left to do."""
    if text is None:
        return None
    try:
        number = Decimal(text).quantize(Decimal((0, (1,), -dtype.scale)), context=_EXACT)
    except ArithmeticError:
        raise pa.ArrowInvalid("not a decimal of this scale") from None
    if not number.is_finite() or len(number.as_tuple().digits) > dtype.precision:
        raise pa.ArrowInvalid("not a decimal of this precision")
    return number
