"""Defines Table, the table API for programs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Self, TypeAlias

import pyarrow as pa

from millpond.changes import Changes
from millpond.errors import InvalidRecord
from millpond.lookup import Lookup, Run
from millpond.query.conditions import Compiler, Condition, UpdateSet
from millpond.query.evaluate import Evaluator
from millpond.query.keyed_writes import compile_write
from millpond.query.output_plans import OutputPlans
from millpond.query.pages import Pages
from millpond.query.result import SHOWN, LookupResult, drawn
from millpond.query.stats import Counter, Health, TableStats
from millpond.query.table_changes import (
    Step,
    change_compiled,
    check_fields,
    conditional_pairs,
    deleted,
    deleted_keys,
    in_turn,
    inserted,
    merged,
    updated,
)
from millpond.query.table_reader import Keys, Reader, Record, Rows, TableSnapshot
from millpond.query.table_writer import LocalWriter, Writer, declaration_of, declared, no_spark, table_options
from millpond.query.transaction_table import Begun, StagedTable
from millpond.records import to_arrow, to_rows
from millpond.sql.catalog import Relation
from millpond.sql.keyed_statements import KeyedWrite
from millpond.tables.base import Backend, Snapshot
from millpond.tables.memory import MemoryTable
from millpond.types import Schema

__all__ = ["Record", "Table", "TableSnapshot", "TableTransaction"]
Records: TypeAlias = Sequence[Record] | pa.Table | pa.RecordBatch
Conditional: TypeAlias = tuple[str | Condition | Record, str | Record | UpdateSet]
"""A condition, and what is changed under it."""


class Table(Reader):
    """Reads and changes rows by key and by condition. Reading sees committed rows only and never waits for a writer.

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
        self._set_up(Compiler(relation, Evaluator(no_spark)), backend, LocalWriter(name, backend))
        self._options = dict(options or {})

    @classmethod
    def of(cls, relation: Relation, backend: Backend, evaluator: Evaluator, writer: Writer) -> Self:
        """Returns the table over a backend whose changes ``writer`` makes."""
        table: Self = cls.__new__(cls)
        table._set_up(Compiler(relation, evaluator), backend, writer)
        return table

    def with_rows_of(self, backend: Backend, writer: Writer, relation: Relation) -> Table:
        """Returns the same table over other rows, with another writer; what is compiled for the relation is shared."""
        table: Table = Table.__new__(Table)
        shared = relation is self.relation
        table._set_up(
            self._compiler if shared else Compiler(relation, self._compiler.evaluator), backend, writer
        )
        return table

    def _set_up(self, compiler: Compiler, backend: Backend, writer: Writer) -> None:
        super().__init__(compiler)
        self._backend = backend
        self._writer = writer
        self._pages = Pages()
        self._hits = Counter()
        self._misses = Counter()
        self._compile_for(compiler)

    def _compile_for(self, compiler: Compiler) -> None:
        self._compiler = compiler
        self._strict = compiler.relation.strict
        self._plans = OutputPlans(compiler.relation, self.compile_lookup)
        # Reading by key is the hot path: the backend's own functions stand in the place of the methods.
        slow = partial(Reader.get_record, self), partial(Reader.contains, self)
        get, has = self._backend.quick_reads(self._lookups.step, *slow)
        vars(self).update(get_record=get, contains=has)

    @property
    def backend(self) -> Backend:
        """Returns the backend that stores its rows."""
        return self._backend

    @property
    def alone(self) -> bool:
        """Returns whether it belongs to no app."""
        return isinstance(self._writer, LocalWriter)

    @property
    def declaration(self) -> str:
        """Returns what is between the brackets of its CREATE TABLE, and the options of a table without an app."""
        return declaration_of(self.schema, self._options)

    def become(self, other: Table) -> None:
        """Replaces it by the other one, with its rows."""
        self._set_up(other._compiler, other._backend, other._writer)

    def reshape(self, relation: Relation, backend: Backend, writer: Writer) -> None:
        """Makes it the table over that backend, which has the columns of the relation and the same rows."""
        self._backend, self._writer = backend, writer
        self._compile_for(Compiler(relation, self._compiler.evaluator))

    def stands_for(self, relation: Relation, backend: Backend) -> bool:
        """Returns whether this is the table over that backend, as the relation describes it."""
        return self._backend is backend and self._compiler.relation is relation

    def _view(self) -> Snapshot:
        return self._backend.snapshot()

    def count_query(self) -> None:
        """Counts, for the statistics, a statement that scanned all rows."""
        next(self._queries.step)

    def compile_lookup(self, lookup: Lookup) -> Run | None:
        """Returns a function that runs the lookup, if the backend has a fast path for it."""
        next(self._misses.step)
        return self._backend.compile_lookup(lookup, self._hits.step, LookupResult)

    def compile_write(self, write: KeyedWrite, elsewhere: Callable[[], bool], *, now: bool = False) -> Run:
        """Returns a function that makes the change with its values, and returns how many rows it affects; None if they,
        or a thread that writes ``elsewhere``, need the general path, and with ``now`` if it would have to wait.
        """
        return compile_write(write, self._writer.now if now else self._writer, elsewhere, strict=self._strict)

    def _look(self, output: str, condition: str | Condition | None) -> LookupResult | None:
        return self._plans[output].find(condition) if type(condition) is str else None

    # changes

    def insert(self, record: Record) -> None:
        """Adds a record; on a table with a primary key it replaces the one with its key.

        >>> users.insert({"id": 7, "name": "Ann", "tier": "GOLD"})
        """
        if self._writer.put(record, self._strict) is None:
            self.bulk_insert([record])

    def bulk_insert(self, records: Records) -> int:
        """Adds records, all or none, and returns their number.

        >>> users.bulk_insert([{"id": 8, "name": "Bob"}, {"id": 9, "name": "Cid"}])
        2
        """
        what = self._compiler.what
        rows = to_arrow(self.schema, records, what=what)
        if self._strict:
            self._writer.change(lambda view: inserted(view, rows, what))
        else:
            self._writer.commit(Changes(rows))
        return int(rows.num_rows)

    def update(
        self,
        condition: str | Condition | Record | None = None,
        changes: str | Record | UpdateSet | None = None,
        **equal: Any,
    ) -> int:
        """Changes the records that match a condition, as they are now, and returns how many.

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
            count = self._writer.patch(key, changes)
            if count is not None:
                return count
        sets = self._compiler.update_set(changes)
        if key is not None and sets.single is not None:
            count = self._writer.patch(key, sets.single)
            if count is not None:
                return count
        return self._change(lambda compiler: self._update_step(compiler, condition, sets, equal))

    def bulk_update(self, records: Sequence[Record | Conditional]) -> int:
        """Changes the fields that each record names, in the row with its key; all or none. Keys that do not exist are
        not counted, and nothing is added.

        Pairs of a condition and changes, as ``update`` takes them, are done one after the other, in one commit; a row
        is counted each time that it is changed.

        >>> users.bulk_update([{"id": 8, "tier": "GOLD"}, {"id": 9, "tier": "SILVER"}])
        2
        >>> users.bulk_update([("age > 65", {"tier": "GOLD"}), ({"tier": "IRON"}, "age = age + 1")])
        """
        given: list[Any] = list(records)
        pairs = conditional_pairs(given, self._compiler.what)
        if not pairs:
            self._key_columns()
            check_fields(self.schema, given, self._compiler.what)
            return self._writer.change(lambda view: merged(self.schema, view, given, self._compiler.what))
        step = self._update_step
        return self._change(lambda c: partial(in_turn, steps=[step(c, *pair, {}) for pair in pairs]))

    def _change(self, compile: Callable[[Compiler], Step]) -> int:
        return change_compiled(compile, lambda: self._compiler, self._writer.change)

    def _update_step(self, compiler: Compiler, condition: Any, changes: Any, equal: Record) -> Step:
        compiled, wanted = self._wanted(condition, equal)
        sets = compiler.update_set(changes)
        return lambda view: updated(compiler, view, compiled, wanted, sets)

    def delete(self, condition: Any = None, **equal: Any) -> int:
        """Deletes the records that match a condition, have a key, or have these values, and returns how many. A text is
        a condition; pass a key that is text by name.

        >>> users.delete("age > 65"), users.delete(7), users.delete(id=8)
        """
        if condition is None and not equal:
            raise InvalidRecord("a delete needs a condition", hint='delete("true") deletes all records')
        if condition is not None and not isinstance(condition, (str, Condition, Mapping)):
            count = self._writer.drop(condition)
            return self.bulk_delete([condition]) if count is None else count
        compiled, wanted = self._wanted(condition, equal)
        key = self._key_in(compiled, wanted)
        count = None if key is None else self._writer.drop(key)
        if count is not None:
            return count
        return self._writer.change(lambda view: deleted(self._compiler, view, compiled, wanted))

    def bulk_delete(self, keys: Keys | str | Condition) -> int:
        """Deletes the records with these keys, or that match one of these conditions, all in one step, and returns how
        many there were. A text is a key or a condition as in ``contains``.

        >>> users.bulk_delete([7, 8, 9])
        >>> users.bulk_delete(["age > 65", {"tier": "IRON"}])
        """
        if isinstance(keys, (pa.Table, pa.RecordBatch)):
            columns = list(self._key_columns())
            wanted = self._join_keys(columns, keys).select(columns)
            return self._writer.change(lambda view: deleted_keys(view, wanted))
        given = [keys] if isinstance(keys, (str, Condition, Mapping)) else list(keys)
        conditions = [c for c in given if self._is_condition(c)]
        steps = [self._delete_step(c) for c in conditions]
        rest = [key for key in given if not self._is_condition(key)] if conditions else given
        if rest or not steps:
            by_key = self._key_table(rest)
            steps.append(lambda view: deleted_keys(view, by_key))
        return self._writer.change(steps[0] if len(steps) == 1 else lambda view: in_turn(view, steps))

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
        """Begins a transaction, whose changes become one commit, or none: returns the table as it is now, with changes
        that nobody else sees until the end. ``app.begin_transaction`` is for several tables.

        >>> with users.begin_transaction() as changed:
        ...     changed.insert({"id": 10, "name": "Eve"})
        ...     changed.delete("age > 65")
        """
        begun = self._writer.begin()
        begun.snapshot(self.name)  # a table of a database is as of its first use
        return TableTransaction(self._compiler, StagedTable(begun, self.name, self._backend), begun)

    def snapshot(self) -> TableSnapshot:
        """Returns the table as it is now, for reading; writers do not change it, and it costs nothing.

        >>> before = users.snapshot()
        >>> users.delete("true")
        >>> len(before)
        3
        """
        return TableSnapshot(self._compiler, self._view())

    def clone(self, name: str | None = None) -> Table:
        """Returns a separate table, in memory, with the same columns, key and rows.

        >>> copy = users.clone()
        """
        other = Table(self.schema, name=name or self.name)
        other.bulk_insert(self._view().scan())
        return other

    def query_batch(self, limit: int, offset: int = 0) -> Rows:
        """Returns a page of the records. A thread that continues after its last page reads the snapshot of that page,
        so that no record is missed or seen twice while writers continue; any other page is read as of now.

        >>> page, offset = users.query_batch(100), 100
        >>> while page:
        ...     page, offset = users.query_batch(100, offset), offset + 100
        """
        view = self._pages.view_at(offset) or self._view()
        rows = self._page(view, limit, offset)
        self._pages.note(view, offset + limit if rows.num_rows == limit and limit > 0 else None)
        return to_rows(rows)

    # about it

    def get_stats(self) -> TableStats:
        """Returns statistics of the table: rows, bytes, last update, lookups and more. Cheap: no lock, no scan; but the
        brokers are queried for how far a table is behind a topic.

        >>> users.get_stats().rows
        3
        """
        return TableStats.of(
            self._backend.stats(),
            self._writer.followed(),
            source=self._writer.health()[0],
            lookups=self._lookups.value + self._hits.value,
            queries=self._queries.value,
            query_cache_hits=self._hits.value,
            query_cache_misses=self._misses.value,
        )

    def health_check(self) -> Health:
        """Returns whether the table can be relied on: healthy, loading, static, stale, missing, disconnected; and why.

        >>> users.health_check().status
        'healthy'
        """
        return self._writer.health()[1]

    def __repr__(self) -> str:
        return f"<Table {self.name}: {len(self)} rows>"

    def _repr_html_(self) -> str:
        """Shows the table in a notebook, at most 100 rows of it."""
        return drawn(self._page(self._view(), SHOWN, 0), len(self))


class TableTransaction(Table):
    """Represents a table in a transaction: all methods of a table, on the rows as of its beginning with its own
    changes.

    ``commit`` makes all changes visible at once; if another commit has changed one of the rows in between it raises
    Conflict, and nothing is changed. As a context manager it commits at the end, and rolls back when the block raises.
    One thread uses it.
    """

    def __init__(self, compiler: Compiler, staged: StagedTable, begun: Begun):
        self._begun = begun
        self._set_up(compiler, staged, staged)

    def commit(self) -> None:
        """Commits the changes. Raises Conflict when another commit came first; then nothing has changed."""
        self._begun.commit()

    def rollback(self) -> None:
        """Discards the changes. It may be called twice."""
        self._begun.rollback()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._begun.open:
            (self.commit if kind is None else self.rollback)()
