"""Generates lookups on a memory table: for each a function that takes the values and finds the rows.

A lookup uses an index, the slots that it returns, and a result that reads their cells on demand: about a microsecond.
If the function does not support something, it returns None, and the general path is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from millpond.lookup import Lookup, Made, Run
from millpond.predicates import Given, Predicate, all_of, givens_of
from millpond.tables._blocks import MASK, SHIFT
from millpond.tables._columns import store_of
from millpond.tables._index import MANY
from millpond.tables._live import LiveTable
from millpond.tables._lookup_results import AggregateAnswer, ColumnAnswer, RowAnswer
from millpond.tables._row_tests import compile_test
from millpond.tables._rows import DAYS, EPOCH

_LONG = 1 << 63
_RECORD = f"blocks[s >> {SHIFT}].row(s & {MASK})"
_EPOCH_UTC = EPOCH.replace(tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def compile_lookup(table: LiveTable, lookup: Lookup, step: Iterator[int], made: Made) -> Run:
    """Returns the function that runs the lookup; it counts its results with ``next(step)``."""
    stores = [store_of(f.type) for f in table.schema.arrow()]
    way = _Way(table, lookup)
    scope: dict[str, Any] = {
        "table": table,
        "step": step,
        "made": made,
        "columns": way.columns,
        "micros": _micros,
    }
    for n, given in enumerate(way.givens):
        scope |= {f"k{n}": given.kind, f"f{n}": given.convert}
    if way.test is not None:
        scope["test"] = compile_test(way.test, table.schema, stores, way.names)
    if lookup.row is not None:
        scope |= {"answer": RowAnswer(lookup), "row": lookup.row}
        last = f"return made(answer, [row({_RECORD}, {way.arguments}) for s in slots], slots)"
    elif lookup.outputs[0].function is None:
        scope["answer"] = ColumnAnswer(table.schema, lookup, stores)
        last = "return made(answer, blocks, slots)"
    else:
        answer = AggregateAnswer(table.schema, lookup, stores)
        scope |= {"answer": answer, "over": answer.over}
        last = "return made(answer, over(blocks, slots), None)"
    lines = [*way.lines(), "next(step)", last]
    exec("\n    ".join([f"def run({way.arguments}):", *lines]), scope)
    run: Run = scope["run"]
    return run


class _Way:
    """Describes how a lookup finds its slots, as lines of Python."""

    def __init__(self, table: LiveTable, lookup: Lookup):
        self._schema = table.schema
        self._lookup = lookup
        self._equal = {c.column: c.value for c in lookup.equal}
        self.columns = lookup.columns(table.key, table.declared)
        self._by_key = self.columns == table.key
        tests = [c for c in lookup.equal if c.column not in self.columns]
        self.test: Predicate | None = all_of(*tests, lookup.test)
        self._limit = lookup.limit
        keys = [self._equal[c] for c in self.columns] if lookup.among is None else lookup.among.values
        self.givens = [*keys, *givens_of(self.test), *([] if lookup.limit is None else [lookup.limit])]
        self.names = {id(given): f"w{n}" for n, given in enumerate(self.givens)}
        self.arguments = ", ".join(f"v{at}" for at in range(lookup.givens))

    def lines(self) -> Iterator[str]:
        checks = dict.fromkeys(_check(n, given) for n, given in enumerate(self.givens))
        if self._limit is not None:
            checks[f"v{self._limit.at} >= 0"] = None
        yield f"if not ({' and '.join(checks)}): return None"
        for n, given in enumerate(self.givens):
            value = f"v{given.at}" if given.convert is None else f"f{n}(v{given.at})"
            yield f"w{n} = {value}"
        yield from self._slots()
        if self.test is not None:
            values = "".join(f", {self.names[id(g)]}" for g in givens_of(self.test))
            yield f"if len(slots) > {MANY}: return None"
            yield f"slots = [s for s in slots if blocks[s >> {SHIFT}].reader(test)(s & {MASK}{values})]"
        elif self._lookup.row is not None or any(o.function and o.column for o in self._lookup.outputs):
            yield f"if len(slots) > {MANY}: return None"
        if self._limit is not None:
            yield f"if len(slots) > {self.names[id(self._limit)]}: slots = slots[:{self.names[id(self._limit)]}]"

    def _slots(self) -> Iterator[str]:
        """Yields the lines that find the slots by the index."""
        snapshot = "view = table.snapshot(); blocks = view.blocks"
        among = self._lookup.among
        if among is not None:
            keys = ", ".join(self._index_value(among.column, given) for given in among.values)
            yield f"{snapshot}; slots = view.slots_of_all(columns, list(dict.fromkeys(({keys},))))"
            return
        parts = [self._index_value(name, self._equal[name]) for name in self.columns]
        yield "key = " + ", ".join(parts)
        if self._by_key:
            yield "live = table.live"
            yield "slot = live.newest.get(key, -1); blocks = live.blocks"
            yield "if -1 < slot < live.end: slots = (slot,)"
            yield "elif slot == -1: slots = ()"
            yield f"else: {snapshot}; slots = view.slots_of_key(key)"
        else:
            yield "settled = table.settled; known = settled.get(columns)"
            yield "if known is None:"
            yield f"    {snapshot}; slots = view.slots_of(columns, key); view.settle(settled, columns)"
            yield "else:"
            yield "    look, places, several, blocks = known; group = look(key)"
            yield "    slots = () if group is None else (s,) if (s := places[group]) >= 0 else several(group)"

    def _index_value(self, column: str, given: Given) -> str:
        """Returns the expression of a column's value in an index."""
        name, found = self.names[id(given)], self._schema.find(column)
        assert found is not None
        if pa.types.is_date(found.type):
            return f"{name}.toordinal() - {DAYS}"
        return f"micros({name})" if pa.types.is_timestamp(found.type) else name


def _check(number: int, given: Given) -> str:
    """Returns the test whether a value is of the type that the lookup was made for."""
    name = f"v{given.at}"
    if given.kind is int:
        return f"type({name}) is int and {-_LONG} <= {name} < {_LONG}"
    return f"type({name}) is k{number}"


def _micros(timestamp: datetime) -> int:
    return (timestamp - (EPOCH if timestamp.tzinfo is None else _EPOCH_UTC)) // _MICROSECOND
