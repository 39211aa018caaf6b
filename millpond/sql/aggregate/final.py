"""Builds the final query of a live aggregate: what a reader sees of the merged groups."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
from sqlglot import exp

from millpond.sql.aggregate.model import MERGED
from millpond.sql.aggregate.nodes import column, named, source
from millpond.sql.grouping import is_aggregate, without_filter
from millpond.sql.resolve import Input, Resolved
from millpond.types import Column, Schema

_HOLDS = "__holds"
Replacement = tuple[exp.Expr, exp.Expr]


def build_final(
    resolved: Resolved,
    select: exp.Select,
    keys: Sequence[exp.Expr],
    read: Sequence[tuple[exp.Expr, Callable[[Sequence[exp.Column]], exp.Expr]]],
    state: Schema,
    joins: list[exp.Join],
) -> Resolved:
    width = len(state.key)
    columns = [column(MERGED, c) for c in state.columns]
    replacements: list[Replacement] = [(node, made(columns[width:])) for node, made in read]
    replacements += [(k, columns[i]) for i, k in enumerate(keys)]
    outputs: list[exp.Expr] = [
        named(replaced(p.unalias().copy(), replacements), p.alias) for p in select.expressions
    ]
    having = select.args.get("having")
    holds = replaced(having.this.copy(), replacements) if having is not None else exp.true()
    outputs.append(named(holds, _HOLDS))
    inner = exp.Select(expressions=outputs, from_=source(MERGED), joins=joins)
    schema = Schema((*resolved.schema.columns, Column(_HOLDS, pa.bool_())))
    tree = _wrapped(resolved.expression, select, inner)
    return Resolved(tree, schema, _used(tree, resolved.inputs))


def plain_columns(final: Resolved) -> list[str] | None:
    """Returns the columns of ``MERGED`` that the final query shows, if it does nothing else; None if it computes."""
    select = final.expression
    clauses = {name for name, value in select.args.items() if value}
    if not isinstance(select, exp.Select) or clauses != {"expressions", "from_"}:
        return None
    *shown, holds = (output.unalias() for output in select.expressions)
    if holds != exp.true() or select.args["from_"].this.name != MERGED:
        return None
    columns = [node.name for node in shown if isinstance(node, exp.Column) and node.table == MERGED]
    return columns if len(columns) == len(shown) else None


def replaced(node: exp.Expr, replacements: Sequence[Replacement], *, within: bool = False) -> exp.Expr:
    """Returns the expression with calls and grouping columns replaced by the columns that contain them. ``within`` a
    subquery, replaces only the calls that belong to the outer query.
    """
    for pattern, value in replacements:
        own = within and not node.meta.get("outer") and is_aggregate(without_filter(pattern))
        if node == pattern and not own:
            return value.copy()
    for key, child in list(node.args.items()):
        if isinstance(child, exp.Expr):
            node.set(key, replaced(child, replacements, within=within or isinstance(child, exp.Query)))
        elif isinstance(child, list):
            node.set(
                key,
                [
                    replaced(c, replacements, within=within or isinstance(c, exp.Query))
                    if isinstance(c, exp.Expr)
                    else c
                    for c in child
                ],
            )
    if not isinstance(node, exp.Column | exp.Query):
        node.meta.pop("dtype", None)
    return node


def _used(tree: exp.Expr, inputs: Sequence[Input]) -> tuple[Input, ...]:
    names = {t.name for t in tree.find_all(exp.Table)}
    return tuple(i for i in inputs if i.view in names)


def _wrapped(tree: exp.Expr, select: exp.Select, inner: exp.Select) -> exp.Expr:
    """Returns the final SELECT under the SELECT that returns the columns of a target, if there is one."""
    if tree is select:
        return inner
    outer = tree.copy()
    holder = outer.args["from_"].this
    alias = holder.alias
    holder.set("this", inner)
    holds = column(alias, Column(_HOLDS, pa.bool_()))
    outer.append("expressions", named(holds, _HOLDS))
    return outer
