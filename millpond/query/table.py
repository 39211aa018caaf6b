"""Offers a table to programs."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Self, TypeAlias

import pyarrow as pa

from millpond.changes import Changes
from millpond.errors import InvalidRecord
from millpond.lookup import Lookup, Run
from millpond.query.conditions import Compiler, Condition, UpdateSet
from millpond.query.evaluate import Evaluator
from millpond.query.home import Alone, Home, declared, no_spark, table_options
from millpond.query.plans import Asked, Plan, Plans
from millpond.query.result import SHOWN, LookupResult, drawn
from millpond.query.single import compile_write
from millpond.query.staged import Begun, StagedTable
from millpond.query.stats import Counter, Health, TableStats
from millpond.query.table_changes import (
    Step,
    check_fields,
    deleted,
    deleted_keys,
    in_turn,
    inserted,
    merged,
    updated,
)
from millpond.query.table_reader import Keys, Reader, Record, Rows, TableSnapshot
from millpond.records import to_arrow, to_rows
from millpond.sql.catalog import Relation
from millpond.sql.filters import resolve_lookup
from millpond.sql.keyed import KeyedWrite
from millpond.tables.base import Backend, Snapshot
from millpond.tables.memory import MemoryTable
from millpond.types import Schema, quote, type_name

__all__ = ["Record", "Table", "TableSnapshot", "TableTransaction"]

_KEPT_OUTPUTS = 64

Records: TypeAlias = Sequence[Record] | pa.Table | pa.RecordBatch
Conditional: TypeAlias = tuple[str | Condition | Record, str | Record | UpdateSet]
"""A condition, and what is changed under it."""


class Table(Reader):
    """Rows by key and by condition. Reading sees committed rows only and never waits for a writer.

    It works without an app and without Spark:

    >>> users = Table({"id": "INT", "name": "STRING", "tier": "STRING"}, key="id")
    >>> users.insert({"id": 7, "name": "Ann", "tier": "GOLD"})

    ``columns`` is a mapping from names to SQL types, or a text as in CREATE TABLE; ``key`` is a column or several;
    ``options`` are those of WITH (…) that a table in memory takes: ``{"on.conflict": "error"}``.
    """

    def __init__(
        self,
        columns: Mapping[str, str] | str | Schema,
        key: str | Sequence[str] = (),
        *,
        name: str = "table",
        options: Mapping[str, str] | None = None,
    ):
        schema = declared(columns, key)
        values = table_options(schema, options or {}, f'table "{name}"')
        relation = Relation(name, "table", schema, strict=values["on.conflict"] == "error")
        backend = MemoryTable.open(name, schema, values)
        self._set_up(Compiler(relation, Evaluator(no_spark)), backend, Alone(name, backend))
        self._options = dict(options or {})

    @classmethod
    def of(cls, relation: Relation, backend: Backend, evaluator: Evaluator, home: Home) -> Self:
        """The table over a backend whose changes are made at ``home``."""
        table = cls.__new__(cls)
        table._set_up(Compiler(relation, evaluator), backend, home)
        return table

    def with_rows_of(self, backend: Backend, home: Home) -> Table:
        """The same table over other rows, with another home for their changes; what is compiled is shared."""
        table = Table.__new__(Table)
        table._set_up(self._compiler, backend, home)
        return table

    def _set_up(self, compiler: Compiler, backend: Backend, home: Home) -> None:
        super().__init__(compiler)
        self._backend = backend
        self._home = home
        self._strict = compiler.relation.strict
        self._paging = threading.local()
        self._hits = Counter()
        self._misses = Counter()
        self._plans: dict[str, Plans[LookupResult]] = {}
        # Reading by key is the hot path: the backend's own functions stand in the place of the methods.
        get, has = backend.quick_reads(self._lookups.step, self.get_record, self.contains)
        vars(self).update(get_record=get, contains=has)

    @property
    def alone(self) -> bool:
        """Whether it belongs to no app."""
        return isinstance(self._home, Alone)

    @property
    def declaration(self) -> str:
        """What stands between the brackets of its CREATE TABLE, and the options of a table without an app."""
        columns = [
            f"{quote(c.name)} {type_name(c.type)}" + ("" if c.nullable else " NOT NULL") for c in self.schema
        ]
        if self.schema.key:
            columns.append(f"PRIMARY KEY ({', '.join(map(quote, self.schema.key))})")
        options = ", ".join(f"'{k}' = '{v}'" for k, v in self._options.items())
        return f"({', '.join(columns)})" + (f" WITH ({options})" if options else "")

    def become(self, other: Table) -> None:
        """From now on it is the other one, with its rows."""
        self._set_up(other._compiler, other._backend, other._home)

    def stands_for(self, relation: Relation, backend: Backend) -> bool:
        """Whether this is the table over that backend, as the relation describes it."""
        return self._backend is backend and self._compiler.relation is relation

    def _view(self) -> Snapshot:
        return self._backend.snapshot()

    def count_query(self) -> None:
        """Notes for the statistics that a statement looked at all rows."""
        next(self._queries.step)

    def compile_lookup(self, lookup: Lookup) -> Run | None:
        """A function that runs the lookup, if the backend has a short way for it."""
        next(self._misses.step)
        return self._backend.compile_lookup(lookup, self._hits.step, LookupResult)

    def compile_write(self, write: KeyedWrite, *, now: bool = False) -> Run:
        """A function that makes the change with the values that come, and answers how many rows it touches; None where
        they need the long way, and with ``now`` where it would have to wait."""
        return compile_write(write, self._home.now if now else self._home, strict=self._strict)

    def _look(self, output: str, condition: str | Condition | None) -> LookupResult | None:
        if type(condition) is not str:
            return None
        plans = self._plans.get(output)
        if plans is None:
            if len(self._plans) >= _KEPT_OUTPUTS:
                self._plans.clear()
            plans = self._plans[output] = Plans(partial(self._plan, output))
        return plans.find(condition)

    def _plan(self, output: str, asked: Asked) -> Plan | None:
        lookup = resolve_lookup(self._compiler.relation, (output,), asked.text, asked.template)
        run = None if lookup is None else self.compile_lookup(lookup)
        return None if run is None else Plan(run)

    # changes

    def insert(self, record: Record) -> None:
        """Adds a record; on a table with a primary key it replaces the one with its key.

        >>> users.insert({"id": 7, "name": "Ann", "tier": "GOLD"})
        """
        if self._home.put(record, self._strict) is None:
            self.bulk_insert([record])

    def bulk_insert(self, records: Records) -> int:
        """Adds records, all or none, and answers how many they were.

        >>> users.bulk_insert([{"id": 8, "name": "Bob"}, {"id": 9, "name": "Cid"}])
        2
        """
        what = self._compiler.what
        rows = to_arrow(self.schema, records, what=what)
        if self._strict:
            self._home.change(lambda view: inserted(view, rows, what))
        else:
            self._home.commit(Changes(rows))
        return int(rows.num_rows)

    def update(
        self,
        condition: str | Condition | Record | None = None,
        changes: str | Record | UpdateSet | None = None,
        **equal: Any,
    ) -> int:
        """Changes the records under a condition, as they are now, and returns how many.

        ``changes`` is a mapping with values, or a text with any expressions. If one record fails, none is changed.

        >>> items.update("category = 'Electronics'", "price = price * 1.1")
        >>> items.update({"id": 7}, {"price": 9})
        >>> items.update(id=7, changes={"price": 9})
        """
        if changes is None:
            raise InvalidRecord("an update needs changes", hint='update("id = 7", {"price": 9})')
        compiled, wanted = self._wanted(condition, equal)
        key = self._key_in(compiled, wanted)
        if key is not None and (type(changes) is dict or isinstance(changes, Mapping)):
            count = self._home.patch(key, changes)
            if count is not None:
                return count
        sets = self._compiler.update_set(changes)
        if key is not None and sets.single is not None and not sets.moves_key:
            count = self._home.patch(key, sets.single)
            if count is not None:
                return count
        return self._home.change(lambda view: updated(self._compiler, view, compiled, wanted, sets))

    def bulk_update(self, records: Sequence[Record | Conditional]) -> int:
        """Changes the fields that each record names, in the row with its key; all or none. Keys that are not there
        are left out of the count, and nothing is added.

        Pairs of a condition and changes, as ``update`` takes them, are done one after the other, in one commit; a row
        counts each time that it is changed.

        >>> users.bulk_update([{"id": 8, "tier": "GOLD"}, {"id": 9, "tier": "SILVER"}])
        2
        >>> users.bulk_update([("age > 65", {"tier": "GOLD"}), ({"tier": "IRON"}, "age = age + 1")])
        """
        given = list(records)
        pairs = [pair for pair in given if not isinstance(pair, Mapping)]
        if not pairs:
            named = [record for record in given if isinstance(record, Mapping)]
            self._key_columns()
            check_fields(self.schema, named, self._compiler.what)
            return self._home.change(lambda view: merged(self.schema, view, named, self._compiler.what))
        if len(pairs) < len(given) or not all(isinstance(p, tuple) and len(p) == 2 for p in pairs):
            raise InvalidRecord(
                f"a bulk update of {self._compiler.what} takes records, or pairs of a condition and changes",
                hint='bulk_update([("age > 65", {"tier": "GOLD"})])',
            )
        steps = [self._update_step(*pair) for pair in pairs]
        return self._home.change(lambda view: in_turn(view, steps))

    def _update_step(self, condition: str | Condition | Record, changes: str | Record | UpdateSet) -> Step:
        compiled, wanted = self._wanted(condition, {})
        sets = self._compiler.update_set(changes)
        return lambda view: updated(self._compiler, view, compiled, wanted, sets)

    def delete(self, condition: Any = None, **equal: Any) -> int:
        """Deletes the records under a condition, with a key, or with these values, and answers how many. A text is
        a condition; a key that is text is given by name.

        >>> users.delete("age > 65"), users.delete(7), users.delete(id=8)
        """
        if condition is None and not equal:
            raise InvalidRecord("a delete needs a condition", hint='delete("true") deletes all records')
        if condition is not None and not isinstance(condition, (str, Condition, Mapping)):
            count = self._home.drop(condition)
            return self.bulk_delete([condition]) if count is None else count
        compiled, wanted = self._wanted(condition, equal)
        key = self._key_in(compiled, wanted)
        count = None if key is None else self._home.drop(key)
        if count is not None:
            return count
        return self._home.change(lambda view: deleted(self._compiler, view, compiled, wanted))

    def bulk_delete(self, keys: Keys | str | Condition) -> int:
        """Deletes the records with these keys, or under one of these conditions, all in one step, and answers how
        many there were. A text is a key or a condition as in ``contains``.

        >>> users.bulk_delete([7, 8, 9])
        >>> users.bulk_delete(["age > 65", {"tier": "IRON"}])
        """
        if isinstance(keys, (pa.Table, pa.RecordBatch)):
            columns = list(self._key_columns())
            wanted = self._join_keys(columns, keys).select(columns)
            return self._home.change(lambda view: deleted_keys(view, wanted))
        given = [keys] if isinstance(keys, (str, Condition, Mapping)) else list(keys)
        conditions = [c for c in given if self._is_condition(c)]
        steps = [self._delete_step(c) for c in conditions]
        rest = [key for key in given if not self._is_condition(key)] if conditions else given
        if rest or not steps:
            by_key = self._key_table(rest)
            steps.append(lambda view: deleted_keys(view, by_key))
        return self._home.change(steps[0] if len(steps) == 1 else lambda view: in_turn(view, steps))

    def _is_condition(self, given: Any) -> bool:
        return isinstance(given, (Condition, Mapping)) or (isinstance(given, str) and not self._text_key)

    def _delete_step(self, condition: str | Condition | Record) -> Step:
        compiled, wanted = self._wanted(condition, {})
        return lambda view: deleted(self._compiler, view, compiled, wanted)

    def _wanted(
        self, condition: str | Condition | Record | None, equal: Record
    ) -> tuple[Condition | None, Record]:
        if type(condition) is dict or isinstance(condition, Mapping):
            return None, {**condition, **equal} if equal else condition
        return None if condition is None else self._compiler.condition(condition), equal

    # other views of it

    def begin_transaction(self) -> TableTransaction:
        """Changes of the table that become one commit, or none: the table as it is now, with changes that nobody else
        sees until the end. ``app.begin_transaction`` is for several tables.

        >>> with users.begin_transaction() as changed:
        ...     changed.insert({"id": 10, "name": "Eve"})
        ...     changed.delete("age > 65")
        """
        return TableTransaction(self, self._home.begin())

    def snapshot(self) -> TableSnapshot:
        """The table as it is now, for reading; it stays so while writers go on, and costs nothing.

        >>> before = users.snapshot()
        >>> users.delete("true")
        >>> len(before)
        3
        """
        return TableSnapshot(self._compiler, self._view())

    def clone(self, name: str | None = None) -> Table:
        """A table of its own, in memory, with the same columns, key and rows.

        >>> copy = users.clone()
        """
        other = Table(self.schema, name=name or self.name)
        other.bulk_insert(self._view().scan())
        return other

    def query_batch(self, limit: int, offset: int = 0) -> Rows:
        """A page of the records. A thread that goes on where its last page ended keeps the snapshot of that page, so
        that no record is missed or seen twice while writers go on; any other page is read as of now.

        >>> page, offset = users.query_batch(100), 100
        >>> while page:
        ...     page, offset = users.query_batch(100, offset), offset + 100
        """
        view: Snapshot | None = None
        if offset and getattr(self._paging, "next", None) == offset:
            view = self._paging.view
        view = view or self._view()
        rows = self._page(view, limit, offset)
        full = rows.num_rows == limit and limit > 0
        self._paging.next, self._paging.view = (offset + limit, view) if full else (None, None)
        return to_rows(rows)

    # about it

    def get_stats(self) -> TableStats:
        """Numbers about the table: rows, bytes, last update, lookups and more. Cheap: no lock, no scan; but how far a
        table is behind a topic is asked of the brokers.

        >>> users.get_stats().rows
        3
        """
        about = self._backend.stats()
        return TableStats(
            rows=about.pop("rows"),
            bytes=about.pop("bytes"),
            last_update=about.pop("changed_at", None),
            source=self._home.health()[0],
            lookups=self._lookups.value + self._hits.value,
            queries=self._queries.value,
            query_cache_hits=self._hits.value,
            query_cache_misses=self._misses.value,
            evictions=about.pop("evictions", 0),
            spilled_bytes=about.pop("spilled_bytes", 0),
            more=about | self._home.followed(),
        )

    def health_check(self) -> Health:
        """Whether the table can be relied on: healthy, loading, static, stale, missing, disconnected; and why.

        >>> users.health_check().status
        'healthy'
        """
        return self._home.health()[1]

    def __repr__(self) -> str:
        return f"<Table {self.name}: {len(self)} rows>"

    def _repr_html_(self) -> str:
        """The table in a notebook, at most 100 rows of it."""
        return drawn(self._page(self._view(), SHOWN, 0), len(self))


class TableTransaction(Table):
    """A table in a transaction: all methods of a table, on the rows as of its beginning with its own changes.

    ``commit`` makes all changes count at once; if another commit has changed one of the rows in between it raises
    Conflict, and nothing is changed. As a context manager it commits at the end, and rolls back when the block raises.
    One thread uses it.
    """

    def __init__(self, table: Table, begun: Begun):
        self._begun = begun
        begun.snapshot(table.name)  # a table of a database is as of the first time that it is asked for
        staged = StagedTable(begun, table.name, table._backend)
        self._set_up(table._compiler, staged, staged)

    def commit(self) -> None:
        """Makes the changes count. Raises Conflict when another commit came first; then nothing has changed."""
        self._begun.commit()

    def rollback(self) -> None:
        """Forgets the changes. It may be called twice."""
        self._begun.rollback()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if not self._begun.open:
            return
        if kind is None:
            self.commit()
        else:
            self.rollback()
