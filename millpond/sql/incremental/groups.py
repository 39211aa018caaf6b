"""Builds the operators of a view that group: GROUP BY, totals, DISTINCT."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
from sqlglot import exp

from millpond.sql.aggregate.final import replaced
from millpond.sql.aggregate.find import Call, aggregates, call_of, row_of
from millpond.sql.aggregate.nodes import column, named, source
from millpond.sql.conjuncts import all_of, outer_columns
from millpond.sql.incremental.choices import is_chosen
from millpond.sql.incremental.frames import Frame, NotKept, make_outputs
from millpond.sql.incremental.lookup_columns import finds
from millpond.sql.incremental.nodes import (
    IN,
    DistinctNode,
    GroupNode,
    IndexNode,
    Kept,
    Node,
    Outputs,
    Regrouped,
    column_at,
    is_key,
    is_plain,
)
from millpond.sql.incremental.retractions import as_percentile, share_of, taken_back
from millpond.sql.resolve import Input, Resolved
from millpond.sql.typing import type_of
from millpond.types import Column, Schema

_BIGINT = pa.int64()
_CLAUSES = ("having", "order", "limit", "offset", "distinct", "sort", "cluster", "distribute")


def build_group(
    select: exp.Select, frame: Frame, conditions: Sequence[exp.Expr], inputs: Sequence[Input]
) -> GroupNode:
    """Returns the operator of a SELECT that groups the rows of ``frame`` for which ``conditions`` hold."""
    keys = _keys(select)
    key_types = [type_of(k) for k in keys]
    if not all(t is not None and is_plain(t) and is_key(t) for t in key_types):
        raise NotKept("GROUP BY a column that has no exact order")
    calls: list[exp.Expr] = []
    for node in aggregates(select):
        if node not in calls:
            calls.append(node)
    value_types = [type_of(c) for c in calls]
    arguments: list[exp.Expr] = []
    kept = [_kept(select, call_of(c), keys, arguments, inputs) for c in calls]
    again = [c for c, k in zip(calls, kept, strict=True) if k is None]
    if again and not _found_by_keys(frame, keys):
        # Exact sums of floating point numbers may differ from recomputed ones in the last digit, but need no rows; sums
        # of different values keep these.
        arguments = []
        kept = [_kept(select, call_of(c), keys, arguments, inputs, alone=True) for c in calls]
        again = [c for c, k in zip(calls, kept, strict=True) if k is None]
    regrouped = _regrouped(frame, keys, again, conditions) if again else None
    # A change of what only such an aggregate reads is a change of the group: the old and the new row must differ.
    read = list(dict.fromkeys(c for call in again for c in outer_columns(call)))
    columns = [*keys, *arguments, *read]
    child = frame.step(columns, conditions, [None] * len(columns))
    types = [*key_types, *value_types]
    outputs = _outputs(select, keys, calls, types)
    return GroupNode(
        child,
        len(keys),
        tuple(kept),
        regrouped,
        _load(select, keys, calls, kept, arguments, inputs),
        tuple(t for t in key_types if t is not None),
        tuple(t for t in value_types if t is not None),
        outputs,
    )


def build_distinct(select: exp.Expr, child: Node, inputs: Sequence[Input]) -> DistinctNode:
    """Returns the operator of DISTINCT over the rows of ``child``, which ``select`` returns without it."""
    return DistinctNode(child, counted(select, child, inputs, "DISTINCT"))


def counted(select: exp.Expr, child: Node, inputs: Sequence[Input], what: str) -> Resolved:
    """Returns the query of the different rows of ``child``, which ``select`` returns, and how often each occurs."""
    if not child.types or not all(is_key(t) for t in child.types):
        raise NotKept(f"{what} of a number with a floating point")
    made, columns = over_rows(select, child.types)
    made.append("expressions", named(exp.Count(this=exp.Star()), "n"))
    made.set("group", exp.Group(expressions=columns))
    schema = Schema((*(Column(f"k{i}", t) for i, t in enumerate(child.types)), Column("n", _BIGINT)))
    return Resolved(made, schema, used_inputs(made, inputs))


def build_index(select: exp.Expr, child: Node, inputs: Sequence[Input]) -> IndexNode:
    """Returns an index of the rows of ``child``, which ``select`` returns."""
    made, _ = over_rows(select, child.types)
    schema = Schema(tuple(Column(f"k{i}", t) for i, t in enumerate(child.types)))
    return IndexNode(child, Resolved(made, schema, used_inputs(made, inputs)))


def over_rows(select: exp.Expr, types: Sequence[pa.DataType]) -> tuple[exp.Select, list[exp.Expr]]:
    """Returns a SELECT of all columns of a query, named k0, k1, …, and the columns."""
    alias = "__all"
    names = [p.alias_or_name for p in _first_select(select).expressions]
    if len({n.lower() for n in names}) < len(names):
        raise NotKept("a subquery with two columns of one name")
    columns: list[exp.Expr] = [column(alias, Column(n, t)) for n, t in zip(names, types, strict=True)]
    inner = exp.Subquery(this=select.copy(), alias=exp.TableAlias(this=exp.to_identifier(alias, quoted=True)))
    outputs = [named(c.copy(), f"k{i}") for i, c in enumerate(columns)]
    return exp.Select(expressions=outputs, from_=exp.From(this=inner)), columns


def used_inputs(tree: exp.Expr, inputs: Sequence[Input]) -> tuple[Input, ...]:
    names = {t.name for t in tree.find_all(exp.Table)}
    return tuple(i for i in inputs if i.view in names)


def _first_select(query: exp.Expr) -> exp.Select:
    while not isinstance(query, exp.Select):
        query = query.this
    return query


def _keys(select: exp.Select) -> list[exp.Expr]:
    group = select.args.get("group")
    if group is None:
        return []
    if any(group.args.get(k) for k in ("grouping_sets", "cube", "rollup", "all", "totals")):
        raise NotKept("GROUPING SETS, CUBE or ROLLUP")
    if any(isinstance(k, exp.Rollup | exp.Cube | exp.GroupingSets | exp.Literal) for k in group.expressions):
        raise NotKept("GROUPING SETS, CUBE or ROLLUP")
    return list(group.expressions)


def _kept(
    select: exp.Select,
    call: Call,
    keys: Sequence[exp.Expr],
    arguments: list[exp.Expr],
    inputs: Sequence[Input],
    *,
    alone: bool = False,
) -> Kept | None:
    """Returns how the values of a call are taken back; None if a touched group is computed again. ``alone`` says that
    it cannot be, because its rows are not found: then sums of floating point numbers and of different values are kept,
    and variances and percentiles of any numbers.
    """
    if isinstance(call.function, exp.WithinGroup):
        function = as_percentile(call.function)
        if function is None:
            return None
        call = replace(call, function=function)
    row = row_of(call.function)
    if row is None or not (row.by_group or is_chosen(call.function)):
        raise NotKept(f"the aggregate {call.name}")
    if row.retracts is None or call.ignore_nulls:
        return None
    given = call.function.this
    distinct = isinstance(given, exp.Distinct)
    if distinct:
        if len(given.expressions) != 1:
            return None
        given = given.expressions[0]
        if row.name in ("sum", "avg") and not alone:
            return None  # the values need memory, and computing again does not
    if call.function.expressions:
        return None
    argument: exp.Expr | None
    if isinstance(given, exp.Star):
        given = exp.Cast(this=exp.Literal.number(1), to=exp.DataType.build("INT"))
        argument = None if call.condition is None else given
    else:
        argument = given
    if call.condition is not None and argument is not None:
        argument = exp.Case(ifs=[exp.If(this=call.condition.copy(), true=argument.copy())])
    dtype = None if argument is None else type_of(argument)
    floating = dtype is not None and pa.types.is_floating(dtype)
    spread, share = row.name.startswith(("stddev", "var")), share_of(row, call.function)
    narrow = dtype is not None and pa.types.is_integer(dtype) and dtype.bit_width <= 32
    if not alone and (share is not None or (spread and not narrow)):
        return None
    if argument is not None and (dtype is None or not is_plain(dtype) or not (is_key(dtype) or alone)):
        return None
    way = taken_back(row, dtype, distinct=distinct, share=share)
    if way is None:
        return None
    at = None
    if argument is not None:
        arguments.append(argument)
        at = len(keys) + len(arguments) - 1
    summed = not (spread and not narrow) and not (floating and row.name != "count")
    listed = argument is not None and (way.keeps_values or not summed)
    values = _values(select, keys, argument, inputs) if listed and argument is not None else None
    return Kept(row.name, distinct, at, dtype, values, share)


def _bare(select: exp.Select) -> exp.Select:
    made = select.copy()
    for clause in _CLAUSES:
        made.set(clause, None)
    return made


def _values(
    select: exp.Select, keys: Sequence[exp.Expr], argument: exp.Expr, inputs: Sequence[Input]
) -> Resolved:
    """Returns the query of the values of an argument in each group, and how often each occurs."""
    made = _bare(select)
    outputs = [named(k.copy(), f"k{i}") for i, k in enumerate(keys)]
    made.set("expressions", [*outputs, named(argument.copy(), "v"), named(exp.Count(this=exp.Star()), "n")])
    made.set("group", exp.Group(expressions=[*(k.copy() for k in keys), argument.copy()]))
    columns = [Column(f"k{i}", type_of(k)) for i, k in enumerate(keys)]
    schema = Schema((*columns, Column("v", type_of(argument)), Column("n", _BIGINT)))
    return Resolved(made, schema, used_inputs(made, inputs))


def _load(
    select: exp.Select,
    keys: Sequence[exp.Expr],
    calls: Sequence[exp.Expr],
    kept: Sequence[Kept | None],
    arguments: Sequence[exp.Expr],
    inputs: Sequence[Input],
) -> Resolved:
    made = _bare(select)
    outputs: list[tuple[str, exp.Expr]] = [(f"k{i}", k.copy()) for i, k in enumerate(keys)]
    outputs.append(("n", exp.Count(this=exp.Star())))
    for i, (call, how) in enumerate(zip(calls, kept, strict=True)):
        if how is None:
            outputs.append((f"a{i}", call.copy()))
        elif how.values is None and how.argument is not None:
            argument = arguments[how.argument - len(keys)]
            outputs.append((f"n{i}", exp.Count(this=argument.copy())))
            if how.function != "count":
                outputs += _sums(i, how, argument)
    made.set("expressions", [named(o, n) for n, o in outputs])
    schema = Schema(tuple(Column(n, type_of(o)) for n, o in outputs))
    return Resolved(made, schema, used_inputs(made, inputs))


def _sums(at: int, how: Kept, argument: exp.Expr) -> list[tuple[str, exp.Expr]]:
    """Returns the sum of an argument, and for a mean of integers that of its sizes, or for a variance that of its
    squares, in a type that has the digits.
    """
    if how.squares:
        narrow = exp.Cast(this=argument.copy(), to=exp.DataType.build("DECIMAL(10, 0)"))
        square = exp.Mul(this=narrow, expression=narrow.copy())
        return [(f"s{at}", exp.Sum(this=argument.copy())), (f"m{at}", exp.Sum(this=square))]
    if not how.sizes:
        return [(f"s{at}", exp.Sum(this=argument.copy()))]
    wide = exp.Cast(this=argument.copy(), to=exp.DataType.build("DECIMAL(20, 0)"))
    below = exp.LT(this=wide.copy(), expression=exp.Literal.number(0))
    size = exp.Case(ifs=[exp.If(this=below, true=exp.Neg(this=wide.copy()))], default=wide.copy())
    return [(f"s{at}", exp.Sum(this=wide)), (f"m{at}", exp.Sum(this=size))]


def _found_by_keys(frame: Frame, keys: Sequence[exp.Expr]) -> bool:
    """Returns whether the rows of a group are found by its keys."""
    places = [frame.at(k) for k in keys]
    found = tuple(p for p in places if p is not None)
    return bool(keys) and len(found) == len(keys) and finds(frame.node, found)


def _regrouped(
    frame: Frame, keys: Sequence[exp.Expr], calls: Sequence[exp.Expr], conditions: Sequence[exp.Expr]
) -> Regrouped:
    names = [call_of(c).name for c in calls]
    if not keys:
        raise NotKept(f"{names[0]} over all rows")
    if not _found_by_keys(frame, keys):
        raise NotKept(f"{names[0]} of groups whose rows no index finds")
    found = tuple(p for k in keys if (p := frame.at(k)) is not None)
    outputs = [named(frame.over(k), f"k{i}") for i, k in enumerate(keys)]
    outputs += [named(frame.over(c), f"a{i}") for i, c in enumerate(calls)]
    select = exp.Select(
        expressions=outputs, from_=source(IN), group=exp.Group(expressions=[frame.over(k) for k in keys])
    )
    where = all_of([frame.over(c) for c in conditions])
    if where is not None:
        select.set("where", exp.Where(this=where))
    types = [*map(type_of, keys), *map(type_of, calls)]
    schema = Schema(tuple(Column(o.alias, t) for o, t in zip(outputs, types, strict=True)))
    return Regrouped(frame.node, found, Resolved(select, schema, ()))


def _outputs(
    select: exp.Select,
    keys: Sequence[exp.Expr],
    calls: Sequence[exp.Expr],
    types: Sequence[pa.DataType | None],
) -> Outputs:
    if not all(is_plain(t) for t in types):
        raise NotKept("an aggregate that is not a number, text, date, time or Boolean")
    known = [t for t in types if t is not None]
    columns = [column(IN, Column(column_at(i), t)) for i, t in enumerate(known)]
    swaps = list(zip([*calls, *keys], [*columns[len(keys) :], *columns[: len(keys)]], strict=True))
    outputs = [replaced(p.unalias().copy(), swaps) for p in select.expressions]
    having = select.args.get("having")
    where = None if having is None else replaced(having.this.copy(), swaps)
    for node in (*outputs, *([] if where is None else [where])):
        if any(c.table != IN for c in node.find_all(exp.Column)):
            raise NotKept("a correlated subquery")
    wanted = [type_of(p.unalias()) for p in select.expressions]
    return make_outputs(known, outputs, where, wanted)
