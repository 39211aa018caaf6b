"""Says which types have every value of another one, so that a column can get them."""

from __future__ import annotations

import pyarrow as pa

_DIGITS = {8: 3, 16: 5, 32: 10, 64: 19}
"""The digits of integers, by their bits."""
_EXACT = {32: 16, 64: 32}
"""The bits of integers that a floating-point number has exactly, by its own bits."""


def widens(have: pa.DataType, want: pa.DataType) -> bool:
    """Returns whether the wanted type has every value of the other one, and is another."""
    t = pa.types
    if t.is_decimal128(want):
        if t.is_integer(have):
            digits, scale = _DIGITS[have.bit_width], 0
        elif t.is_decimal128(have) and have != want:
            digits, scale = have.precision - have.scale, have.scale
        else:
            return False
        return bool(want.scale >= scale and want.precision - want.scale >= digits)
    if t.is_floating(want):
        wide = have.bit_width < want.bit_width if t.is_floating(have) else False
        return bool(wide or (t.is_integer(have) and have.bit_width <= _EXACT[want.bit_width]))
    return bool(t.is_integer(have) and t.is_integer(want) and want.bit_width > have.bit_width)
