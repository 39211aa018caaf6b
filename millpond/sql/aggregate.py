"""A live aggregate in three queries: partial over a batch, merge with what is kept, final for a reader.

Each function is a row of a table: what is computed over a batch, how that is merged, and how the result is read from
it. The merged values are the state of a group; they are kept in a table of their own, keyed by the grouping columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa
from sqlglot import exp

from millpond.errors import NotSupported, Place, SqlError
from millpond.sql.assign import build_type
from millpond.sql.grouping import is_aggregate, is_aggregated
from millpond.sql.resolve import Resolved
from millpond.sql.running import from_items
from millpond.sql.typing import type_of
from millpond.types import Column, Schema

PARTIAL = "__partial"
MERGED = "__merged"
_ONLY = "__only"


@dataclass(frozen=True, slots=True)
class Aggregation:
    """``state`` has the grouping columns k0, k1, … as its key, and the values of the functions a0, a1, …

    ``merge`` reads rows of that shape as the view ``PARTIAL`` and gives one row a group; ``final`` reads those as
    the view ``MERGED`` and gives the columns of the query, and as its last one whether HAVING holds.
    ``keys`` are the output columns that are grouping columns, None for one that is not among them.
    """

    state: Schema
    partial: Resolved
    merge: Resolved
    final: Resolved
    keys: tuple[str | None, ...]


def is_live_aggregate(resolved: Resolved) -> bool:
    return resolved.running and _grouping_select(resolved.expression) is not None


def check_aggregate(
    resolved: Resolved, place: Callable[[exp.Expr], Place | None], at: Place | None
) -> Iterator[SqlError]:
    """Why an aggregate over a stream cannot be kept live in this version."""
    select = _grouping_select(resolved.expression)
    if select is None:
        return
    for node in _aggregates(select):
        function = node.this if isinstance(node, exp.Filter) else node
        name = (
            type(function).__name__.upper()
            if not isinstance(function, exp.Anonymous)
            else function.name.upper()
        )
        if type(function) not in _FUNCTIONS:
            yield NotSupported(
                f"{name} over a stream is not supported yet",
                hint="COUNT, SUM, MIN, MAX and AVG are",
                place=place(node) or at,
            )
        elif isinstance(function.this, exp.Distinct):
            yield NotSupported(
                f"{name}(DISTINCT …) over a stream is not supported yet", place=place(node) or at
            )
        elif type_of(node) is None:
            yield NotSupported(f"the type of this {name} is not known", place=place(node) or at)
    having = select.args.get("having")
    for clause in (*select.expressions, *([having] if having is not None else [])):
        if clause.find(exp.Select):
            yield NotSupported(
                "a subquery beside an aggregate over a stream is not supported yet", place=place(clause) or at
            )
    group = select.args.get("group")
    for key in group.expressions if group is not None else ():
        if isinstance(key, exp.Rollup | exp.Cube | exp.GroupingSets):
            yield NotSupported("ROLLUP, CUBE and GROUPING SETS over a stream", place=place(key) or at)
        elif type_of(key) is None:
            yield NotSupported("the type of this grouping column is not known", place=place(key) or at)


def split(resolved: Resolved) -> Aggregation:
    """The three queries of an aggregate that ``check_aggregate`` has nothing against."""
    select = _grouping_select(resolved.expression)
    assert select is not None
    group = select.args.get("group")
    keys = [k.copy() for k in group.expressions] if group is not None else []
    nodes: list[exp.Expr] = []
    for node in _aggregates(select):
        if node not in nodes:
            nodes.append(node.copy())
    parts = [_FUNCTIONS[type(_function(n))](n) for n in nodes]
    key_columns = [Column(f"k{i}", type_of(k)) for i, k in enumerate(keys)] or [
        Column("k0", pa.int8(), False)
    ]
    values = [v for part in parts for v in part.values]
    value_columns = [Column(f"a{i}", v.dtype) for i, v in enumerate(values)]
    state = Schema((*key_columns, *value_columns), tuple(c.name for c in key_columns))
    one = exp.Cast(this=exp.Literal.number(0), to=build_type(pa.int8()))
    return Aggregation(
        state=state,
        partial=_partial(resolved, select, keys or [one], values, state),
        merge=_merge(values, state),
        final=_final(resolved, select, keys, nodes, parts, state),
        keys=_output_keys(select, keys),
    )


@dataclass(frozen=True, slots=True)
class _Value:
    """One kept value: computed over a batch by ``partial``, merged by the function ``merge``."""

    partial: exp.Expr
    merge: type[exp.Expr]
    dtype: pa.DataType


@dataclass(frozen=True, slots=True)
class _Part:
    """A function of the query: what it keeps, and how it is read from the columns that keep it."""

    values: tuple[_Value, ...]
    final: Callable[[list[exp.Column]], exp.Expr]


def _same(merge: type[exp.Expr]) -> Callable[[exp.Expr], _Part]:
    def part(node: exp.Expr) -> _Part:
        dtype = type_of(node)
        assert dtype is not None
        return _Part((_Value(node, merge, dtype),), lambda columns: columns[0])

    return part


def _average(node: exp.Expr) -> _Part:
    """AVG is kept as SUM and COUNT. Spark divides the same way."""
    argument = _function(node).this
    total, count = _like(node, exp.Sum(this=argument.copy())), _like(node, exp.Count(this=argument.copy()))
    average, kept = type_of(node), type_of(total)
    assert average is not None and kept is not None

    def final(columns: list[exp.Column]) -> exp.Expr:
        some = exp.Nullif(this=columns[1].copy(), expression=_typed(exp.Literal.number(0), pa.int64()))
        return exp.Cast(this=exp.Div(this=columns[0], expression=some), to=build_type(average))

    return _Part((_Value(total, exp.Sum, kept), _Value(count, exp.Sum, pa.int64())), final)


_FUNCTIONS: dict[type[exp.Expr], Callable[[exp.Expr], _Part]] = {
    exp.Count: _same(exp.Sum),
    exp.Sum: _same(exp.Sum),
    exp.Min: _same(exp.Min),
    exp.Max: _same(exp.Max),
    exp.Avg: _average,
}


def _function(node: exp.Expr) -> exp.Expr:
    return node.this if isinstance(node, exp.Filter) else node


def _like(node: exp.Expr, function: exp.Expr) -> exp.Expr:
    """The function under the FILTER of the node, if it has one."""
    if isinstance(node, exp.Filter):
        return exp.Filter(this=function, expression=node.expression.copy())
    return function


def _typed(node: exp.Expr, dtype: pa.DataType) -> exp.Expr:
    return exp.Cast(this=node, to=build_type(dtype))


def _column(view: str, column: Column) -> exp.Column:
    made = exp.Column(
        this=exp.to_identifier(column.name, quoted=True), table=exp.to_identifier(view, quoted=True)
    )
    made.meta["dtype"] = column.type
    return made


def _from(view: str) -> exp.From:
    alias = exp.TableAlias(this=exp.to_identifier(view, quoted=True))
    return exp.From(this=exp.Table(this=exp.to_identifier(view), alias=alias))


def _partial(
    resolved: Resolved, select: exp.Select, keys: list[exp.Expr], values: list[_Value], state: Schema
) -> Resolved:
    made = select.copy()
    outputs = [*keys, *(v.partial for v in values)]
    made.set(
        "expressions",
        [
            exp.alias_(_fitted(o.copy(), c.type), c.name, quoted=True)
            for o, c in zip(outputs, state, strict=True)
        ],
    )
    made.set("having", None)
    return Resolved(made, Schema(state.columns), resolved.inputs)


def _fitted(node: exp.Expr, dtype: pa.DataType | None) -> exp.Expr:
    return node if dtype is None or type_of(node) == dtype else _typed(node, dtype)


def _merge(values: list[_Value], state: Schema) -> Resolved:
    width = len(state.key)
    keys = [_column(PARTIAL, c) for c in state.columns[:width]]
    outputs: list[exp.Expr] = [exp.alias_(k.copy(), k.name, quoted=True) for k in keys]
    for value, column in zip(values, state.columns[width:], strict=True):
        merged = value.merge(this=_column(PARTIAL, column))
        outputs.append(exp.alias_(_fitted(merged, column.type), column.name, quoted=True))
    select = exp.Select(expressions=outputs, from_=_from(PARTIAL), group=exp.Group(expressions=keys))
    return Resolved(select, Schema(state.columns), ())


def _final(
    resolved: Resolved,
    select: exp.Select,
    keys: list[exp.Expr],
    nodes: list[exp.Expr],
    parts: list[_Part],
    state: Schema,
) -> Resolved:
    width = len(state.key)
    columns = [_column(MERGED, c) for c in state.columns]
    replacements: list[tuple[exp.Expr, exp.Expr]] = []
    at = width
    for node, part in zip(nodes, parts, strict=True):
        replacements.append((node, part.final([c.copy() for c in columns[at : at + len(part.values)]])))
        at += len(part.values)
    replacements += [(k, columns[i]) for i, k in enumerate(keys)]

    def read(node: exp.Expr) -> exp.Expr:
        for pattern, value in replacements:
            if node == pattern:
                return value.copy()
        for key, child in list(node.args.items()):
            if isinstance(child, exp.Expr):
                node.set(key, read(child))
            elif isinstance(child, list):
                node.set(key, [read(c) if isinstance(c, exp.Expr) else c for c in child])
        node.meta.pop("dtype", None) if not isinstance(node, exp.Column) else None
        return node

    outputs = [exp.alias_(read(p.unalias().copy()), p.alias, quoted=True) for p in select.expressions]
    having = select.args.get("having")
    holds = read(having.this.copy()) if having is not None else exp.true()
    outputs.append(exp.alias_(holds, _ONLY, quoted=True))
    inner = exp.Select(expressions=outputs, from_=_from(MERGED))
    schema = Schema((*resolved.schema.columns, Column(_ONLY, pa.bool_())))
    return Resolved(_wrapped(resolved.expression, select, inner), schema, ())


def _wrapped(tree: exp.Expr, select: exp.Select, inner: exp.Select) -> exp.Expr:
    """The final SELECT under the SELECT that gives the columns of a target, if there is one."""
    if tree is select:
        return inner
    outer = tree.copy()
    holder = outer.args["from_"].this
    alias = holder.alias
    holder.set("this", inner)
    holds = exp.Column(
        this=exp.to_identifier(_ONLY, quoted=True), table=exp.to_identifier(alias, quoted=True)
    )
    holds.meta["dtype"] = pa.bool_()
    outer.append("expressions", exp.alias_(holds, _ONLY, quoted=True))
    return outer


def _output_keys(select: exp.Select, keys: list[exp.Expr]) -> tuple[str | None, ...]:
    outputs = {p.alias: p.unalias() for p in select.expressions}
    return tuple(next((name for name, o in outputs.items() if o == k), None) for k in keys)


def _grouping_select(tree: exp.Expr) -> exp.Select | None:
    """The SELECT that groups: the outermost, or the one right under a SELECT that only shapes its columns."""
    if not isinstance(tree, exp.Select):
        return None
    if is_aggregated(tree):
        return tree
    items = list(from_items(tree))
    plain = len(items) == 1 and isinstance(items[0][0], exp.Subquery) and items[0][0].alias == "__out"
    inner = items[0][0].this if plain else None
    return inner if isinstance(inner, exp.Select) and is_aggregated(inner) else None


def _aggregates(select: exp.Select) -> Iterator[exp.Expr]:
    """The aggregate calls of a SELECT and its HAVING, each with its FILTER."""
    roots: list[exp.Expr] = list(select.expressions)
    if select.args.get("having") is not None:
        roots.append(select.args["having"].this)

    def walk(node: exp.Expr) -> Iterator[exp.Expr]:
        if (isinstance(node, exp.Filter) and is_aggregate(node.this)) or is_aggregate(node):
            yield node
        else:
            for child in node.iter_expressions():
                if not isinstance(child, exp.Query):
                    yield from walk(child)

    for root in roots:
        yield from walk(root)
