"""Stores what the parts of a resolver share: what is known, what was found, and the mistakes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import pyarrow as pa
from sqlglot import exp

from millpond.errors import Error, NotSupported, Place, SqlError, TypeMismatch
from millpond.sql.catalog import Catalog, Describe
from millpond.sql.functions import known_functions
from millpond.sql.resolve.calls import Locate
from millpond.sql.resolve.mentions import Mentions
from millpond.sql.resolve.model import Input
from millpond.sql.scope import Scope
from millpond.sql.spans import own_span, span_of
from millpond.sql.typing import type_of

if TYPE_CHECKING:
    from millpond.sql.userfunctions import UserFunction

Columns = list[tuple[str, pa.DataType | None]]
ResolveQuery = Callable[[exp.Expr, Scope | None], tuple[exp.Expr, Columns]]


class Context:
    """Represents one text that is resolved against a catalog. ``errors`` and ``inputs`` grow during resolution."""

    def __init__(
        self,
        catalog: Catalog,
        query: ResolveQuery,
        *,
        describe: Describe | None,
        locate: Locate | None,
        functions: Mapping[str, UserFunction],
    ):
        self.catalog = catalog
        self.query = query
        """Resolves a query inside another, and returns its columns."""
        self.describe = describe
        self.locate = locate
        self.user_functions = functions
        self.functions = known_functions() | functions.keys()
        self.errors: list[SqlError | Error] = []
        self.inputs: list[Input] = []
        self.mentions = Mentions(catalog.references, self.inputs)
        self.is_open = False
        """Whether an input has unknown columns; then only certain mistakes are among the errors."""
        self.aliases: set[str] = set()
        """The aliases of the inputs of a statement, in lower case."""

    def place(self, node: exp.Expr, *, own: bool = False) -> Place | None:
        span = own_span(node) if own else span_of(node)
        return self.locate(*span) if span and self.locate else None

    def part(self, node: exp.Expr, at: int) -> Place | None:
        """Returns the place of a part of a name with dots."""
        parts = node.parts if isinstance(node, exp.Column) else []
        return self.place(parts[at] if at < len(parts) else node)

    def note(self, error: SqlError, place: Place | None) -> None:
        """Adds an error with its place."""
        error.place = error.place or place
        self.errors.append(error)

    def add(self, error: SqlError, node: exp.Expr) -> None:
        """Adds an error at the place of a node."""
        self.note(error, self.place(node))

    def refuse_others(self, node: exp.Expr, known: frozenset[str], where: str) -> None:
        """Refuses a clause that would otherwise be ignored."""
        for key, value in node.args.items():
            if value and key not in known:
                clause = key.strip("_").removesuffix("s").upper()
                self.add(NotSupported(f"{clause} {where} is not supported"), node)

    def type_of(self, node: exp.Expr) -> pa.DataType | None:
        """Returns the type of a resolved expression; None, and an error, if its parts are incompatible."""
        try:
            return type_of(node)
        except TypeMismatch as error:
            if not any(e.message == error.message for e in self.errors):
                error.place = error.place or self.place(node)
                self.errors.append(error)
            node.meta["dtype"] = None
            return None

    def unique(self, alias: str) -> str:
        """Returns the alias, or a similar one that no other input of the statement has: a name in the resolved query
        then means one input at any depth.
        """
        name, n = alias, 1
        while name.lower() in self.aliases:
            n += 1
            name = f"{alias}_{n}"
        self.aliases.add(name.lower())
        return name
