"""Renders expressions by walking over them. Every entry returns SQL whose DuckDB type is Spark's result type."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pyarrow as pa
from sqlglot import exp

from millpond import allowance
from millpond.sql.render.duckdb.casts import cast
from millpond.sql.render.duckdb.names import Unrenderable
from millpond.sql.render.duckdb.raising import guards
from millpond.sql.render.duckdb.timestrings import written
from millpond.sql.typing import type_of
from millpond.sql.typing.signatures import signatures

if TYPE_CHECKING:
    from millpond.sql.userfunctions import UserFunction

MAX_LENGTH = 1_000_000
NEGATED = (exp.Like, exp.ILike, exp.RegexpLike)
"""Nodes with their own NOT, which their entries handle."""


class Expressions:
    """Renders expressions, each by its entry from ``entry_of``; ``query`` renders the queries inside."""

    def __init__(self, query: Callable[[exp.Expr], str], entry_of: Callable[[exp.Expr], Entry | None]):
        self.query = query
        self._entry_of = entry_of
        self._rendered: dict[int, tuple[exp.Expr, str]] = {}
        """By the id of a node, which is kept alive: an entry that uses an operand several times asks for it
        each time.
        """

    def sql(self, node: exp.Expr) -> str:
        """Renders the expression, in its own type."""
        known = self._rendered.get(id(node))
        if known is None:
            known = self._rendered[id(node)] = (node, self._render(node))
        return known[1]

    def _render(self, node: exp.Expr) -> str:
        allowance.check()
        if _has_interval(self.type(node)):
            raise Unrenderable("an interval as a value")
        own: UserFunction | None = node.meta.get("function")
        if own is not None:
            given = zip(node.expressions, own.arguments, strict=True)
            return f"{own.key}({', '.join(self.to(a, dtype) for a, dtype in given)})"
        entry = self._entry_of(node)
        if entry is None or (node.args.get("negate") and not isinstance(node, NEGATED)):
            raise Unrenderable(f"{_name(node)} has no entry")
        found = self._guarded(node, entry(self, node))
        if len(found) > MAX_LENGTH:
            raise Unrenderable("the expression becomes too long")
        return found

    def _guarded(self, node: exp.Expr, found: str) -> str:
        """Guards operands. DuckDB evaluates all operands of a row; Spark stops at a NULL, and what follows it
        cannot fail.
        """
        tests = "".join(f"WHEN {self.sql(o)} IS NULL THEN NULL " for o in guards(node))
        return f"(CASE {tests}ELSE {found} END)" if tests else found

    def type(self, node: exp.Expr) -> pa.DataType:
        """Returns the expression's type, which must be known."""
        found = type_of(node)
        if found is None:
            raise Unrenderable(f"the type of {_name(node)} is not known")
        return found

    def to(self, node: exp.Expr, dtype: pa.DataType) -> str:
        """Renders the expression, cast to another type."""
        if isinstance(node, exp.Literal) and node.is_string:
            found = written(node.name, dtype)
            if found is not None:
                return found
        return cast(self.sql(node), self.type(node), dtype)

    def given(self, node: exp.Expr) -> list[str]:
        """Renders the arguments of a call, cast to the types of the function's parameters."""
        signature = signatures().get(str(node.this).upper())
        types = [self.type(argument) for argument in node.expressions]
        if signature is None:
            raise Unrenderable(f"the parameters of {node.name.upper()} are not known")
        bound = signature.bind(types)
        return [self.to(argument, dtype) for argument, dtype in zip(node.expressions, bound, strict=True)]


Entry = Callable[[Expressions, exp.Expr], str]


def _has_interval(dtype: pa.DataType) -> bool:
    """Returns whether a type contains an interval, which DuckDB returns as another Arrow type."""
    if dtype.num_fields:
        return any(_has_interval(dtype.field(i).type) for i in range(dtype.num_fields))
    return bool(dtype == pa.duration("us"))


def _name(node: exp.Expr) -> str:
    return str(node.this if isinstance(node, exp.Anonymous) else node.key).upper()
