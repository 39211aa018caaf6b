"""The walk over expressions. Every entry answers SQL whose DuckDB type is that of Spark's result type."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pyarrow as pa
from sqlglot import exp

from millpond import allowance
from millpond.sql.render.duckdb.casts import cast
from millpond.sql.render.duckdb.names import Unrenderable
from millpond.sql.typing import type_of

if TYPE_CHECKING:
    from millpond.sql.userfunctions import UserFunction

MAX_LENGTH = 1_000_000
NEGATED = (exp.Like, exp.ILike, exp.RegexpLike)
"""Nodes with a NOT of their own, which their entries know of."""


class Expressions:
    """Renders expressions; ``query`` renders the queries inside of them."""

    def __init__(self, query: Callable[[exp.Expr], str]):
        self.query = query

    def sql(self, node: exp.Expr) -> str:
        """The expression, in its own type."""
        from millpond.sql.render.duckdb.entries import ENTRIES, NAMED

        allowance.check()
        self.type(node)
        own: UserFunction | None = node.meta.get("function")
        if own is not None:
            given = zip(node.expressions, own.arguments, strict=True)
            return f"{own.key}({', '.join(self.to(a, dtype) for a, dtype in given)})"
        if isinstance(node, exp.Anonymous):
            entry = NAMED.get(str(node.this).upper())
        else:
            entry = ENTRIES.get(type(node))
        if entry is None or (node.args.get("negate") and not isinstance(node, NEGATED)):
            name = node.this if isinstance(node, exp.Anonymous) else node.key
            raise Unrenderable(f"{str(name).upper()} has no entry")
        found = entry(self, node)
        if len(found) > MAX_LENGTH:
            raise Unrenderable("the expression becomes too long")
        return found

    def type(self, node: exp.Expr) -> pa.DataType:
        """The expression's type, which must be known."""
        found = type_of(node)
        if found is None:
            raise Unrenderable(f"the type of {node.key.upper()} is not known")
        return found

    def to(self, node: exp.Expr, dtype: pa.DataType) -> str:
        """The expression, brought to another type."""
        return cast(self.sql(node), self.type(node), dtype)


Entry = Callable[[Expressions, exp.Expr], str]
