"""Resolves how the inputs of a query are joined, and which columns they return together."""

from __future__ import annotations

import dataclasses
from collections import Counter

import pyarrow as pa
from sqlglot import exp

from millpond.errors import SqlError, UnknownName
from millpond.sql.nodes import IN_PARENTHESES
from millpond.sql.resolve.context import Context
from millpond.sql.resolve.expressions import Expressions
from millpond.sql.resolve.inputs import Inputs, Side, column_of
from millpond.sql.scope import Scope, Visible

_HALVES = ("SEMI", "ANTI")
_KINDS = {
    ("", ""), ("", "INNER"), ("", "CROSS"), ("LEFT", ""), ("LEFT", "OUTER"), ("RIGHT", ""), ("RIGHT", "OUTER"),
    ("FULL", ""), ("FULL", "OUTER"), ("", "SEMI"), ("LEFT", "SEMI"), ("", "ANTI"), ("LEFT", "ANTI"),
}  # fmt: skip


class Joins:
    """Resolves FROM. In the resolved query the inputs are side by side; a join in parentheses to the right of another
    is a subquery, whose columns have the names that refer to them.
    """

    def __init__(self, context: Context, expressions: Expressions, inputs: Inputs):
        self._context = context
        self._expressions = expressions
        self._inputs = inputs

    def resolve(self, node: exp.Select, scope: Scope) -> None:
        from_ = node.args.get("from_")
        if from_ is None:
            return
        whole = self._joined(from_.this, node.args.get("joins") or [], scope)
        from_.set("this", whole.first)
        node.set("joins", whole.joins or None)
        scope.columns, scope.inputs, scope.unknown = whole.columns, whole.inputs, whole.unknown
        for lateral in node.args.get("laterals") or ():
            self._lateral(lateral, scope)

    def _joined(self, first: exp.Expr, joins: list[exp.Join], scope: Scope) -> Side:
        left = self._inputs.resolve_lateral(first, None, scope) if isinstance(first, exp.Lateral) else None
        left = left or self._side(first, scope)
        for join in joins:
            if isinstance(join.this, exp.Lateral):
                if (join.side or "").upper() in ("RIGHT", "FULL") or (join.kind or "").upper() in _HALVES:
                    message = "LATERAL stands behind a comma, JOIN, CROSS JOIN or LEFT JOIN"
                    self._context.add(SqlError(message), join.this)
                if join.args.get("method") or join.args.get("using"):
                    message = "a join with LATERAL is not NATURAL and has no USING"
                    self._context.add(SqlError(message, hint="write ON …"), join.this)
                right = self._inputs.resolve_lateral(join.this, left, scope)
            else:
                right = self._one(self._side(join.this, scope))
            left = self._join(left, join, right, scope)
        return left

    def _side(self, node: exp.Expr, scope: Scope) -> Side:
        """Resolves an input, or what is in parentheses: a join, which may have an alias."""
        if isinstance(node, exp.Subquery) and (values := _values_in(node.this)) is not None:
            node.set("this", values)
        if not _is_join(node):
            return self._inputs.resolve(node, scope)
        inner = node.this
        joins = inner.args.get("joins") or []
        inner.set("joins", None)
        if any(join.meta.get("comma") for join in joins):
            self._context.add(SqlError('"," does not stand in parentheses', hint="write CROSS JOIN"), node)
        found = self._joined(inner, joins, scope)
        return self._one(found, node) if node.alias else found

    def _one(self, side: Side, named: exp.Expr | None = None) -> Side:
        """Returns the part as one input: a query, if it has several. ``named`` contains its alias."""
        if not side.joins and named is None:
            return side
        columns = [c for c in side.columns if named is None or not (c.hidden or c.qualified)]
        alias = self._context.unique(named.alias if named is not None else "__j")
        taken: set[str] = set()
        outputs: list[exp.Expr] = []
        visible: list[Visible] = []
        for column in columns:
            name, n = column.name, 1
            while name.lower() in taken:
                n += 1
                name = f"{column.name}_{n}"
            taken.add(name.lower())
            outputs.append(exp.alias_(column.value.copy(), name, quoted=True))
            value = column_of(alias, name, column.dtype)
            visible.append(dataclasses.replace(column, value=value))
        select = exp.Select(expressions=outputs, from_=exp.From(this=side.first), joins=side.joins or None)
        query = exp.Subquery(this=select, alias=exp.TableAlias(this=exp.to_identifier(alias, quoted=True)))
        if named is None:
            return Side(query, [], visible, side.inputs, side.unknown)
        names = self._inputs.renamed(named, [(c.name, c.dtype) for c in visible])
        renamed = [
            dataclasses.replace(c, alias=named.alias, name=n)
            for c, (n, _) in zip(visible, names, strict=False)
        ]
        return Side(query, [], renamed, [named.alias], side.unknown)

    def _join(self, left: Side, join: exp.Join, right: Side, scope: Scope) -> Side:
        side, kind = (join.side or "").upper(), (join.kind or "").upper()
        method = (join.args.get("method") or "").upper()
        using = [u.name for u in join.args.get("using") or ()]
        made = exp.Join(this=right.first, side=side or None, kind=kind or None)
        if (side, kind) not in _KINDS or method not in ("", "NATURAL"):
            words = " ".join(w for w in (method, side, kind) if w)
            self._context.add(SqlError(f"{words} JOIN is not a join"), join)
        if method and (kind in (*_HALVES, "CROSS") or join.args.get("on") is not None or using):
            self._context.add(
                SqlError(
                    "NATURAL JOIN has no condition of its own, and is no CROSS, SEMI or ANTI JOIN",
                    hint="write the condition: ON …",
                ),
                join,
            )
            method = ""
        both = Side(
            left.first,
            [*left.joins, made],
            [*left.columns, *right.columns],
            [*left.inputs, *right.inputs],
            left.unknown or right.unknown,
        )
        if method:
            there, here = (Counter(c.name.lower() for c in _named(part)) for part in (left, right))
            using = [name for name in there for _ in range(min(there[name], here[name]))]
        on: exp.Expr | None = None
        if using:
            pairs = self._pairs(join, using, left, right)
            on = exp.and_(*(_equal(a, b) for a, b in pairs), copy=False) if pairs else exp.true()
            for equal in on.find_all(exp.EQ):
                self._context.type_of(equal)
            both.columns = self._merged(side, pairs, both.columns)
        elif join.args.get("on") is not None:
            on = self._expressions.condition(join.args["on"], both.scope(scope))
        if on is not None:
            made.set("on", on)
            if kind == "CROSS":
                made.set("kind", None)
        elif side or kind in _HALVES:
            made.set("on", exp.true())
        elif kind != "CROSS":
            made.set("kind", "CROSS")
        if kind in _HALVES:
            mine = {id(c) for c in left.columns}
            both.columns, both.inputs = [c for c in both.columns if id(c) in mine], left.inputs
        return both

    def _pairs(
        self, join: exp.Join, names: list[str], left: Side, right: Side
    ) -> list[tuple[Visible, Visible]]:
        """Returns the columns that USING says are equal."""
        found: list[tuple[Visible, Visible]] = []
        for name in names:
            there = [c for c in _named(left) if c.name.lower() == name.lower()]
            here = [c for c in _named(right) if c.name.lower() == name.lower()]
            if there and here:
                found.append((there[0], here[0]))
            elif not (left.unknown or right.unknown):
                self._context.add(
                    UnknownName(f'column "{name}" of USING is not on both sides of the join'), join
                )
        return found

    def _merged(
        self, side: str, pairs: list[tuple[Visible, Visible]], columns: list[Visible]
    ) -> list[Visible]:
        """Returns the columns of a join with USING: the columns of USING, then the others. A bare name means the side
        whose rows all remain; both sides can be qualified with their input.
        """
        keys: list[Visible] = []
        apart: list[Visible] = []
        for left, right in pairs:
            if side == "FULL":
                both = exp.Coalesce(this=left.value.copy(), expressions=[right.value.copy()])
                both.meta["dtype"] = self._context.type_of(both)
                keys.append(Visible("", left.name, both))
                apart += [left, right]
            elif side == "RIGHT":
                keys.append(right)
                apart.append(left)
            else:
                keys.append(left)
                apart.append(right)
        done = {id(c) for pair in pairs for c in pair}
        rest = [c for c in columns if id(c) not in done]
        return [
            *keys,
            *(c for c in rest if not c.qualified),
            *(dataclasses.replace(c, qualified=True) for c in apart),
            *(c for c in rest if c.qualified),
        ]

    def _lateral(self, node: exp.Lateral, scope: Scope) -> None:
        node.set("this", self._expressions.resolve(node.this, scope))
        alias = node.args.get("alias")
        names = [c.name for c in (alias.args.get("columns") or ())] if alias else []
        inner = (
            self._context.type_of(node.this.this)
            if isinstance(node.this, exp.Explode | exp.Posexplode)
            else None
        )
        types: list[pa.DataType | None] = [None] * len(names)
        if inner is not None and pa.types.is_list(inner) and names:
            types[-1] = inner.value_type
        scope.inputs = [*scope.inputs, node.alias]
        scope.columns = [
            *scope.columns,
            *(Visible(node.alias, n, column_of(node.alias, n, t)) for n, t in zip(names, types, strict=True)),
        ]


def _named(side: Side) -> list[Visible]:
    """Returns the columns that a bare name can mean; those that `*` does not return are last."""
    shown = [c for c in side.columns if not c.qualified]
    return [c for c in shown if not c.hidden] + [c for c in shown if c.hidden]


def _equal(left: Visible, right: Visible) -> exp.Expr:
    return exp.EQ(this=left.value.copy(), expression=right.value.copy())


def _values_in(node: exp.Expr) -> exp.Values | None:
    """Treats `(VALUES … AS v(a, b))` as a query: outside the parentheses, v has no meaning."""
    if not isinstance(node, exp.Table) or not isinstance(node.this, exp.Values) or node.args.get("joins"):
        return None
    if IN_PARENTHESES in node.this.meta:
        return None
    node.this.set("alias", node.args.get("alias"))
    return node.this


def _is_join(node: exp.Expr) -> bool:
    """Returns whether parentheses contain inputs, not a query."""
    if not isinstance(node, exp.Subquery):
        return False
    inner = node.this
    if isinstance(inner, exp.Table) or inner.args.get("joins"):
        return isinstance(inner, exp.Table | exp.Subquery | exp.Values)
    return isinstance(inner, exp.Subquery) and (bool(inner.alias) or _is_join(inner))
