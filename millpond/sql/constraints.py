"""Reads the CHECK constraints of tables that other engines write too, as far as all of them mean the same by it."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from sqlglot import exp

from millpond.errors import NotSupported
from millpond.sql.catalog import Relation
from millpond.sql.filters import Filter, parse_filter, resolve_filter
from millpond.sql.typing import type_of

_COMPARISONS = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ)
_NUMERIC = (exp.Add, exp.Sub, exp.Mul, exp.Neg)
_OTHERS = (
    exp.Column, exp.Identifier, exp.Boolean, exp.Null, exp.Paren, exp.And, exp.Or, exp.Not, exp.Is, exp.In,
    exp.Between, exp.Like, exp.DataType,
)  # fmt: skip
_OF_TEXT = frozenset({"length", "char_length", "character_length", "upper", "lower"})


def broken_rows(relation: Relation, text: str) -> Filter:
    """Returns the condition for the rows that break a constraint: those for which it is false or NULL. Raises an error
    if the constraint is none of this table, or engines may mean different things by it.
    """
    found = parse_filter(relation, text)
    where = resolve_filter(relation, found).expression.args["where"].this
    for node in (*_unknown(found.tree), *_ambiguous(where)):
        raise NotSupported(f"engines may mean different things by {node.sql('spark')}")
    met = exp.Coalesce(this=exp.Paren(this=found.tree), expressions=[exp.false()])
    return Filter(text, exp.Not(this=met))


def _unknown(tree: exp.Expr) -> Iterator[exp.Expr]:
    for node in tree.walk():
        match node:
            case exp.Anonymous():
                known = node.name.lower() in _OF_TEXT
            case exp.Literal():
                known = "\\" not in node.name
            case exp.Cast():
                known = node.to.this == exp.DType.DATE and isinstance(node.this, exp.Literal)
            case exp.Trim():
                known = all(name == "this" or not value for name, value in node.args.items())
            case _:
                known = isinstance(node, (*_COMPARISONS, *_NUMERIC, *_OTHERS))
        if not known:
            yield node


def _ambiguous(where: exp.Expr) -> Iterator[exp.Expr]:
    """Yields what converts a value: each engine does that, and compares decimals, in its own way."""
    for node in where.walk():
        if isinstance(node, _COMPARISONS):
            fine = _alike(node.this, node.expression) or _with_zero(node.this, node.expression)
        elif isinstance(node, exp.Between):
            fine = _alike(node.this, node.args["low"], node.args["high"])
        elif isinstance(node, exp.In):
            fine = _alike(node.this, *node.expressions)
        elif isinstance(node, _NUMERIC):
            operands = [o for o in (node.this, node.args.get("expression")) if o is not None]
            fine = all(_kind(o) == "number" for o in operands)
        elif isinstance(node, exp.Trim | exp.Like):
            fine = _kind(node.this) == "text"
        elif isinstance(node, exp.Anonymous):
            fine = _kind(node.expressions[0]) == "text"
        else:
            continue
        if not fine:
            yield node


def _alike(*operands: exp.Expr) -> bool:
    kinds = {_kind(operand) for operand in operands}
    return "decimal" not in kinds and (len(kinds) == 1 or kinds == {"date", "text"})


def _with_zero(one: exp.Expr, other: exp.Expr) -> bool:
    """Returns whether a column of decimals is compared with 0."""
    column, zero = (one, other) if isinstance(one, exp.Column) else (other, one)
    return isinstance(column, exp.Column) and _kind(column) == "decimal" and zero == exp.Literal.number(0)


def _kind(node: exp.Expr) -> str:
    if isinstance(node, exp.Literal):
        return "text" if node.is_string else "number"
    if isinstance(node, exp.Neg | exp.Paren):
        return _kind(node.this)
    dtype, t = type_of(node), pa.types
    if dtype is None:
        return "unknown"
    if t.is_integer(dtype) or t.is_floating(dtype):
        return "number"
    if t.is_string(dtype):
        return "text"
    return "decimal" if t.is_decimal(dtype) else "date" if t.is_date(dtype) else str(dtype)
