"""Traces outputs of a query back to the columns of the stream that it reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlglot import exp

from millpond.sql.grouping import contains_window, is_aggregated
from millpond.sql.materialized_view import changing_functions
from millpond.sql.resolve import Input, Resolved
from millpond.sql.running_queries import from_items


def over_stream(resolved: Resolved, name: str, stream: Input) -> exp.Expr | None:
    """Returns what the output ``name`` is, as an expression over columns of the stream alone; None if it is anything
    else: a column of a table, a subquery, a function whose value changes.
    """
    ctes = {cte.alias.lower(): cte for cte in resolved.expression.find_all(exp.CTE)}
    found = _Lineage(stream, ctes).output(resolved.expression, name, resolved.schema.names)
    if found is None or found.find(exp.Query) or any(changing_functions(found)):
        return None
    return found


class _Lineage:
    def __init__(self, stream: Input, ctes: Mapping[str, exp.CTE]):
        self._stream = stream
        self._ctes = ctes

    def output(self, query: exp.Expr, name: str, names: Sequence[str] = ()) -> exp.Expr | None:
        """Returns an output of a query whose outputs may have other ``names``."""
        while isinstance(query, exp.Subquery):
            query = query.this
        if not isinstance(query, exp.Select) or is_aggregated(query):
            return None
        named = names or [p.alias_or_name for p in query.expressions]
        place = next((i for i, n in enumerate(named) if n.lower() == name.lower()), None)
        return None if place is None else self._traced(query.expressions[place].unalias(), query)

    def _traced(self, node: exp.Expr, select: exp.Select) -> exp.Expr | None:
        """Returns the expression with each of its columns replaced by its expression over the stream."""
        if node.find(exp.Query) or contains_window(node):
            return None
        if isinstance(node, exp.Column):
            return self._origin(node, select)
        tree = node.copy()
        for column in list(tree.find_all(exp.Column)):
            found = self._origin(column, select)
            if found is None:
                return None
            column.replace(found)
        return tree

    def _origin(self, column: exp.Column, select: exp.Select) -> exp.Expr | None:
        item = next(
            (i for i, _ in from_items(select) if i.alias_or_name.lower() == column.table.lower()), None
        )
        if isinstance(item, exp.Table) and item.name == self._stream.view:
            found = column.copy()
            found.set("table", exp.to_identifier(self._stream.alias, quoted=True))
            return found
        inner = self._ctes.get(item.name.lower()) if isinstance(item, exp.Table) else item
        if item is None or inner is None:
            return None
        names = _names(item) or _names(inner)
        value = self.output(inner.this, column.name, names)
        return None if value is None else exp.Paren(this=value)


def _names(item: exp.Expr) -> list[str]:
    """Returns the names that an alias gives to the columns of a subquery."""
    alias = item.args.get("alias")
    return [c.name for c in alias.columns] if isinstance(alias, exp.TableAlias) else []
