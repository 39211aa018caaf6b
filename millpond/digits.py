"""Writes decimals with their full scale, all digits, no exponent.

Numbers whose type was discovered (``types.NUMBER``) have a scale that nobody chose. They, and results that have so many
digits after the point because of them, are written and returned without trailing zeros.
"""

from __future__ import annotations

from datetime import timedelta
from decimal import Context, Decimal

import pyarrow as pa
import pyarrow.compute as pc

from millpond.types import NUMBER

_ALL = Context(prec=80)
_ONE = Decimal(1)


def is_unscaled(dtype: pa.DataType) -> bool:
    """Returns whether the scale of a type has no meaning."""
    return bool(pa.types.is_decimal(dtype) and dtype.scale >= NUMBER.scale)


def without_zeros(value: Decimal) -> Decimal:
    """Returns the number without trailing zeros in its fraction."""
    short = value.normalize(_ALL)
    return short if short.as_tuple().exponent <= 0 else short.quantize(_ONE, context=_ALL)  # type: ignore[operator]


def written(value: Decimal) -> str:
    """Writes a decimal as text."""
    exponent = value.as_tuple().exponent
    if isinstance(exponent, int) and -exponent >= NUMBER.scale:
        value = without_zeros(value)
    return format(value, "f")


def duration_text(value: timedelta) -> str:
    """Writes a duration as ISO 8601, in seconds with all digits."""
    micros = value // timedelta(microseconds=1)
    seconds, rest = divmod(abs(micros), 1_000_000)
    fraction = f".{rest:06d}".rstrip("0") if rest else ""
    return f"PT{'-' if micros < 0 else ''}{seconds}{fraction}S"


def all_written(array: pa.Array) -> pa.Array:
    """Writes a column of decimals as text."""
    texts = array.cast(pa.string())
    if pc.any(pc.match_substring(texts, "E")).as_py():  # small numbers, which Arrow writes so
        texts = pa.array(
            [None if t is None else format(Decimal(t), "f") for t in texts.to_pylist()], pa.string()
        )
    return pc.replace_substring_regex(texts, r"\.?0+$", "") if is_unscaled(array.type) else texts
