"""Defines a typing rule, and the small rules that most functions use."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
from sqlglot import exp

from millpond.errors import TypeMismatch
from millpond.types import type_name

Of = Callable[[exp.Expr | None], "pa.DataType | None"]
Rule = Callable[[exp.Expr, Of], "pa.DataType | None"]


def operands(node: exp.Expr) -> Iterator[exp.Expr]:
    """Yields the operands of a node, in order, without clauses such as OVER or the type of a CAST."""
    for value in node.args.values():
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, exp.Expr) and not isinstance(item, exp.Var | exp.DataType | exp.Identifier):
                yield item


def visit(node: exp.Expr, of: Of) -> None:
    """Types the operands to find their errors."""
    for item in operands(node):
        of(item)


def always(dtype: pa.DataType) -> Rule:
    """Returns a rule whose result type does not depend on the operands."""

    def rule(node: exp.Expr, of: Of) -> pa.DataType | None:
        visit(node, of)
        return dtype

    return rule


def like_argument(key: str = "this") -> Rule:
    """Returns a rule whose result type is that of one operand."""

    def rule(node: exp.Expr, of: Of) -> pa.DataType | None:
        visit(node, of)
        return of(node.args.get(key))

    return rule


def mismatch(what: str, *types: pa.DataType, hint: str | None = None) -> TypeMismatch:
    """Returns the error for a function or operator that does not support these types."""
    return TypeMismatch(f"{what} does not take {' and '.join(type_name(t) for t in types)}", hint=hint)
