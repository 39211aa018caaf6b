"""Parses numbers with a letter for their type: ``1L``, ``-128Y``, ``2.5F``, ``1.50BD``."""

from __future__ import annotations

from decimal import Context, Decimal, InvalidOperation
from typing import TYPE_CHECKING

from sqlglot import exp
from sqlglot.tokens import TokenType

from millpond.sql.nodes import LETTER

if TYPE_CHECKING:
    from millpond.sql.parser.base import BaseParser

_INTEGERS = {"Y": ("TINYINT", 7), "S": ("SMALLINT", 15), "L": ("BIGINT", 63)}
_FLOATS = {
    "F": ("FLOAT", Decimal("3.4028234663852886e38")),
    "D": ("DOUBLE", Decimal("1.7976931348623157e308")),
}
_DIGITS = 38


def suffixed(parser: BaseParser, *, negative: bool) -> exp.Expr | None:
    """Returns the number at this point, if it has a letter; a sign before it is part of it."""
    number, colons, kind = (parser.peek(i) for i in range(3))
    if not number or not colons or not kind or colons.token_type != TokenType.DCOLON:
        return None
    text = parser.sql[number.start : kind.end + 1]
    suffix = "BD" if text[-2:].upper() == "BD" else text[-1:].upper()
    # A tokenizer that knows the letters turns 1L into the tokens of 1::BIGINT; the colons are not in the text.
    if ":" in text or suffix not in (*_INTEGERS, *_FLOATS, "BD"):
        return None
    sign, digits = "-" if negative else "", text[: -len(suffix)]
    found = _typed(sign + digits, suffix)
    if found is None:
        parser.fail(f'"{sign}{text}" is out of the range of its type', number, until=kind)
    parser.skip(3)
    return found


def _typed(text: str, suffix: str) -> exp.Expr | None:
    try:
        value = Decimal(text)
    except InvalidOperation:
        return None
    if suffix in _INTEGERS:
        name, bits = _INTEGERS[suffix]
        fits = value == value.to_integral_value() and -(2**bits) <= value < 2**bits
        if not fits:
            return None
        found = _cast(exp.Literal.number(abs(int(value))), name, value < 0)
        found.meta[LETTER] = suffix
        return found
    if suffix in _FLOATS:
        name, most = _FLOATS[suffix]
        return _cast(exp.Literal.string(text), name, False) if abs(value) <= most else None
    exponent = int(value.as_tuple().exponent)
    if exponent > 0:
        if value.adjusted() >= _DIGITS:
            return None
        value = value.quantize(Decimal(1), context=Context(prec=_DIGITS))
        exponent = 0
    precision = max(len(value.as_tuple().digits), -exponent)
    if precision > _DIGITS:
        return None
    return _cast(exp.Literal.string(f"{value:f}"), f"DECIMAL({precision}, {-exponent})", False)


def _cast(value: exp.Expr, name: str, negative: bool) -> exp.Expr:
    return exp.Cast(
        this=exp.Neg(this=value) if negative else value, to=exp.DataType.build(name, dialect="spark")
    )
