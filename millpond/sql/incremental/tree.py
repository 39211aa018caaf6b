"""Builds the operators by which a view is kept by changes, from its query.

Each SELECT becomes joins of its inputs, a filter, then groups or columns. What no operator does yet raises NotKept, and
the view is recomputed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, cast

import pyarrow as pa
from sqlglot import exp

from millpond.sql.aggregate.nodes import column, named
from millpond.sql.conjuncts import all_of, conjuncts, outer_columns
from millpond.sql.grouping import contains_window, is_aggregated
from millpond.sql.incremental.evaluated_queries import queries
from millpond.sql.incremental.frames import ColumnId, Frame, NotKept, id_of
from millpond.sql.incremental.groups import build_distinct, build_group, build_index, counted
from millpond.sql.incremental.joins import (
    Item,
    is_single,
    join_all,
    join_one,
    join_outer,
    joined,
    kind_of,
    pairs_of,
)
from millpond.sql.incremental.lookup_columns import finds
from millpond.sql.incremental.nodes import (
    ByChanges,
    JoinKind,
    Node,
    ScanNode,
    SetNode,
    UnionNode,
    is_key,
    is_plain,
    walk,
)
from millpond.sql.incremental.order_limit import build_top, limits, sort_keys
from millpond.sql.incremental.rewrites import AS_JOINS
from millpond.sql.incremental.subqueries import Membership, Values, factored, membership
from millpond.sql.incremental.windows import build_window, divided_by
from millpond.sql.render.duckdb import Unrenderable, render
from millpond.sql.resolve import Input, Resolved
from millpond.sql.rewrite import FOR_DUCKDB, rewrite
from millpond.sql.running_queries import from_items
from millpond.sql.typing import output_types, type_of
from millpond.types import Column

_CLAUSES = {
    "laterals": "LATERAL VIEW",
    "pivots": "PIVOT",
    "windows": "WINDOW",
    "sample": "TABLESAMPLE",
}


def keep_by_changes(resolved: Resolved) -> ByChanges:
    """Returns the operators that keep a view; without them, the first that is recomputed."""
    if any(i.relation.kind != "table" for i in resolved.inputs):
        return ByChanges(None, "an input that is not a table")
    if any(i.relation.stored_in is not None for i in resolved.inputs):
        return ByChanges(None, "a table in a database")
    if any(i.relation.evicts for i in resolved.inputs):
        return ByChanges(None, "a cache, whose rows leave without a change")
    if not all(is_plain(c.type) for c in resolved.schema):
        return ByChanges(None, "a column that is not a number, text, date, time or Boolean")
    keys = [c for k in resolved.schema.key if (c := resolved.schema.find(k)) is not None]
    if not all(c.type is not None and is_key(c.type) for c in keys):
        return ByChanges(None, "a key that is a number with a floating point")
    try:
        tree = rewrite(resolved.expression, AS_JOINS)
        frame = _Builder(resolved.inputs, _columns_used(tree)).query(tree, {})
    except NotKept as reason:
        return ByChanges(None, str(reason))
    if frame.types != tuple(c.type for c in resolved.schema):
        return ByChanges(None, "columns whose types the table converts")
    try:
        for query in (query for at in walk(frame) for query in queries(at.node)):
            if not query.schema.known:
                return ByChanges(None, "a type that only Spark knows")
            render(rewrite(query.expression, FOR_DUCKDB))
    except Unrenderable as reason:
        return ByChanges(None, f"{reason}, which only Spark evaluates,")
    return ByChanges(frame)


def _columns_used(tree: exp.Expr) -> Mapping[str, set[str]]:
    found: dict[str, set[str]] = {}
    for node in tree.find_all(exp.Column):
        found.setdefault(node.table.lower(), set()).add(node.name.lower())
    return found


Ctes = Mapping[str, exp.CTE]
Joined = tuple[exp.Expr, str, list[exp.Expr], bool]
"""An input of FROM, how it is joined, the conditions of that, and whether at most one of its rows matches another."""
Partners = Mapping[str, set[ColumnId]]
"""Columns by the alias of the input whose columns they are compared with."""


@dataclass
class _Builder:
    inputs: Sequence[Input]
    used: Mapping[str, set[str]]
    by_view: dict[str, Input] = field(init=False)
    made: dict[str, Node] = field(default_factory=dict)
    """The operators of queries in FROM, by their text: one that is read several times is kept once."""
    indexes: dict[str, Node] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.by_view = {i.view: i for i in self.inputs}

    def query(self, tree: exp.Expr, ctes: Ctes) -> Node:
        """Returns the operators of a query; ``ctes`` are those of the queries around it."""
        ctes = {**ctes, **_ctes_of(tree)}
        for clause, name in _CLAUSES.items():
            if tree.args.get(clause):
                raise NotKept(name)
        if not isinstance(tree, exp.Select) and any(tree.args.get(k) for k in ("limit", "offset")):
            raise NotKept("LIMIT of several queries")
        if isinstance(tree, exp.Subquery | exp.Paren):
            return self.query(tree.this, ctes)
        if isinstance(tree, exp.Union):
            return self._union(tree, ctes)
        if isinstance(tree, exp.Intersect | exp.Except):
            return self._set(tree, ctes)
        if not isinstance(tree, exp.Select):
            raise NotKept(type(tree).__name__.upper())
        return self._select(tree, ctes)

    def _sides(self, tree: exp.SetOperation, ctes: Ctes) -> tuple[Node, Node]:
        if tree.args.get("by_name"):
            raise NotKept("UNION BY NAME")
        sides = (self.query(tree.left, ctes), self.query(tree.right, ctes))
        types = tuple(output_types(tree))
        if any(s.types != types for s in sides):
            raise NotKept("a set operation on columns of different types")
        return sides

    def _set(self, tree: exp.Intersect | exp.Except, ctes: Ctes) -> Node:
        sides = self._sides(tree, ctes)
        what = type(tree).__name__.upper()
        left, right = (
            counted(_with(query, ctes), side, self.inputs, what)
            for query, side in zip((tree.left, tree.right), sides, strict=True)
        )
        kind: Literal["intersect", "except"] = "intersect" if isinstance(tree, exp.Intersect) else "except"
        return SetNode(kind, not tree.args.get("distinct"), sides, (left, right))

    def _union(self, tree: exp.Union, ctes: Ctes) -> Node:
        node = UnionNode(self._sides(tree, ctes))
        if not tree.args.get("distinct"):
            return node
        every = tree.copy()
        every.set("distinct", False)
        return build_distinct(_with(every, ctes), node, self.inputs)

    def _select(self, select: exp.Select, ctes: Ctes) -> Node:
        counts = limits(select)
        where = select.args.get("where")
        frame, conditions = self._from(select, list(conjuncts(where.this)) if where is not None else [], ctes)
        whole = _with(select, ctes)
        distinct = select.args.get("distinct")
        if distinct is not None and distinct.args.get("on"):
            raise NotKept("DISTINCT ON")
        more, keys = ([], []) if counts is None else sort_keys(select)
        if more and (distinct is not None or is_aggregated(select)):
            raise NotKept("ORDER BY a value that is not an output, with LIMIT")
        node: Node
        windows = any(contains_window(p) for p in select.expressions) or select.args.get("qualify")
        if windows:
            node = build_window(select, frame, conditions, more)
        elif is_aggregated(select):
            node = build_group(whole, frame, conditions, self.inputs)
        else:
            outputs = [p.unalias() for p in select.expressions]
            types = [*output_types(select), *map(type_of, more)]
            node = frame.step([*outputs, *more], conditions, types)
        if distinct is not None:
            every = whole.copy()
            for clause in ("distinct", "order", "limit", "offset"):
                every.set(clause, None)
            node = build_distinct(every, node, self.inputs)
        return node if counts is None else build_top(whole, node, more, keys, counts, self.inputs)

    def _from(
        self, select: exp.Select, conditions: Sequence[exp.Expr], ctes: Ctes
    ) -> tuple[Frame, list[exp.Expr]]:
        """Returns the inputs of a SELECT, joined, and those of the ``conditions`` on their rows that are left."""
        found = [(c, membership(c)) for c in conditions]
        pending = [c for c, m in found if m is None]
        joins = [(item, *kind_of(join), is_single(join)) for item, join in from_items(select)]
        if not joins:
            raise NotKept("a query without FROM")
        outer = [kind for _, kind, *_ in joins if kind == "right" or kind == "full"]
        if outer and len(joins) > 2:
            raise NotKept(f"{outer[0].upper()} JOIN with a third input")
        for _, kind, on, _ in joins:
            pending += on if kind == "inner" else []
        pending += [common for c in pending for common in factored(c)]
        memberships = [m for _, m in found if m is not None]
        compared = [*pending, *(c for _, _, on, _ in joins for c in on)]
        alone = divided_by(select)
        for m in memberships:
            if isinstance(m, Membership):
                compared += m.conditions
            elif isinstance(m.value, exp.Column):
                alone.append(id_of(m.value))
        wanted = _partners(compared, alone)
        frames = [self._input(item, wanted, ctes) for item, *_ in joins]
        if outer:
            frame = join_outer(outer[0], frames[0], frames[1], joins[1][2])
        else:
            frame, pending = self._join(frames, joins, pending)
        for m in memberships:
            frame = self._member(frame, m, ctes)
        return frame, pending

    def _join(
        self, frames: Sequence[Frame], joins: Sequence[Joined], pending: list[exp.Expr]
    ) -> tuple[Frame, list[exp.Expr]]:
        """Returns the inputs, joined, and the ``pending`` conditions that are left."""
        items = [
            Item(frame, cast("JoinKind", kind), on, single)
            for frame, (_, kind, on, single) in zip(frames, joins, strict=True)
        ]
        for item_ in items:
            if item_.kind == "inner":
                own = [p for p in pending if item_.frame.knows(p) and any(outer_columns(p))]
                item_.frame = item_.frame.filtered(own)
                pending = [p for p in pending if not any(p is o for o in own)]
        return join_all(items, pending)

    def _member(self, frame: Frame, m: Membership | Values, ctes: Ctes) -> Frame:
        """Returns the rows of a frame for which rows of a subquery exist, or do not."""
        if isinstance(m, Values):
            return self._one_of(frame, m, ctes)
        other, left = self._from(m.select, m.conditions, ctes)
        own = [c for c in left if other.knows(c)]
        outer = [c for c in left if not any(c is o for o in own)]
        pairs, more = pairs_of(frame, other, outer)
        if more or not pairs:
            return join_one(m.kind, frame, other.filtered(own), outer)
        # Only which values there are counts, so that a value that many rows have is one row.
        inner = [c for c in m.conditions if other.knows(c)]
        places = {at: place for place, at in other.places.items()}
        columns = [column(places[b][0], Column(places[b][1], other.node.types[b])) for _, b in pairs]
        query = m.select.copy()
        query.set("where", exp.Where(this=all_of(inner)) if inner else None)
        query.set("expressions", [named(c, f"m{i}") for i, c in enumerate(columns)])
        step = other.step(columns, own, [None] * len(columns))
        node = build_distinct(_with(query, ctes), step, self.inputs)
        there = Frame(node, {("__member", f"m{i}"): i for i in range(len(columns))})
        return joined(m.kind, frame, there, [(a, i) for i, (a, _) in enumerate(pairs)], [])

    def _one_of(self, frame: Frame, m: Values, ctes: Ctes) -> Frame:
        """Returns the rows of a frame with a value that a subquery returns."""
        node = self.query(m.query, ctes)
        at = frame.at(m.value)
        types = [] if at is None else [frame.node.types[at]]
        alike = types == list(node.types) or all(pa.types.is_integer(t) for t in (*types, *node.types))
        if at is None or len(node.types) != 1 or not alike:
            raise NotKept("a subquery in a condition")
        there = Frame(build_distinct(_with(m.query, ctes), node, self.inputs), {("__member", "m0"): 0})
        return joined("semi", frame, there, [(at, 0)], [])

    def _input(self, item: exp.Expr, equal: Partners, ctes: Ctes) -> Frame:
        """Returns an input. Its rows are found by those of its columns that others are compared with."""
        alias = item.alias_or_name.lower()
        names = item.args["alias"].args.get("columns") if item.args.get("alias") else None
        if isinstance(item, exp.Table):
            if item.args.get("sample") or item.args.get("joins") or item.args.get("pivots"):
                raise NotKept("TABLESAMPLE or PIVOT")
            cte = ctes.get(item.name.lower())
            if item.name in self.by_view:
                if names:
                    raise NotKept("a table with renamed columns")
                return self._scan(self.by_view[item.name], alias)
            if cte is None:
                raise NotKept("an input that is not a table")
            query, named = cte.this, cte.args["alias"].args.get("columns")
            others: Ctes = {n: c for n, c in ctes.items() if c is not cte}
        elif isinstance(item, exp.Subquery):
            query, named, others = item.this, None, ctes
        else:
            raise NotKept("a function in FROM")
        # Names of tables, CTEs and aliases are unique in a view: an equal text has equal rows.
        text = repr(query)
        if text not in self.made:
            self.made[text] = self.query(query, others)
        node = self.made[text]
        spelled = [n.name for n in names or named or ()] or _output_names(query)
        places = {(alias, name.lower()): at for at, name in enumerate(spelled)}
        for compared in equal.values():
            wanted = tuple(at for place, at in places.items() if place in compared)
            if wanted and not finds(node, wanted):
                if text not in self.indexes:
                    self.indexes[text] = build_index(_with(query, others), node, self.inputs)
                return Frame(self.indexes[text], places)
        return Frame(node, places)

    def _scan(self, input_: Input, alias: str) -> Frame:
        used = self.used.get(alias, set())
        columns = [c for c in input_.relation.schema if c.name.lower() in used]
        if not all(is_plain(c.type) for c in columns):
            raise NotKept("a column that is not a number, text, date, time or Boolean")
        node = ScanNode(
            input_.view,
            input_.relation.name,
            tuple(c.name for c in columns),
            tuple(c.type for c in columns if c.type is not None),
        )
        return Frame(node, {(alias, c.name.lower()): at for at, c in enumerate(columns)})


def _ctes_of(tree: exp.Expr) -> dict[str, exp.CTE]:
    with_ = tree.args.get("with_")
    if with_ is None:
        return {}
    if with_.args.get("recursive"):
        raise NotKept("WITH RECURSIVE")
    return {cte.alias.lower(): cte for cte in with_.expressions}


def _with(tree: exp.Expr, ctes: Ctes) -> exp.Select:
    """Returns a query with those of the CTEs around it that it reads."""
    made = tree.copy()
    every = {**ctes, **_ctes_of(tree)}
    made.set("with_", None)
    read, new = set[str](), _names(made)
    while new:
        read |= new
        new = {n for name in new & every.keys() for n in _names(every[name])} - read
    if read & every.keys():
        made.set("with_", exp.With(expressions=[c.copy() for name, c in every.items() if name in read]))
    return made  # type: ignore[return-value]


def _names(tree: exp.Expr) -> set[str]:
    return {table.name.lower() for table in tree.find_all(exp.Table)}


def _partners(conditions: Sequence[exp.Expr], alone: Sequence[ColumnId]) -> Partners:
    """Returns the columns that conditions compare with other columns, by the alias of the other. ``alone`` are columns
    that are compared with no other, and that rows are found by.
    """
    found: dict[str, set[ColumnId]] = {"": set(alone)}
    for condition in conditions:
        if isinstance(condition, exp.EQ):
            sides = condition.this.unnest(), condition.expression.unnest()
            if all(isinstance(side, exp.Column) for side in sides):
                for own, other in (sides, sides[::-1]):
                    if own.table.lower() != other.table.lower():
                        found.setdefault(other.table.lower(), set()).add(id_of(own))
    return found


def _output_names(query: exp.Expr) -> list[str]:
    while not isinstance(query, exp.Select):
        query = query.left if isinstance(query, exp.SetOperation) else query.this
    return [p.alias_or_name for p in query.expressions]
