"""Moves subqueries next to an aggregate to an outer query, which evaluates them on the groups.

`SELECT g FROM t GROUP BY g HAVING EXISTS (SELECT 1 FROM u WHERE u.n = SUM(t.x))` becomes a WHERE over the groups and
their sums. Neither evaluator supports every such subquery in its original place.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from millpond.sql.grouping import (
    clauses_of,
    contains_window,
    grouping_keys,
    is_aggregate,
    is_aggregated,
    without_filter,
)
from millpond.sql.typing import type_of

_SETS = (exp.Rollup, exp.Cube, exp.GroupingSets)


def groups_first(tree: exp.Expr) -> exp.Expr:
    return _apart(tree, _needs_groups, "__g")


def groups_before_windows(tree: exp.Expr) -> exp.Expr:
    """Moves window functions next to an aggregate to an outer query over the groups."""
    return _apart(tree, lambda select: any(contains_window(c) for c in clauses_of(select)), "__w")


def _apart(tree: exp.Expr, needed: Callable[[exp.Select], bool], alias: str) -> exp.Expr:
    number = 0
    for select in reversed(list(tree.find_all(exp.Select))):
        if is_aggregated(select) and needed(select):
            made = _Groups(select, f"{alias}{number}").query()
            number += 1
            if select is tree:
                tree = made
            else:
                select.replace(made)
    return tree


def _needs_groups(select: exp.Select) -> bool:
    """Returns whether a clause has a subquery, or what Spark does not find next to ROLLUP, CUBE and GROUPING SETS."""
    group = select.args.get("group")
    sets = group is not None and any(isinstance(e, _SETS) for e in group.expressions)
    if sets and (select.args.get("having") or select.args.get("order")):
        return True
    return any(_has_query(c) for c in clauses_of(select))


def _has_query(node: exp.Expr) -> bool:
    """Returns whether there is a subquery that sees groups; one inside an aggregate sees rows."""
    if is_aggregate(without_filter(node)):
        return False
    return any(isinstance(c, exp.Query) or _has_query(c) for c in node.iter_expressions())


class _Groups:
    def __init__(self, select: exp.Select, alias: str):
        self._select = select
        self._alias = alias
        self._values = list(dict.fromkeys(grouping_keys(select)))

    def query(self) -> exp.Select:
        select = self._select
        expressions = [self._named(e) for e in select.expressions]
        outside: dict[str, exp.Expr | None] = {}
        for key, clause in (("where", "having"), ("qualify", "qualify"), ("order", "order")):
            found = select.args.get(clause)
            if found is None:
                continue
            moved = self._moved(found)
            outside[key] = exp.Where(this=moved.this) if key == "where" else moved
        inner = exp.Select(
            expressions=[exp.alias_(v.copy(), f"v{i}", quoted=True) for i, v in enumerate(self._values)]
        )
        for key in ("from_", "joins", "laterals", "where", "group"):
            inner.set(key, select.args.get(key))
        alias = exp.TableAlias(this=exp.to_identifier(self._alias, quoted=True))
        made = exp.Select(
            expressions=expressions, from_=exp.From(this=exp.Subquery(this=inner, alias=alias)), **outside
        )
        for key in ("with_", "distinct", "limit", "offset"):
            made.set(key, select.args.get(key))
        made.meta.update(select.meta)
        return made

    def _named(self, projection: exp.Expr) -> exp.Expr:
        name = exp.to_identifier(projection.alias_or_name, quoted=True)
        return exp.Alias(this=self._moved(projection.unalias()), alias=name)

    def _moved(self, node: exp.Expr, *, within: bool = False) -> exp.Expr:
        """Returns the expression over the groups; ``within`` a subquery, moves only what belongs to the query
        that groups.
        """
        if node.meta.get("outer") or self._is_own(node, within) or self._is_known(node, within):
            return self._column(node)
        made = node.copy()
        for key, value in list(node.args.items()):
            if isinstance(value, exp.Expr):
                made.set(key, self._moved(value, within=within or isinstance(value, exp.Query)))
            elif isinstance(value, list):
                made.set(
                    key,
                    [
                        self._moved(v, within=within or isinstance(v, exp.Query))
                        if isinstance(v, exp.Expr)
                        else v
                        for v in value
                    ],
                )
        return made

    def _is_known(self, node: exp.Expr, within: bool) -> bool:
        """Returns whether it is a value of the groups. In a subquery, `COUNT(*)` and constants are its own; before
        OVER, `COUNT(*)` counts groups.
        """
        if isinstance(node.parent, exp.Window) and node.arg_key == "this":
            return False
        if within and (is_aggregate(without_filter(node)) or node.find(exp.Column) is None):
            return False
        return node in self._values

    def _is_own(self, node: exp.Expr, within: bool) -> bool:
        return not within and is_aggregate(without_filter(node))

    def _column(self, node: exp.Expr) -> exp.Column:
        if node not in self._values:
            self._values.append(node)
        made = exp.Column(
            this=exp.to_identifier(f"v{self._values.index(node)}", quoted=True),
            table=exp.to_identifier(self._alias, quoted=True),
        )
        made.meta["dtype"] = type_of(node)
        return made
