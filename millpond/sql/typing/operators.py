"""Derives result types of operators and of the conditional expressions."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
from sqlglot import exp

from millpond.sql.nodes import LETTER
from millpond.sql.typing import decimals
from millpond.sql.typing.coercion import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    DURATION,
    FLOATS,
    INT,
    NULL,
    STRING,
    is_decimal,
    is_integer,
    is_list,
    is_map,
    is_nested,
    is_numeric,
    is_struct,
    list_of,
    meet,
)
from millpond.sql.typing.conditionals import branches, compare, compare_exactly
from millpond.sql.typing.implicit import castable
from millpond.sql.typing.literals import (
    DAY_UNITS,
    YEAR_MONTH_UNITS,
    interval_type,
    interval_units,
    literal_type,
    named_type,
    number_type,
)
from millpond.sql.typing.rule import Of, Rule, always, like_argument, mismatch, visit
from millpond.types import TIMESTAMP, TIMESTAMP_NTZ, type_name

SYMBOLS: dict[type[exp.Expr], str] = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.Mod: "%",
    exp.IntDiv: "DIV",
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.NullSafeEQ: "<=>",
    exp.NullSafeNEQ: "IS DISTINCT FROM",
    exp.And: "AND",
    exp.Or: "OR",
    exp.Not: "NOT",
    exp.BitwiseAnd: "&",
    exp.BitwiseOr: "|",
    exp.BitwiseXor: "^",
}

_DECIMAL: dict[type[exp.Expr], Callable[[pa.DataType, pa.DataType], pa.DataType]] = {
    exp.Add: decimals.add,
    exp.Sub: decimals.add,
    exp.Mul: decimals.multiply,
    exp.Div: decimals.divide,
    exp.Mod: decimals.modulo,
}
_TIMES = (TIMESTAMP, TIMESTAMP_NTZ)


def plain_number(node: exp.Expr) -> str | None:
    """Returns the text of a number literal, with its sign."""
    if isinstance(node, exp.Paren):
        return plain_number(node.this)
    if isinstance(node, exp.Neg) and isinstance(node.this, exp.Literal) and not node.this.is_string:
        return f"-{node.this.this}"
    if isinstance(node, exp.Literal) and not node.is_string:
        return str(node.this)
    return None


def decimal_operand(node: exp.Expr, dtype: pa.DataType) -> pa.DataType | None:
    """Returns the decimal that an operand is treated as next to a decimal: an integer literal by its digits, except a
    TINYINT.
    """
    if is_decimal(dtype):
        return dtype
    number = plain_number(node.this if node.meta.get(LETTER) in ("S", "L") else node)
    if number is not None and is_integer(dtype):
        return decimals.of_literal(number.lstrip("-"))
    return decimals.of_integer(dtype)


def arithmetic(node: exp.Expr, of: Of) -> pa.DataType | None:
    left, right = node.this, node.expression
    try:
        moved = _date_arithmetic(node, of)
    except _Unknown:
        return None
    if moved is not None:
        return moved
    a, b = of(left), of(right)
    if a is None or b is None:
        return None
    if _scales_interval(node, a, b):
        return DURATION
    common = numeric_operands(node, a, b)
    divides = isinstance(node, exp.Div)
    if is_decimal(common) and not (divides and a == NULL):
        return _DECIMAL[type(node)](*_decimal_operands(left, a, right, b))
    return DOUBLE if divides or common == NULL else common


def _scales_interval(node: exp.Expr, a: pa.DataType, b: pa.DataType) -> bool:
    """Returns whether an interval is multiplied or divided by a number."""
    number = b if a == DURATION else a if b == DURATION and isinstance(node, exp.Mul) else None
    scales = isinstance(node, exp.Mul | exp.Div) and number is not None and number != DURATION
    return scales and number is not None and (is_numeric(number) or number in (NULL, STRING))


def _decimal_operands(left: exp.Expr, a: pa.DataType, right: exp.Expr, b: pa.DataType) -> list[pa.DataType]:
    if NULL in (a, b):
        a, b = (b, b) if a == NULL else (a, a)
    found = [decimal_operand(left, a), decimal_operand(right, b)]
    return [t for t in found if t is not None]


def numeric_operands(node: exp.Expr, a: pa.DataType, b: pa.DataType) -> pa.DataType:
    """Returns the type that both operands of an arithmetic operator are cast to; for decimals, any decimal."""
    common = meet(a, b)
    if common is None or not (is_numeric(common) or common == NULL):
        raise mismatch(f'"{SYMBOLS[type(node)]}"', a, b)
    return common


class _Unknown(Exception):
    """Signals that only Spark knows the type."""


def _date_arithmetic(node: exp.Expr, of: Of) -> pa.DataType | None:
    """Types dates and times plus and minus intervals, days, and one another; None for other operands."""
    if not isinstance(node, exp.Add | exp.Sub):
        return None
    left, right = node.this, node.expression
    if isinstance(node, exp.Add) and interval_units(left) is not None and interval_units(right) is None:
        left, right = right, left
    units = interval_units(right)
    if units is not None and interval_units(left) is None:
        a = of(left)
        if a == DATE:
            return DATE if units <= DAY_UNITS | YEAR_MONTH_UNITS else TIMESTAMP
        if a in (DURATION, NULL) and not units & YEAR_MONTH_UNITS:
            return DURATION
        if a == STRING:
            raise _Unknown  # a text again, as Spark writes the time
        return a if a in _TIMES else None
    if units is not None:
        return interval_type(node)
    a, b = of(left), of(right)
    times = [t for t in (a, b) if t in (DATE, *_TIMES)]
    if isinstance(node, exp.Sub) and times and all(t in (STRING, NULL, *times) for t in (a, b)):
        return DURATION
    if times and DURATION in (a, b) and (isinstance(node, exp.Add) or b == DURATION):
        return TIMESTAMP if times[0] == DATE else times[0]
    if DURATION in (a, b) and all(t in (DURATION, NULL) for t in (a, b)):
        return DURATION
    if DURATION in (a, b) and STRING in (a, b):
        raise _Unknown
    if times and NULL in (a, b):
        return TIMESTAMP if times[0] == DATE else times[0]
    if a == DATE and b is not None and is_integer(b) and b != BIGINT:
        return DATE
    if isinstance(node, exp.Add) and b == DATE and a is not None and is_integer(a) and a != BIGINT:
        return DATE
    return None


def integer_division(node: exp.Expr, of: Of) -> pa.DataType | None:
    a, b = of(node.this), of(node.expression)
    if a is None or b is None:
        return None
    if DURATION in (a, b) and all(t in (DURATION, NULL) for t in (a, b)):
        return BIGINT
    common = numeric_operands(node, a, b)
    if common in FLOATS:
        raise mismatch('"DIV"', a, b)
    return BIGINT


def negation(node: exp.Expr, of: Of) -> pa.DataType | None:
    number = plain_number(node)
    if number is not None:
        return number_type(number)
    a = of(node.this)
    if a is None or is_numeric(a) or a == DURATION:
        return a
    if a in (STRING, NULL):
        return DOUBLE
    raise mismatch('"-"', a)


def bitwise(node: exp.Expr, of: Of) -> pa.DataType | None:
    a, b = of(node.this), of(node.expression)
    if a is None or b is None:
        return None
    common = meet(a, b)
    if common == NULL:
        return INT
    if common is None or not is_integer(common):
        raise mismatch(f'"{SYMBOLS[type(node)]}"', a, b)
    return common


def bitwise_not(node: exp.Expr, of: Of) -> pa.DataType | None:
    a = of(node.this)
    if a is None or is_integer(a):
        return a
    if a == NULL:
        return INT
    raise mismatch('"~"', a)


def comparison(node: exp.Expr, of: Of) -> pa.DataType | None:
    compare_exactly(f'"{SYMBOLS[type(node)]}"', of(node.this), of(node.expression))
    return BOOLEAN


def membership(node: exp.Expr, of: Of) -> pa.DataType | None:
    a = of(node.this)
    for item in node.expressions:
        compare('"IN"', a, of(item))
    query = node.args.get("query")
    if query is not None:
        compare('"IN"', a, of(query))
    return BOOLEAN


def between(node: exp.Expr, of: Of) -> pa.DataType | None:
    a = of(node.this)
    for key in ("low", "high"):
        compare_exactly('"BETWEEN"', a, of(node.args[key]))
    return BOOLEAN


def logical(node: exp.Expr, of: Of) -> pa.DataType | None:
    types = [of(n) for n in (node.this, node.args.get("expression")) if n is not None]
    for a in types:
        alone = a == STRING and BOOLEAN not in types and not isinstance(node, exp.Not)
        if a is not None and (a not in (BOOLEAN, NULL, STRING) or alone):
            raise mismatch(f'"{SYMBOLS[type(node)]}"', a)
    return BOOLEAN


def concatenation(node: exp.Expr, of: Of) -> pa.DataType | None:
    items = node.expressions if isinstance(node, exp.Anonymous) else [node.this, node.expression]
    types = [of(n) for n in items]
    if any(t is None for t in types):
        return None
    known = [t for t in types if t is not None]
    if known and all(t == BINARY for t in known):
        return BINARY
    if any(is_list(t) for t in known):
        return branches("CONCAT", items, of)
    for t in known:
        if is_nested(t):
            raise mismatch("CONCAT", t)
    return STRING


def cast(node: exp.Expr, of: Of) -> pa.DataType | None:
    a, target = of(node.this), named_type(node.args["to"])
    if a is not None and target is not None and not castable(a, target):
        raise mismatch("CAST", a, hint=f"{type_name(a)} cannot be cast to {type_name(target)}")
    return target


def bracket(node: exp.Expr, of: Of) -> pa.DataType | None:
    visit(node, of)
    a = of(node.this)
    if a is None:
        return None
    if is_list(a):
        return a.value_type
    if is_map(a):
        return a.item_type
    if is_struct(a) and isinstance(node.expressions[0], exp.Literal):
        return field_type(a, node.expressions[0].name)
    if a == NULL:
        return None
    raise mismatch('"[ ]"', a)


def dot(node: exp.Expr, of: Of) -> pa.DataType | None:
    a, inner = of(node.this), node.expression
    if a is None or not isinstance(inner, exp.Identifier | exp.Literal):
        return None
    if is_struct(a):
        return field_type(a, inner.name)
    if is_list(a) and is_struct(a.value_type):
        found = field_type(a.value_type, inner.name)
        return None if found is None else list_of(found)
    return a.item_type if is_map(a) else None


def field_type(struct: pa.DataType, name: str) -> pa.DataType | None:
    """Returns the type of a field, ignoring the case of its name."""
    for field in struct:
        if field.name.lower() == name.lower():
            return field.type
    return None


def _literal(node: exp.Expr, of: Of) -> pa.DataType | None:
    return literal_type(node) if isinstance(node, exp.Literal) else None


def _interval(node: exp.Expr, of: Of) -> pa.DataType | None:
    return interval_type(node)


def _is(node: exp.Expr, of: Of) -> pa.DataType | None:
    """Types IS NULL, of any value, and IS TRUE, of a BOOLEAN."""
    a = of(node.this)
    if isinstance(node.expression, exp.Boolean):
        compare('"IS"', a, BOOLEAN)
    return BOOLEAN


RULES: dict[type[exp.Expr], Rule] = {
    exp.Literal: _literal,
    exp.Null: always(NULL),
    exp.Boolean: always(BOOLEAN),
    exp.HexString: always(BINARY),
    exp.Interval: _interval,
    exp.Paren: like_argument(),
    exp.Alias: like_argument(),
    **dict.fromkeys(_DECIMAL, arithmetic),
    exp.IntDiv: integer_division,
    exp.Neg: negation,
    exp.BitwiseAnd: bitwise,
    exp.BitwiseOr: bitwise,
    exp.BitwiseXor: bitwise,
    exp.BitwiseNot: bitwise_not,
    **dict.fromkeys(
        (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.NullSafeNEQ),
        comparison,
    ),
    exp.In: membership,
    exp.Between: between,
    exp.And: logical,
    exp.Or: logical,
    exp.Not: logical,
    exp.Is: _is,
    **dict.fromkeys((exp.Like, exp.ILike, exp.RegexpLike, exp.RegexpILike, exp.Escape), always(BOOLEAN)),
    exp.Exists: always(BOOLEAN),
    exp.DPipe: concatenation,
    exp.Bracket: bracket,
    exp.Dot: dot,
}
