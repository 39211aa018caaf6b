"""Notes where a text names columns and tables, for those who have to change the names in it."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from millpond.sql.catalog import Relation
from millpond.sql.references import ColumnReference, References, StarColumn, StarReference, TableReference
from millpond.sql.resolve.model import Input
from millpond.sql.scope import Scope, Visible
from millpond.sql.spans import own_span, span_of


class Mentions:
    """Notes names in ``into``; nothing if that is None, or inside the query of a named view, which is another text."""

    def __init__(self, into: References | None, inputs: list[Input]):
        self._into = into
        self._inputs = inputs
        self._views = 0

    def enter_view(self) -> None:
        self._views += 1

    def leave_view(self) -> None:
        self._views -= 1

    def column(self, name: exp.Expr, value: exp.Expr, scope: Scope, *, qualified: bool) -> None:
        """Notes that a name means the column ``value`` of the inputs in a scope."""
        if self._into is None or self._views or (span := own_span(name)) is None:
            return
        owner = ""
        if not qualified and len(scope.inputs) > 1:
            owner = next((c.alias for c in scope.columns if c.value == value), "")
        table, column = self._origin(value)
        self._into.columns[span[0]] = ColumnReference(*span, table, column, owner)

    def star(
        self, projection: exp.Expr, star: exp.Star, columns: Sequence[Visible], names: Sequence[str]
    ) -> None:
        """Notes the columns that a star means, and the names that they get."""
        at, span = own_span(star), span_of(projection)
        if self._into is None or self._views or at is None or span is None:
            return
        found = [StarColumn(*self._origin(c.value), c.alias, n) for c, n in zip(columns, names, strict=True)]
        replaces = bool(star.args.get("replace"))
        start = min(span[0], at[0])
        self._into.stars[start] = StarReference(start, at[0], tuple(found), replaces)

    def table(self, node: exp.Table, relation: Relation) -> None:
        if self._into is None or self._views or (span := own_span(node.this)) is None:
            return
        self._into.tables[span[0]] = TableReference(*span, relation.name.lower(), bool(node.alias))

    def _origin(self, value: exp.Expr) -> tuple[str | None, str]:
        if not isinstance(value, exp.Column):
            return None, ""
        found = next((i for i in self._inputs if i.alias.lower() == value.table.lower()), None)
        name = None if found is None else (found.relation.rows_of or found.relation.name).lower()
        return name, value.name.lower()
