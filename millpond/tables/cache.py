"""Implements ``cache``: a bounded table, standalone or in front of a slower one.

Standalone it stores the rows that were used last, and is empty after a restart. In front of another backend it stores
copies: a missing row is read through, a change is written through. Eviction is no change of the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import pyarrow.compute as pc

from millpond.alterations import TableChange
from millpond.changes import Changes, Position
from millpond.clock import Clock
from millpond.errors import Closed, Error, InvalidOption, NotSupported
from millpond.lookup import Lookup, Made, Run
from millpond.options import Setting, read_options
from millpond.predicates import Predicate
from millpond.records.lookup_keys import fitting_keys
from millpond.tables._cache_options import OPTIONS
from millpond.tables._cached_keys import has_key, is_key
from millpond.tables._codec import is_plain
from millpond.tables.base import Backend, Database, Get, Has, Snapshot
from millpond.tables.bounded_rows import BoundedRows
from millpond.tables.flushed_table import FlushedTable
from millpond.tables.memory import MemoryTable
from millpond.tables.registry import backend_of_scheme, find_backend
from millpond.types import Schema


class CacheTable(Backend):
    """Stores at most ``max_size`` rows, the most recently used ones."""

    journalled = False
    inside = True
    evicts = True
    options = OPTIONS

    def __init__(self, name: str, rows: BoundedRows, over: Backend | None):
        self.schema = rows.schema
        self.rows = rows
        self.over = over
        self.changes_seen = self.in_change = 0
        self._what = f'table "{name}"'
        self._closed = False
        self.database: Database | None = None if over is None else over.database
        below = rows.table.abilities if over is None else over.abilities - {"held", "commits", "own"}
        self.abilities = below - {"widen"}

    def go_by(self, clock: Clock) -> None:
        if clock.stands:
            self.rows.clock = lambda: clock.now().timestamp()

    @classmethod
    def open(
        cls,
        name: str,
        schema: Schema,
        values: Mapping[str, Any],
        *,
        null_keys: bool = False,
        home: Path | None = None,
    ) -> Self:
        size = values.get("max_size")
        if size is not None and size < 1:
            raise InvalidOption(
                f'option "max_size" of table "{name}" cannot be {size}', hint="it is 1 or more"
            )
        over = None
        if values.get("cache.over"):
            backend, options = behind(values)
            if not schema.key:
                raise NotSupported(
                    f'table "{name}" has no primary key: a cache cannot tell its rows',
                    hint="declare a PRIMARY KEY, or leave out 'cache.over'",
                )
            over = find_backend(backend).open(name, schema, options, null_keys=null_keys, home=home)
        rows = BoundedRows(
            MemoryTable(schema, name=name, null_keys=null_keys),
            max_size=size,
            max_memory=values.get("max_memory"),
            ttl=values.get("ttl"),
        )
        return cls(name, rows, over)

    def alter(self, change: TableChange) -> CacheTable:
        """Returns another object: alone with the same rows, in front of another table with none."""
        self._check_open()
        made = copy(self)
        if self.over is None:
            made.rows = self.rows.altered(change)
        else:
            made.over = self.over.alter(change)
            made.rows = self.rows.emptied(change.schema(self.schema))
        made.schema = made.rows.schema
        return made

    def rename(self, name: str) -> None:
        self._what = f'table "{name}"'
        self.rows.table.rename(name)
        if self.over is not None:
            self.over.rename(name)

    def set_options(self, values: Mapping[str, Any]) -> None:
        self.rows.set_memory(values.get("max_memory"))

    @classmethod
    def stored_in(cls, values: Mapping[str, Any]) -> str | None:
        if not values.get("cache.over"):
            return None
        backend, options = behind(values)
        return find_backend(backend).stored_in(options)

    # changes

    def apply(self, changes: Changes, position: Position | None = None, *, commit: int | None = None) -> bool:
        self._check_open()
        fitting = self.check(changes)
        if self.over is None:
            return self.rows.apply(fitting, position, commit)
        with self.changing(fitting):
            applied = self.over.apply(fitting, position)
            self.noted(fitting)
        return applied

    def check(self, changes: Changes) -> Changes:
        return self.rows.table.check(changes)

    @property
    def behind(self) -> Backend:
        return self if self.over is None else self.over

    @contextmanager
    def changing(self, changes: Changes) -> Iterator[None]:
        """Prevents stale copies: between the commit behind and its record, rows read there may be newer than those
        here. So nothing is cached meanwhile, and changed rows are no longer cached.
        """
        with self.rows.lock:
            self.in_change += 1
            self.rows.drop(changes)
        try:
            yield
        finally:
            with self.rows.lock:
                self.in_change -= 1

    def noted(self, changes: Changes) -> None:
        # The number is increased first: a reader that began before must not put back what it read.
        self.changes_seen += 1
        self.rows.drop(changes)

    def lost(self) -> None:
        self.changes_seen += 1
        with self.rows.lock:
            self.rows.drop(Changes(self.rows.table.scan()))

    # reading

    def snapshot(self, commit: int | None = None) -> Snapshot:
        self._check_open()
        if self.over is not None:
            if commit is not None:
                raise NotSupported(f"{self._what} does not keep earlier commits")
            return self.through(self.over.snapshot)
        self.rows.expire()
        return _UsedSnapshot(self.rows, self.rows.table.snapshot(commit))

    def through(self, below: Callable[[], Snapshot]) -> Snapshot:
        return below() if self.over is None else _ThroughSnapshot(self, below)

    def quick_reads(self, step: Iterator[int], get: Get, has: Has) -> tuple[Get, Has]:
        if self.over is not None:
            return get, has
        rows = self.rows
        quick, quick_has = rows.table.quick_reads(step, _unknown, _unknown)

        def use_get(key: Any) -> dict[str, Any] | None:
            rows.expire()
            try:
                record = quick(key)
            except _Unknown:
                return get(key)
            rows.use_key(key)
            return record

        def use_has(key: Any = None, **equal: Any) -> bool:
            rows.expire()
            if equal:
                return has(key, **equal)
            try:
                found = quick_has(key)
            except _Unknown:
                return has(key)
            rows.use_key(key)
            return found

        return use_get, use_has

    def compile_lookup(self, lookup: Lookup, step: Iterator[int], made: Made) -> Run | None:
        """Compiles like a table in memory, which contains the rows. A lookup of a cache in front of another table takes
        the general path, which reads through it.
        """
        if self.over is not None:
            return None
        rows, table = self.rows, self.rows.table
        run = table.compile_lookup(lookup, step, made)
        if not table.key or lookup.columns(table.key, ()) != table.key:
            return run
        if not all(is_plain(c.type) for k in table.key if (c := self.schema.find(k))):
            return None
        equal = {c.column: c.value for c in lookup.equal}
        among = () if lookup.among is None else lookup.among.values
        parts = [equal[name] for name in table.key] if not among else []

        def use(*values: Any) -> Any:
            rows.expire()
            answer = run(*values)
            if answer is not None:
                for given in among:
                    rows.use_key(given.value(values))
                if parts:
                    key = tuple([given.value(values) for given in parts])
                    rows.use_key(key if len(key) > 1 else key[0])
            return answer

        return use

    @property
    def last_commit(self) -> int:
        return self.rows.table.last_commit if self.over is None else -1

    @property
    def version(self) -> int:
        return self.snapshot().version

    @property
    def next_row(self) -> int | None:
        return self.rows.table.next_row

    def position(self, pipeline: str) -> Position | None:
        return self.rows.table.position(pipeline) if self.over is None else self.over.position(pipeline)

    def stats(self) -> dict[str, Any]:
        about = {**self.rows.table.stats(), "bytes": self.rows.bytes, **self.rows.stats()}
        if self.over is None:
            return about
        behind = self.over.stats()
        return {**about, "rows": behind["rows"], "cached_rows": about["rows"], "behind": behind.get("where")}

    def fail(self, error: Error) -> None:
        if self.over is None:
            self.rows.table.fail(error)

    def remove(self) -> None:
        if self.over is not None:
            self.over.remove()

    def close(self) -> None:
        self._closed = True
        self.rows.table.close()
        if self.over is not None:
            self.over.close()

    def _check_open(self) -> None:
        if self._closed:
            raise Closed(f"{self._what} is closed")


class _UsedSnapshot(Snapshot):
    """Represents a snapshot of a standalone cache: finding a row by its key counts as use. Readers request keys, not
    all rows.
    """

    remote = True

    def __init__(self, rows: BoundedRows, below: Snapshot):
        self.schema = below.schema
        self.version = below.version
        self._rows = rows
        self._below = below

    def get(
        self, columns: Sequence[str], keys: pa.Table, *, nulls: bool = False, rows: bool = False
    ) -> pa.Table:
        found = self._below.get(columns, keys, nulls=nulls, rows=rows)
        if has_key(self.schema, columns):
            self._rows.use(found, keys.num_rows)
        return found

    def scan(self, columns: Sequence[str] | None = None, *, rows: bool = False) -> pa.Table:
        return self._below.scan(columns, rows=rows)

    def __len__(self) -> int:
        return len(self._below)


class _ThroughSnapshot(Snapshot):
    """Reads through a cache: cached rows by key from it, all else from the table behind it."""

    remote = True

    def __init__(self, table: CacheTable, below: Callable[[], Snapshot]):
        self.schema = table.schema
        self._table = table
        self._began = table.changes_seen
        self._make = below
        self._made: Snapshot | None = None

    @property
    def _below(self) -> Snapshot:
        if self._made is None:
            self._made = self._make()
        return self._made

    @property
    def version(self) -> int:  # type: ignore[override]
        return self._below.version

    def get(
        self, columns: Sequence[str], keys: pa.Table, *, nulls: bool = False, rows: bool = False
    ) -> pa.Table:
        if not is_key(self.schema, columns) or nulls:
            return self._below.get(columns, keys, nulls=nulls, rows=rows)
        names = [c.name for n in columns if (c := self.schema.find(n))]
        wanted = fitting_keys([c.type for n in names if (c := self.schema.find(n))], keys, nulls=False)
        cache = self._table.rows
        cache.expire()
        by_name = dict(zip(names, wanted, strict=True))
        asked = pa.table(
            {n: by_name[n] for k in self.schema.key if (c := self.schema.find(k)) and (n := c.name)}
        )
        seen = self._table.changes_seen
        with cache.lock:
            missing = cache.missing([c.combine_chunks() for c in asked.columns])
            here = cache.table.get(asked.column_names, asked.filter(pc.invert(missing)))
            cache.use(here, asked.num_rows)
        lacking = asked.filter(missing)
        if not lacking.num_rows:
            return here
        read = self._below.get(lacking.column_names, lacking)
        with cache.lock:
            still = seen == self._began == self._table.changes_seen and not self._table.in_change
            if still and read.num_rows:
                cache.apply(Changes(read))
        return pa.concat_tables([here, read])

    def scan(self, columns: Sequence[str] | None = None, *, rows: bool = False) -> pa.Table:
        return self._below.scan(columns, rows=rows)

    def filtered(self, where: Predicate, *, rows: bool = False) -> pa.Table:
        keys = self.keys_in(where)
        return self._below.filtered(where, rows=rows) if keys is None else self.get(keys.column_names, keys)

    def __len__(self) -> int:
        return len(self._below)


class _Unknown(Exception):
    """Reports that the fast path does not know the key."""


def _unknown(*key: Any, **equal: Any) -> Any:
    raise _Unknown


def behind(values: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Returns the name of the backend behind the cache, and the values of its options."""
    over = str(values["cache.over"])
    scheme, colon, _ = over.partition(":")
    name = backend_of_scheme(scheme)
    backend = find_backend(name)
    if backend is CacheTable or issubclass(backend, MemoryTable | FlushedTable):
        raise InvalidOption(f"a cache cannot stand in front of {name}", hint="'cache.over' = 'sqlite'")
    settings = [Setting("url", over)] if colon else []
    if values.get("table"):
        settings.append(Setting("table", str(values["table"])))
    if values.get("cdc"):
        settings.append(Setting("cdc", "true"))
    return name, read_options("the table behind the cache", backend.options, settings)


BACKEND = CacheTable
