"""What a typing rule is, and the small rules that most functions are made of."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
from sqlglot import exp

from millpond.errors import TypeMismatch
from millpond.types import type_name

Of = Callable[[exp.Expr | None], "pa.DataType | None"]
Rule = Callable[[exp.Expr, Of], "pa.DataType | None"]


def operands(node: exp.Expr) -> Iterator[exp.Expr]:
    """The expressions a node is applied to, in order, without clauses such as OVER or the type of a CAST."""
    for value in node.args.values():
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, exp.Expr) and not isinstance(item, exp.Var | exp.DataType | exp.Identifier):
                yield item


def visit(node: exp.Expr, of: Of) -> None:
    """Types the operands for their errors."""
    for item in operands(node):
        of(item)


def always(dtype: pa.DataType) -> Rule:
    """The result type does not hang on the operands."""

    def rule(node: exp.Expr, of: Of) -> pa.DataType | None:
        visit(node, of)
        return dtype

    return rule


def like_argument(key: str = "this") -> Rule:
    """The result type is that of one operand."""

    def rule(node: exp.Expr, of: Of) -> pa.DataType | None:
        visit(node, of)
        return of(node.args.get(key))

    return rule


def mismatch(what: str, *types: pa.DataType, hint: str | None = None) -> TypeMismatch:
    """The error of a function or operator that is not there for these types."""
    return TypeMismatch(f"{what} does not take {' and '.join(type_name(t) for t in types)}", hint=hint)
