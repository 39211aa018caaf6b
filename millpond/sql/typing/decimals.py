"""Computes precision and scale of decimal results as Spark does (precision loss allowed)."""

from __future__ import annotations

import pyarrow as pa

MAX_PRECISION = 38
MIN_ADJUSTED_SCALE = 6

_DIGITS = {pa.int8(): 3, pa.int16(): 5, pa.int32(): 10, pa.int64(): 20}


def bounded(precision: int, scale: int) -> pa.DataType:
    """Returns the type with both numbers limited to 38."""
    return pa.decimal128(min(precision, MAX_PRECISION), min(scale, MAX_PRECISION))


def adjusted(precision: int, scale: int) -> pa.DataType:
    """Returns the type that keeps the integral digits and drops fractional ones, down to six."""
    if precision <= MAX_PRECISION:
        return pa.decimal128(precision, scale)
    digits = precision - scale
    return pa.decimal128(MAX_PRECISION, max(MAX_PRECISION - digits, min(scale, MIN_ADJUSTED_SCALE)))


def of_integer(dtype: pa.DataType) -> pa.DataType | None:
    """Returns the decimal that can represent every value of an integer type; None for other types."""
    digits = _DIGITS.get(dtype)
    return pa.decimal128(digits, 0) if digits else None


def of_literal(text: str) -> pa.DataType:
    """Returns the narrowest decimal of a literal such as ``12`` or ``0.050``."""
    whole, _, fraction = text.partition(".")
    whole = whole.lstrip("0")
    return bounded(max(len(whole) + len(fraction), 1), len(fraction))


def union(a: pa.DataType, b: pa.DataType) -> pa.DataType:
    """Returns the decimal that can represent the values of both: the result of CASE, COALESCE and UNION."""
    scale, digits = max(a.scale, b.scale), max(a.precision - a.scale, b.precision - b.scale)
    # What does not fit is removed from the fraction.
    return pa.decimal128(min(digits + scale, MAX_PRECISION), min(scale, MAX_PRECISION - digits))


def add(a: pa.DataType, b: pa.DataType) -> pa.DataType:
    scale = max(a.scale, b.scale)
    return adjusted(max(a.precision - a.scale, b.precision - b.scale) + scale + 1, scale)


def multiply(a: pa.DataType, b: pa.DataType) -> pa.DataType:
    return adjusted(a.precision + b.precision + 1, a.scale + b.scale)


def divide(a: pa.DataType, b: pa.DataType) -> pa.DataType:
    scale = max(MIN_ADJUSTED_SCALE, a.scale + b.precision + 1)
    return adjusted(a.precision - a.scale + b.scale + scale, scale)


def modulo(a: pa.DataType, b: pa.DataType) -> pa.DataType:
    scale = max(a.scale, b.scale)
    return adjusted(min(a.precision - a.scale, b.precision - b.scale) + scale, scale)


def total(a: pa.DataType) -> pa.DataType:
    """Returns the type of SUM."""
    return bounded(a.precision + 10, a.scale)


def mean(a: pa.DataType) -> pa.DataType:
    """Returns the type of AVG."""
    return bounded(a.precision + 4, a.scale + 4)
