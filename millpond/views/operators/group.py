"""Keeps groups: counts, sums and values of each, which changes add to and take from."""

from __future__ import annotations

from collections.abc import Callable, Collection
from sys import getsizeof
from typing import Any

import pyarrow as pa

from millpond.query.evaluate import Evaluator
from millpond.records.retraction import Retraction, Summed
from millpond.records.values import Unfit
from millpond.sql.functions import by_name
from millpond.sql.functions.base import Aggregate
from millpond.sql.incremental.nodes import IN, GroupNode, Kept, column_at
from millpond.sql.incremental.retractions import taken_back
from millpond.views.expressions import Computed, answer_of, picker
from millpond.views.operators.base import Answered, Operator, Recompute, Round
from millpond.views.operators.memory import mean, tidy
from millpond.views.rows import Delta, Row, by_key, net, rows_of, table_of

Load = Callable[[Any, int, Any, Any], None]


class Group(Operator):
    """Keeps groups: ``_groups`` has for each key the number of rows and the states of the aggregates, as a list; the
    state of a regrouped one is its value. A group that did not change since ``load`` is its place in the rows of
    ``_rest``, which the query returned.
    """

    def __init__(self, node: GroupNode, child: Operator, below: Operator | None, evaluator: Evaluator):
        super().__init__(node)
        self._group = node
        self._child = child
        self._below = below
        self._key = picker(range(node.keys))
        self._kept: list[tuple[int, int | None, Retraction]] = []
        self._again = [i for i, a in enumerate(node.aggregates) if a is None]
        for i, aggregate in enumerate(node.aggregates):
            if aggregate is not None:
                self._kept.append((i, aggregate.argument, _retraction_of(aggregate)))
        self._computed = Computed(node.outputs, (*node.key_types, *node.value_types), evaluator)
        self._regroup = None if node.regrouped is None else answer_of(evaluator, node.regrouped.query)
        self._groups: dict[Row, list[Any] | int] = {}
        self._rest: pa.Table | None = None
        self._loads = self._loaded()
        self._values = 0
        """How many values all groups have."""
        self._before: dict[Row, Row | None] = {}

    @property
    def size(self) -> int:
        return len(self._groups) + self._values

    @property
    def bytes(self) -> int:
        """Estimates the memory; the values are counted apart, since some groups may have most of them."""
        kept = {i + 1: kept for i, _, kept in self._kept if kept.keeps_values}
        groups = (
            (key, [s for i, s in enumerate(self._made(g)) if i not in kept])
            for key, g in self._groups.items()
        )
        values = (
            v
            for g in self._groups.values()
            for i, k in kept.items()
            for v in k.values(self._made(g)[i]).items()
        )
        slots = getsizeof(self._groups) + round(len(self._groups) * (mean(groups) + 300 * len(kept)))
        return slots + round(self._values * (mean(values) + 50))

    def clear(self) -> None:
        self._groups, self._values, self._rest = {}, 0, None

    def load(self, answer: Answered) -> None:
        node, width, start = self._group, self._group.keys, self._start
        self._groups, self._values = {} if width else {(): start()}, 0
        found = answer(node.load)
        names = found.column_names
        self._rest = found.select(names[width:])
        self._groups.update(zip(rows_of(found, names[:width]), range(found.num_rows), strict=True))
        for i, aggregate in enumerate(node.aggregates):
            if aggregate is not None and aggregate.values is not None:
                add = self._retraction(i).add
                for key, (value, times) in by_key(answer(aggregate.values), width):
                    group = self._at(key)
                    assert group is not None
                    add(group[i + 1], value, times)
        kept = [(i + 1, kept) for i, _, kept in self._kept if kept.keeps_values]
        if kept:
            groups = [group for key in list(self._groups) if (group := self._at(key)) is not None]
            self._values = sum(len(k.values(group[i])) for group in groups for i, k in kept)

    def _at(self, key: Row) -> list[Any] | None:
        """Returns a group with the states of its aggregates; None if there is none."""
        found = self._groups.get(key)
        if type(found) is int:
            found = self._groups[key] = self._made(found)
        return found  # type: ignore[return-value]

    def _made(self, found: list[Any] | int) -> list[Any]:
        """Returns the states of the aggregates of a group."""
        if not isinstance(found, int):
            return found
        rest = self._rest
        assert rest is not None
        (row,) = rows_of(rest.slice(found, 1), rest.column_names)
        group = self._start()
        group[0] = row[0]
        for place, load, count, total, size in self._loads:
            if load is None:
                group[place] = row[count]
            else:
                load(group[place], row[count], total and row[total], size and row[size])
        return group

    def _loaded(self) -> list[tuple[int, Load | None, int, int, int]]:
        """Returns for each aggregate its place in a group, what sets its state, and where in a row of ``load``, behind
        the keys, its count, its sum and the sum of its sizes are, 0 if they are not; or where its value is.
        """
        found: list[tuple[int, Load | None, int, int, int]] = []
        at = 1
        for i, aggregate in enumerate(self._group.aggregates):
            if aggregate is None:
                found.append((i + 1, None, at, 0, 0))
                at += 1
            elif aggregate.values is None and aggregate.argument is not None:
                total = 0 if aggregate.function == "count" else at + 1
                size = max(at, total) + 1 if aggregate.sizes or aggregate.squares else 0
                retraction = self._retraction(i)
                assert isinstance(retraction, Summed)
                found.append((i + 1, retraction.load, at, total, size))
                at = max(at, total, size) + 1
        return found

    def changed(self, round_: Round) -> Delta:
        found = self._child.changes(round_)
        width, groups, at, start = self._group.keys, self._groups, self._at, self._start
        touched: dict[Row, Row | None] = {}
        for row, weight in found:
            key = row[:width]
            group = at(key)
            if key not in touched:
                touched[key] = None if group is None else self._read(key, group)
                if group is None:
                    group = groups[key] = start()
            assert group is not None
            group[0] += weight
            for i, argument, kept in self._kept:
                if argument is not None and kept.keeps_values:
                    values = kept.values(group[i + 1])
                    there = len(values)
                    kept.add(group[i + 1], row[argument], weight)
                    self._values += len(values) - there
                    if len(values) < there:
                        tidy(values)
                elif argument is not None:
                    kept.add(group[i + 1], row[argument], weight)
        if self._again:
            self._touch_regrouped(round_, touched)
        self._before = touched
        if self._again and touched:
            self._compute_again(round_, touched)
        delta: Delta = []
        for key, old in touched.items():
            group = at(key)
            assert group is not None
            if group[0] < 0:
                raise Recompute("a group has lost more rows than it had")
            new = self._read(key, group)
            if not group[0] and width:
                del groups[key]
            if old != new:
                delta += [(old, -1)] if old is not None else []
                delta += [(new, 1)] if new is not None else []
        return net(self._computed.apply(delta))

    def rows(self, round_: Round, columns: tuple[int, ...], keys: Collection[Row], *, old: bool) -> Delta:
        picks = self._group.outputs.picks
        width = self._group.keys if columns else 0
        order = picker([next(i for i, c in enumerate(columns) if picks[c] == k) for k in range(width)])
        found: Delta = []
        for key in map(order, keys) if columns else self._listed(round_):
            if old and key in self._before:
                row = self._before[key]
            else:
                group = self._at(key)
                row = None if group is None else self._read(key, group)
            if row is not None:
                found.append((row, 1))
        return self._computed.apply(found)

    def _listed(self, round_: Round) -> set[Row]:
        """Returns the keys of all groups, before the round and now."""
        round_.expect(len(self._groups))
        return {*self._groups, *self._before}

    def end(self) -> None:
        super().end()
        tidy(self._groups)
        self._before = {}

    def _touch_regrouped(self, round_: Round, touched: dict[Row, Row | None]) -> None:
        """Adds the groups of changed rows whose keys and kept arguments are as they were."""
        regrouped, below = self._group.regrouped, self._below
        assert regrouped is not None and below is not None
        key_of = picker(regrouped.keys)
        for row, _ in below.changes(round_):
            key = key_of(row)
            if key not in touched and (group := self._at(key)) is not None:
                touched[key] = self._read(key, group)

    def _compute_again(self, round_: Round, touched: Collection[Row]) -> None:
        """Computes the values that cannot be taken back from the rows of the touched groups."""
        regrouped, below, answer = self._group.regrouped, self._below, self._regroup
        assert regrouped is not None and below is not None and answer is not None
        there = below.find(round_, regrouped.keys, list(touched), old=False)
        types, width = regrouped.child.types, self._group.keys
        rows = [row for row, weight in there for _ in range(weight)]
        names = [column_at(i) for i in range(len(types))]
        found = answer({IN: table_of(rows, names, types)})
        found = found.cast(regrouped.query.schema.arrow())
        for row in rows_of(found, found.column_names):
            group = self._at(row[:width])
            if group is None:
                raise Recompute("a group has rows that did not come")
            for i, value in zip(self._again, row[width:], strict=True):
                group[i + 1] = value

    def _start(self) -> list[Any]:
        states: list[Any] = [None] * (len(self._group.aggregates) + 1)
        states[0] = 0
        for i, _, kept in self._kept:
            states[i + 1] = kept.start()
        return states

    def _retraction(self, aggregate: int) -> Retraction:
        return next(kept for i, _, kept in self._kept if i == aggregate)

    def _read(self, key: Row, group: list[Any]) -> Row | None:
        """Returns the keys and values of a group; None if it has no rows."""
        if not group[0] and key:
            return None
        values = group[1:]
        try:
            for i, argument, kept in self._kept:
                values[i] = group[0] if argument is None else kept.read(group[i + 1])
        except Unfit as reason:
            raise Recompute(str(reason)) from None
        return (*key, *values)


def _retraction_of(kept: Kept) -> Retraction:
    function = by_name()[kept.function]
    assert isinstance(function, Aggregate)
    made = taken_back(function, kept.type, distinct=kept.distinct, share=kept.share)
    assert made is not None
    return made
