"""Splits a live aggregate into three queries: partial over a batch, merge with the state, final for a reader."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from sqlglot import exp

from millpond.sql.aggregate.final import build_final
from millpond.sql.aggregate.find import Call, aggregates, call_of, grouping_select, row_of
from millpond.sql.aggregate.model import COUNT, FRESH, PARTIAL, ROWS, Aggregation, Kept, WindowKey
from millpond.sql.aggregate.nodes import cast, column, double, filtered, fitted, named, number, source, struct
from millpond.sql.aggregate.parts import Part, Value, same
from millpond.sql.aggregate.values import Values, distinct_values, kept_values, over_fresh
from millpond.sql.nodes import WindowStart
from millpond.sql.order import seq_column
from millpond.sql.resolve import Input, Resolved
from millpond.sql.running_queries import Streams
from millpond.sql.typing import type_of
from millpond.sql.windowing import Window
from millpond.types import Column, Schema

_BIGINT = pa.int64()


@dataclass(slots=True)
class _Slot:
    """Describes a table of kept values, and what reads it."""

    values: Values
    fresh: bool
    parts: list[tuple[int, Part]] = field(default_factory=list)
    readers: list[tuple[str, exp.Expr, pa.DataType]] = field(default_factory=list)


@dataclass(slots=True)
class _Work:
    """Collects what the calls of a query need."""

    seq: exp.Expr
    session: bool
    values: list[tuple[Value, exp.Expr]] = field(default_factory=list)
    """Each kept value with what the batch returns for it."""
    parts: list[tuple[int, Part]] = field(default_factory=list)
    slots: list[_Slot] = field(default_factory=list)
    read: list[tuple[exp.Expr, Callable[[Sequence[exp.Column]], exp.Expr]]] = field(default_factory=list)
    """Each call with its expression in the final query, over the columns of the state."""

    def slot(self, values: Values, *, fresh: bool) -> int:
        for number_, slot in enumerate(self.slots):
            if slot.values == values and slot.fresh == fresh:
                return number_
        self.slots.append(_Slot(values, fresh))
        return len(self.slots) - 1

    def add(self, node: exp.Expr) -> None:
        call = call_of(node)
        values = distinct_values(call)
        row = row_of(call.function)
        build = None if row is None else row.keeps
        if values is not None and self.session:
            # Joined sessions may have a value in common, so all of them are needed to decide.
            values, build = None, None
        if values is not None and build is not None:
            number_ = self.slot(values, fresh=True)
            part = build(over_fresh(call, FRESH, values), self.seq)
            at = self._keep(part, [_nothing(v) for v in part.values])
            self.slots[number_].parts.append((at, part))
            self._read_part(node, at, part)
        elif build is not None:
            part = build(call, self.seq)
            self._read_part(node, self._keep(part, [v.partial for v in part.values]), part)
        else:
            values, over = kept_values(call)
            number_ = self.slot(values, fresh=False)
            name = f"h{len(self.slots[number_].readers)}"
            dtype = type_of(node)
            assert dtype is not None
            self.slots[number_].readers.append((name, over(_view(number_)), dtype))
            joined = _reader(number_, name, dtype, counts=isinstance(call.function, exp.Count))
            self.read.append((node, lambda columns: joined))

    def last_time(self, time: exp.Expr) -> str:
        """Returns the value that stores the highest time of a session."""
        part = same(exp.Max)(Call(exp.Max(this=time.copy()), None, False), self.seq)
        return f"a{self._keep(part, [v.partial for v in part.values])}"

    def _keep(self, part: Part, given: Sequence[exp.Expr]) -> int:
        at = len(self.values)
        self.values += zip(part.values, given, strict=True)
        self.parts.append((at, part))
        return at

    def _read_part(self, node: exp.Expr, at: int, part: Part) -> None:
        until = at + len(part.values)
        self.read.append((node, lambda columns: part.final([c.copy() for c in columns[at:until]])))


def split(resolved: Resolved) -> Aggregation:
    """Returns the three queries of an aggregate that ``check_aggregate`` accepts."""
    original = grouping_select(resolved.expression)
    assert original is not None
    select = original.copy()
    views = Streams(Resolved(select, resolved.schema, resolved.inputs))
    window: Window | None = original.meta.get("window")
    session = window is not None and window.kind == "session"
    work = _Work(seq_column(select, views) or number(0, _BIGINT), session)
    seen: list[exp.Expr] = []
    for node in aggregates(original):
        if node not in seen:
            seen.append(node)
            work.add(node.copy())
    group = original.args.get("group")
    keys = [k.copy() for k in group.expressions] if group is not None else []
    last = work.last_time(keys[0].this) if session else None
    key_columns = [Column(f"k{i}", type_of(k)) for i, k in enumerate(keys)] or [
        Column("k0", pa.int8(), False)
    ]
    value_columns = [Column(f"a{i}", v.dtype) for i, (v, _) in enumerate(work.values)]
    state = Schema((*key_columns, *value_columns), tuple(c.name for c in key_columns))
    kept = tuple(_kept(i, s, state, work) for i, s in enumerate(work.slots))
    return Aggregation(
        state=state,
        partial=_partial(resolved, select, keys or [number(0, pa.int8())], work, state, counted=bool(window)),
        merge=_merge(work, state),
        final=build_final(resolved, original, keys, work.read, state, _readings(work, state)),
        keys=_output_keys(original, keys, session=session),
        kept=kept,
        window=WindowKey(window, "k0", last) if window is not None else None,
        once=bool(original.meta.get("distinct")),
    )


def _nothing(value: Value) -> exp.Expr:
    """Returns what a batch contributes to a value that is computed from its fresh values: a count of 0, or NULL."""
    if isinstance(value.partial, exp.Count):
        return number(0, _BIGINT)
    return cast(exp.Null(), value.dtype)


def _view(slot: int) -> str:
    return f"__kept{slot}"


def _reader(slot: int, name: str, dtype: pa.DataType, *, counts: bool) -> exp.Expr:
    """Returns the value of a function over kept values; without values, a count is 0 and a list is empty."""
    found = column(f"__read{slot}", Column(name, dtype))
    if counts:
        return exp.Coalesce(this=found, expressions=[number(0, dtype)])
    if pa.types.is_list(dtype):
        return exp.Coalesce(this=found, expressions=[cast(exp.Array(expressions=[]), dtype)])
    return found


def _kept(slot_number: int, slot: _Slot, state: Schema, work: _Work) -> Kept:
    keys = state.columns[: len(state.key)]
    schema = Schema(
        (*keys, *slot.values.columns, Column(COUNT, _BIGINT)),
        (*state.key, *(c.name for c in slot.values.columns)),
    )
    fresh = _fresh(slot, state) if slot.fresh else None
    return Kept(f"l{slot_number}", _view(slot_number), schema, fresh)


def _fresh(slot: _Slot, state: Schema) -> Resolved:
    width = len(state.key)
    keys = [column(FRESH, c) for c in state.columns[:width]]
    chosen: list[Column] = list(state.columns[:width])
    outputs: list[exp.Expr] = [named(k.copy(), k.name) for k in keys]
    for at, part in slot.parts:
        for i, value in enumerate(part.values):
            target = state.columns[width + at + i]
            chosen.append(target)
            outputs.append(named(fitted(value.partial.copy(), target.type), target.name))
    select = exp.Select(expressions=outputs, from_=source(FRESH), group=exp.Group(expressions=keys))
    return Resolved(select, Schema(tuple(chosen)), ())


def _partial(
    resolved: Resolved, made: exp.Select, keys: list[exp.Expr], work: _Work, state: Schema, *, counted: bool
) -> Resolved:
    outputs = [
        named(fitted(o.copy(), c.type), c.name)
        for o, c in zip([*keys, *(given for _, given in work.values)], state, strict=True)
    ]
    columns = list(state.columns)
    for i, slot in enumerate(work.slots):
        given = (work.seq, *slot.values.values) if slot.values.ordered else slot.values.values
        fields = [(c.name, v) for c, v in zip(slot.values.columns, given, strict=True)]
        array = filtered(exp.ArrayAgg(this=struct(fields)), slot.values.condition)
        outputs.append(named(array, f"l{i}"))
        columns.append(Column(f"l{i}", type_of(array)))
    if counted:
        outputs.append(named(exp.Count(this=exp.Star()), ROWS))
        columns.append(Column(ROWS, _BIGINT))
    made.set("expressions", outputs)
    made.set("having", None)
    return Resolved(made, Schema(tuple(columns)), used_inputs(made, resolved.inputs))


def used_inputs(tree: exp.Expr, inputs: Sequence[Input]) -> tuple[Input, ...]:
    names = {t.name for t in tree.find_all(exp.Table)}
    return tuple(i for i in inputs if i.view in names)


def _merge(work: _Work, state: Schema) -> Resolved:
    width = len(state.key)
    keys = [column(PARTIAL, c) for c in state.columns[:width]]
    columns = [column(PARTIAL, c) for c in state.columns[width:]]
    outputs: list[exp.Expr] = [named(k.copy(), k.name) for k in keys]
    centres: list[exp.Expr] = []
    for at, part in work.parts:
        own: list[exp.Expr] = list(columns[at : at + len(part.values)])
        means = [_centre(own[n], own[m], keys) for n, m in part.centres]
        own += [column(PARTIAL, Column(f"c{len(centres) + i}", pa.float64())) for i in range(len(means))]
        centres += means
        for value, target in zip(part.values, columns[at : at + len(part.values)], strict=True):
            outputs.append(named(fitted(value.merge(own), type_of(target)), target.name))
    rows = source(PARTIAL)
    if centres:
        inner = exp.Select(
            expressions=[
                *(named(c.copy(), c.name) for c in (*keys, *columns)),
                *(named(c, f"c{i}") for i, c in enumerate(centres)),
            ],
            from_=source(PARTIAL),
        )
        alias = exp.TableAlias(this=exp.to_identifier(PARTIAL, quoted=True))
        rows = exp.From(this=exp.Subquery(this=inner, alias=alias))
    select = exp.Select(expressions=outputs, from_=rows, group=exp.Group(expressions=keys))
    return Resolved(select, Schema(state.columns), ())


def _centre(count: exp.Expr, mean: exp.Expr, keys: Sequence[exp.Expr]) -> exp.Expr:
    """Returns the mean over all rows of the group: each row's mean weighted by its count."""

    def over(item: exp.Expr) -> exp.Expr:
        return exp.Window(this=exp.Sum(this=item), partition_by=[k.copy() for k in keys])

    weighted = exp.Mul(this=double(count.copy()), expression=mean.copy())
    counted = exp.Nullif(this=double(over(count.copy())), expression=number(0, pa.float64()))
    return exp.Div(this=over(weighted), expression=counted)


def _readings(work: _Work, state: Schema) -> list[exp.Join]:
    """Returns the functions over kept values, joined to the state of their groups."""
    joins: list[exp.Join] = []
    width = len(state.key)
    for i, slot in enumerate(work.slots):
        if not slot.readers:
            continue
        keys = [column(_view(i), c) for c in state.columns[:width]]
        inner = exp.Select(
            expressions=[
                *(named(k.copy(), k.name) for k in keys),
                *(named(fitted(value, dtype), name) for name, value, dtype in slot.readers),
            ],
            from_=source(_view(i)),
            group=exp.Group(expressions=keys),
        )
        view = f"__read{i}"
        equal = [
            exp.NullSafeEQ(this=column("__merged", c), expression=column(view, c))
            for c in state.columns[:width]
        ]
        alias = exp.TableAlias(this=exp.to_identifier(view, quoted=True))
        on = exp.and_(*equal, copy=False)
        joins.append(exp.Join(this=exp.Subquery(this=inner, alias=alias), side="LEFT", on=on))
    return joins


def _output_keys(select: exp.Select, keys: list[exp.Expr], *, session: bool) -> tuple[str | None, ...]:
    """Returns the outputs that are grouping columns; for a window also its end, or both, if these follow from its
    start.
    """
    outputs = {p.alias: p.unalias() for p in select.expressions}
    found: list[str | None] = []
    for key in keys:
        name = next((n for n, o in outputs.items() if o == key), None)
        if name is None and isinstance(key, WindowStart) and not session:
            same = (exp.Paren, exp.Struct)
            name = next(
                (n for n, o in outputs.items() if isinstance(o, same) and key in o.find_all(WindowStart)),
                None,
            )
        found.append(name)
    return tuple(found)
