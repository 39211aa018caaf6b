"""Finds the columns that divide a materialized view, so that a change affects only a part of it.

If every input row that a result row depends on has columns that equal some columns of that row, these columns divide
the result into parts. A change of an input then changes only the parts of its old and new rows. Any other query is
evaluated again and compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pyarrow as pa
from sqlglot import exp

from millpond.plan.plans import Parts, Target, ViewPlan
from millpond.sql.checked import CheckedRunnable, CheckedTableAs
from millpond.sql.conjuncts import compared_alike, conjuncts
from millpond.sql.grouping import contains_window, is_aggregated
from millpond.sql.incremental.order_limit import in_total_order
from millpond.sql.incremental.tree import keep_by_changes
from millpond.sql.resolve import Input, Resolved
from millpond.sql.rewrite import rewrite
from millpond.sql.rewrite.exists_list import exists_list
from millpond.sql.running_queries import from_items

Origin = Mapping[str, str]
"""The column of each input, by view, that an output equals."""
Node = tuple[str, str]
"""Alias and column, in lower case."""

_MOST_COLUMNS = 3
_BARRED = ("limit", "offset", "qualify", "laterals", "with_", "pivots", "windows")


def plan_view(checked: CheckedRunnable, name: str, target: Target) -> ViewPlan:
    options = checked.table_options if isinstance(checked, CheckedTableAs) else {}
    resolved = replace(checked.resolved, expression=rewrite(checked.resolved.expression, (exists_list,)))
    ordered = in_total_order(resolved)
    by_changes = keep_by_changes(ordered)
    query = resolved if by_changes.root is None else ordered
    return ViewPlan(
        name,
        checked.statement.text,
        query,
        target,
        find_parts(query),
        by_changes,
        checked.statement.place,
        options.get("refresh", "auto"),
        options.get("consistency") == "commit",
        options.get("state.max_memory"),
    )


def find_parts(resolved: Resolved) -> Parts | None:
    """Returns the columns that divide the result; None if it must be evaluated as a whole."""
    places = _origins(resolved.expression)
    if places is None or any(i.relation.kind == "source" or i.relation.evicts for i in resolved.inputs):
        return None
    views, key = {i.view for i in resolved.inputs}, resolved.schema.key
    found = {
        column.name: place
        for column, place in zip(resolved.schema, places, strict=True)
        if place is not None
        and place.keys() == views
        and _hashable(column.type)
        and (not key or column.name in key)  # all rows of a key are in one part, so that two are noticed
    }
    names = _chosen(resolved, found)
    if not names:
        return None
    inputs = {i.view: tuple(_spelled(i, found[n][i.view]) for n in names) for i in resolved.inputs}
    return Parts(names, inputs)


def _spelled(input_: Input, column: str) -> str:
    found = input_.relation.schema.find(column)
    assert found is not None
    return found.name


def _chosen(resolved: Resolved, found: Mapping[str, Origin]) -> tuple[str, ...]:
    """Returns the key of the only input, if the result has it; else the first few columns."""
    if len(resolved.inputs) == 1:
        only = resolved.inputs[0]
        by_column = {place[only.view].lower(): name for name, place in list(found.items())[::-1]}
        key = [by_column.get(k.lower()) for k in only.relation.schema.key]
        if key and all(key):
            return tuple(k for k in key if k)
    chosen: list[str] = []
    for name, place in found.items():
        # Two columns that are the same column of an input divide it no further than one of them.
        if not any(place[view] == found[c][view] for c in chosen for view in place):
            chosen.append(name)
    return tuple(chosen[:_MOST_COLUMNS])


def _hashable(dtype: pa.DataType | None) -> bool:
    return dtype is not None and not pa.types.is_nested(dtype) and not pa.types.is_floating(dtype)


def _origins(query: exp.Expr) -> list[Origin | None] | None:
    """Returns for each output of a query the columns that it equals, of every input under it; None if there is none."""
    while isinstance(query, exp.Subquery):
        if any(query.args.get(k) for k in _BARRED):
            return None
        query = query.this
    if isinstance(query, exp.SetOperation):
        if any(query.args.get(k) for k in _BARRED):
            return None
        left, right = _origins(query.left), _origins(query.right)
        if left is None or right is None:
            return None
        return [
            {**a, **b} if a is not None and b is not None else None for a, b in zip(left, right, strict=True)
        ]
    if not isinstance(query, exp.Select) or any(query.args.get(k) for k in _BARRED):
        return None
    return _Select(query).origins()


@dataclass
class _Select:
    """Analyses one SELECT: its inputs by alias, and which of their columns are equal in every row that it returns."""

    select: exp.Select
    inputs: dict[str, dict[str, Origin | None]] = field(default_factory=dict)
    edges: dict[Node, list[Node]] = field(default_factory=dict)

    def origins(self) -> list[Origin | None] | None:
        if not self._read() or self._has_subquery():
            return None
        if any(contains_window(p) for p in self.select.expressions):
            return None
        group = self.select.args.get("group")
        if is_aggregated(self.select):
            plain = group is not None and not any(
                group.args.get(k) for k in ("grouping_sets", "cube", "rollup", "all", "totals")
            )
            keys = group.expressions if group is not None and plain else []
            if any(isinstance(k, exp.Rollup | exp.Cube | exp.GroupingSets) for k in keys):
                return None
        else:
            keys = None
        return [self._origin(p.unalias(), keys) for p in self.select.expressions]

    def _read(self) -> bool:
        where = self.select.args.get("where")
        if where is not None:
            self._join(where.this, one_way=None)
        for item, join in from_items(self.select):
            alias = item.alias_or_name.lower()
            if isinstance(item, exp.Table):
                names = item.args["alias"].args.get("columns") if item.args.get("alias") else None
                if names:
                    return False
                self.inputs[alias] = _Columns(item.name)
            elif isinstance(item, exp.Subquery):
                inner = _origins(item.this)
                if inner is None:
                    return False
                self.inputs[alias] = dict(zip(_output_names(item), inner, strict=True))
            else:
                return False
            if join is None:
                continue
            side, kind = (join.side or "").upper(), (join.kind or "").upper()
            if side in ("RIGHT", "FULL") or join.args.get("using") or (join.method or ""):
                return False
            condition = join.args.get("on")
            if condition is not None:
                one_way = alias if side == "LEFT" or kind in ("SEMI", "ANTI") else None
                self._join(condition, one_way=one_way)
        return True

    def _join(self, condition: exp.Expr, *, one_way: str | None) -> None:
        """Records the equalities of a condition; with ``one_way`` only how that input follows the others."""
        for part in conjuncts(condition):
            if not isinstance(part, exp.EQ):
                continue
            a, b = part.this.unnest(), part.expression.unnest()
            if not (isinstance(a, exp.Column) and isinstance(b, exp.Column)) or not compared_alike(a, b):
                continue
            for x, y in ((_node(a), _node(b)), (_node(b), _node(a))):
                if one_way is None or (y[0] == one_way and x[0] != one_way):
                    self.edges.setdefault(x, []).append(y)

    def _origin(self, output: exp.Expr, keys: list[exp.Expr] | None) -> Origin | None:
        if not isinstance(output, exp.Column) or (keys is not None and output not in keys):
            return None
        equal = self._equal_to(_node(output))
        found: dict[str, str] = {}
        for alias, columns in self.inputs.items():
            place = next((p for a, c in equal if a == alias and (p := columns.get(c)) is not None), None)
            if place is None:
                return None
            found.update(place)
        return found

    def _equal_to(self, start: Node) -> list[Node]:
        seen = [start]
        for node in seen:
            seen.extend(n for n in self.edges.get(node, ()) if n not in seen)
        return seen

    def _has_subquery(self) -> bool:
        skipped = {id(i) for i, _ in from_items(self.select)}

        def walk(node: exp.Expr) -> bool:
            return any(
                id(child) not in skipped and (isinstance(child, exp.Query) or walk(child))
                for child in node.iter_expressions()
            )

        return walk(self.select)


class _Columns(dict[str, "Origin | None"]):
    """Maps each column of a table to itself."""

    def __init__(self, view: str):
        super().__init__()
        self._view = view

    def get(self, key: str, default: Origin | None = None) -> Origin | None:  # type: ignore[override]
        return {self._view: key}


def _output_names(item: exp.Subquery) -> list[str]:
    alias = item.args.get("alias")
    names = alias.args.get("columns") if isinstance(alias, exp.TableAlias) else None
    if names:
        return [n.name.lower() for n in names]
    query = item.this
    while not isinstance(query, exp.Select):
        query = query.this
    return [p.alias_or_name.lower() for p in query.expressions]


def _node(column: exp.Column) -> Node:
    return column.table.lower(), column.name.lower()
