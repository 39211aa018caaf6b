"""Defines the contract of a table backend. The suite in tests/contract/test_tables.py checks every backend.

A file in this folder with a ``BACKEND`` class is a backend, and so is the file ``table.py`` of a connector; files that
a backend is split into start with ``_``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

import pyarrow as pa

from millpond.alterations import TableChange
from millpond.changes import Changes, Position
from millpond.clock import Clock
from millpond.errors import Error, NotSupported
from millpond.lookup import Lookup, Made, Run
from millpond.options import Option
from millpond.predicates import Predicate, equal_values
from millpond.tables._duplicates import duplicate, refuse_doubles
from millpond.tables._found_rows import Found as Found
from millpond.types import Schema

Get = Callable[[Any], dict[str, Any] | None]
Has = Callable[..., bool]
Patch = Mapping[str, Any] | Callable[[dict[str, Any]], Mapping[str, Any]]
"""The fields that change, or a function that computes them from the current record; it raises Unfit if the general path
is needed.
"""
T = TypeVar("T")

_FEW = 1_000


class Snapshot(ABC):
    """Represents a table at one commit. Writers do not change it, and many threads may read it."""

    schema: Schema
    version: int
    """The version of the table at that commit."""
    remote: ClassVar[bool] = False
    """Whether looking up a few rows is better than reading all: they are remote, or their use is recorded."""

    @abstractmethod
    def get(
        self, columns: Sequence[str], keys: pa.Table, *, nulls: bool = False, rows: bool = False
    ) -> pa.Table:
        """Returns the rows, with all columns, whose ``columns`` equal one of the ``keys``, each row once.

        ``keys`` has one column for each of ``columns``, in their order. Numbers are compared by value, whatever their
        width; a key that does not fit the column's type matches nothing. NULL matches nothing, or with ``nulls`` NULL,
        as it does in GROUP BY. ``rows`` is as in ``scan``.
        """

    def find(self, columns: tuple[str, ...], keys: Sequence[Any]) -> Found | None:
        """Finds rows like ``get``, for keys that are values of the columns' types without conversion: ints for
        integers, strs for text, a tuple for several columns. None if the backend, a column or a key needs the general
        path of ``get``.
        """
        return None

    def decimal_sum(self, column: str) -> tuple[Decimal | None] | None:
        """Returns the exact sum of a DECIMAL column, NULL if no row has a value; None without a fast path."""
        return None

    @abstractmethod
    def scan(self, columns: Sequence[str] | None = None, *, rows: bool = False) -> pa.Table:
        """Returns all rows, or these columns of them. A table without a key keeps the order of its rows: a row that was
        replaced stays in its place.

        With ``rows`` a table without a key also returns, as its last column ``_row``, the number of each row: an int64,
        counted from 0, that a row keeps as long as it exists and that no other row gets. A table with a key has none
        and raises NotSupported.
        """

    def changed_since(self, before: Snapshot, numbers: Sequence[int]) -> tuple[pa.Table, pa.Table] | None:
        """Returns the rows of a table without a key that ``before`` had under these numbers, and those that were added
        or replaced since. ``numbers`` are those of all rows that were deleted or replaced in between. None if only a
        comparison of all rows finds them.
        """
        return None

    def parts(self, *, rows: bool = False) -> Iterator[pa.Table]:
        """Yields all rows in parts that need not be in memory together, at least one; in any order: what a journal
        stores of a table. ``rows`` is as in ``scan``. A ``timed`` table adds the time of each row.
        """
        yield self.scan(rows=rows)

    def changed_before(self, time: float, most: int) -> pa.Table:
        """Returns at most so many rows whose last change was before a time, in seconds since 1970; without a key with
        their numbers. Only for a table with the ability ``times``.
        """
        raise NotSupported("this table does not store when a row was last changed")

    def filtered(self, where: Predicate, *, rows: bool = False) -> pa.Table:
        """Returns rows, with all columns, that include all that match ``where``. ``rows`` is as in ``scan``."""
        keys = self.keys_in(where)
        return self.scan(rows=rows) if keys is None else self.get(keys.column_names, keys)

    def keys_in(self, where: Predicate) -> pa.Table | None:
        """Returns the keys of the rows that can match ``where``, if it determines them; at most a few."""
        columns = [c for name in self.schema.key if (c := self.schema.find(name))]
        found = equal_values(where, [c.name for c in columns])
        if found is None or len(found) > _FEW:
            return None
        try:
            parts = zip(*found, strict=True)
            return pa.table({c.name: pa.array(part, c.type) for c, part in zip(columns, parts, strict=True)})
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
            return None

    def refuse_taken(self, rows: pa.Table, what: str) -> None:
        """Raises DuplicateKey if the table has a row with the key of one of these, or two of them have the same key."""
        names = list(self.schema.key)
        keys = rows.select(names)
        refuse_doubles(keys, what)
        there = self.get(names, keys, nulls=True)
        if there.num_rows:
            raise duplicate(there.select(names), what, "is there already")

    @abstractmethod
    def __len__(self) -> int: ...


class Reading(ABC):
    """Represents one snapshot of all tables of a database. It releases its resources there when nothing refers to it
    any more.
    """

    @abstractmethod
    def snapshot(self, table: Backend) -> Snapshot: ...


class Writing(Reading):
    """Represents a transaction of a database: its snapshots are the newest rows, and its changes take effect at its
    end.
    """

    @abstractmethod
    def apply(self, table: Backend, changes: Changes) -> None:
        """Applies changes that the table has checked."""

    @abstractmethod
    def advance(self, position: Position) -> bool:
        """Stores the position; returns False if it was applied before."""


class Database(ABC):
    """Stores tables that the app does not journal: one of its transactions changes any of its tables.

    It stores the positions of pipelines itself, in the transaction that applies their rows.
    """

    name: str
    """For messages; without a password."""

    @abstractmethod
    def read(self) -> Reading:
        """Returns a snapshot of all its tables."""

    @abstractmethod
    def write(self, work: Callable[[Writing], T]) -> T:
        """Runs ``work`` in one transaction, and again if another writer came first or the connection was lost; its
        changes take effect when it returns, and none of them when it raises.
        """

    @abstractmethod
    def position(self, pipeline: str) -> Position | None:
        """Returns the newest position applied for the pipeline."""

    @abstractmethod
    def forget(self, pipeline: str) -> None:
        """Removes the position of the pipeline."""

    @abstractmethod
    def forget_all(self, start: str) -> None:
        """Removes the positions of all pipelines whose names begin so."""

    @abstractmethod
    def close(self) -> None:
        """Closes the connections."""


class Backend(ABC):
    """Stores rows that change by commits.

    One thread at a time may apply; the backend ensures that itself. Reading never waits for a writer and never sees
    half an apply. Column names ignore case.
    """

    aliases: ClassVar[tuple[str, ...]] = ()
    """Aliases of the backend."""
    schemes: ClassVar[tuple[str, ...]] = ()
    """The schemes of its URLs, in addition to its name."""
    inside: ClassVar[bool] = False
    """Whether its rows are in the process or in the state directory, unless an option says otherwise."""
    evicts: ClassVar[bool] = False  # whether rows leave it without a change that is reported
    abilities: frozenset[str] = frozenset()
    """What the backend can do beyond the contract; the planner and the contract suite read it.

    - ``held``: a snapshot does not change while it is held. Without it each read sees its own point in time.
    - ``commits``: a snapshot of an earlier commit can be requested.
    - ``own``: only this object changes the rows: its version and cached scans stay valid while nothing changes.
    - ``lasting``: the rows still exist when the table is opened again.
    - ``null_keys``: NULL may be a value of a key.
    - ``every_key``: every type may be a key.
    - ``every_float``: NaN and the infinities are values of FLOAT and DOUBLE. Without it a row with one is refused.
    - ``widen``: new fields of a source become columns while it is used.
    - ``alter``: its columns may change while it is used.
    - ``times``: it stores when each row was last changed, if 'ttl' needs it.
    """
    options: ClassVar[tuple[Option, ...]] = ()
    """Options of WITH (…) that it accepts."""
    journalled: ClassVar[bool] = True
    """Whether the app's journal makes its rows durable."""

    schema: Schema
    database: Database | None = None
    """The database of the rows, if they are not in this process. The app commits to it by ``Database.write``."""
    timed: bool = False
    """Whether the journal stores with each row when it was last changed."""

    @classmethod
    @abstractmethod
    def open(
        cls,
        name: str,
        schema: Schema,
        values: Mapping[str, Any],
        *,
        null_keys: bool = False,
        home: Path | None = None,
    ) -> Self:
        """Opens the table ``name`` with the values of its options. ``home`` is a directory for its files.

        With ``null_keys`` NULL is a value of a key column, equal to itself: the key of an aggregate's groups.
        """

    @classmethod
    def stored_in(cls, values: Mapping[str, Any]) -> str | None:
        """Returns the database of a table with these options; None for the app's journal. Tables with the same place
        can change in one commit.
        """
        return None

    @property
    def behind(self) -> Backend:
        """Returns the table that the database knows; for a cache this is the table behind it."""
        return self

    def through(self, below: Callable[[], Snapshot]) -> Snapshot:
        """Returns what a reader of this table sees of a snapshot of the one behind."""
        return below()

    def changing(self, changes: Changes) -> AbstractContextManager[None]:
        """Surrounds a commit of the database with changes of the table, until they were recorded."""
        return nullcontext()

    def noted(self, changes: Changes) -> None:
        """Records that the database has committed changes of the table."""
        return None

    def lost(self) -> None:
        """Records that the database has changed rows of the table, but that it is not known which."""
        return None

    def remove(self) -> None:
        """Removes what the table stores outside of this process; called before ``close``, when the table is dropped."""
        return None

    @abstractmethod
    def apply(self, changes: Changes, position: Position | None = None, *, commit: int | None = None) -> bool:
        """Applies all changes or, if it raises, none; returns False if the position was applied before.

        With a key the last row of each key wins, and deletes remove rows; a NULL in the key raises InvalidRecord.
        Without one every row is stored; if ``changes`` has the column ``_row``, a row with a number replaces or deletes
        the row of that number. If there is no such row it is inserted, and new rows get higher numbers than any that
        was ever named, deletes included; so the rows of a scan with their numbers, applied to an empty table, make the
        same table. ``commit`` is the number of the app's commit, never smaller than the one before; without it the
        changes belong to that one.
        """

    @abstractmethod
    def check(self, changes: Changes) -> Changes:
        """Returns the changes with the table's columns and types. Raises what ``apply`` would raise for them, so that a
        journal contains nothing that cannot be applied.
        """

    def go_by(self, clock: Clock) -> None:
        """Sets the clock. Rows that a server expires follow the server's clock."""
        return None

    def admit(self, changes: Changes) -> None:
        """Frees memory for checked changes; raises TableFull, and changes nothing, if they exceed the limit."""
        return None

    def alter(self, change: TableChange) -> Backend:
        """Changes the columns in all rows, and returns the table that has them: this one, or another that takes its
        place. Existing snapshots of a table with the ability ``held`` do not change. In a database a change that was
        made before does nothing. NotSupported if the table cannot take the change; nothing has changed then.
        """
        raise NotSupported("this table cannot change its columns", hint="drop it, and make it anew")

    def rename(self, name: str) -> None:
        """Sets the name of the table in messages; in a database it keeps its ``stored_name``."""
        return None

    @property
    def stored_name(self) -> str | None:
        """Returns the name in the database, as the option ``table`` takes it."""
        return None

    def set_options(self, values: Mapping[str, Any]) -> None:
        """Applies those of the options that may change while it is used (``Option.live``)."""
        return None

    def restore(self, changes: Changes) -> None:
        """Applies changes that the table has had before: no limit refuses them."""
        self.apply(changes)

    def get(
        self, columns: Sequence[str], keys: pa.Table, *, nulls: bool = False, rows: bool = False
    ) -> pa.Table:
        """Returns the same as Snapshot.get, now."""
        return self.snapshot().get(columns, keys, nulls=nulls, rows=rows)

    def scan(self, columns: Sequence[str] | None = None, *, rows: bool = False) -> pa.Table:
        """Returns the same as Snapshot.scan, now. With the ability ``own`` the result is the same object while nothing
        changes.
        """
        return self.snapshot().scan(columns, rows=rows)

    @property
    def next_row(self) -> int | None:
        """Returns the number of the next new row; None for a table with a key, and for one that outlives the process,
        which stores its numbers itself.
        """
        return None

    @abstractmethod
    def snapshot(self, commit: int | None = None) -> Snapshot:
        """Returns the table now, or as it was after ``commit``, one of the last few (ability ``commits``)."""

    def quick_reads(self, step: Iterator[int], get: Get, has: Has) -> tuple[Get, Has]:
        """Returns functions like ``get`` (the record with a key, or None) and ``has`` (whether there is one, or one
        with equal values), faster if the backend can; each counts its calls with ``next(step)``, as ``get`` and ``has``
        do.
        """
        return get, has

    def create_index(self, columns: Sequence[str]) -> bool:
        """Creates an index on the columns, which lookups and joins then use, maintained until ``drop_index``; returns
        False from a backend that creates none.
        """
        return False

    def drop_index(self, columns: Sequence[str]) -> bool:
        """Drops an index that was created; returns False like ``create_index``."""
        return False

    def compile_lookup(self, lookup: Lookup, step: Iterator[int], made: Made) -> Run | None:
        """Returns a function that runs the lookup on the newest rows, counts its results with ``next(step)`` and passes
        them to ``made``; None from a backend without the ability ``lookup``.
        """
        return None

    @property
    def last_commit(self) -> int:
        """Returns the number of the last commit that changed a table of the app's journal; -1 without one."""
        return -1

    @property
    @abstractmethod
    def version(self) -> int:
        """Returns a number that grows with every apply that changed rows."""

    def __len__(self) -> int:
        return len(self.snapshot())

    @abstractmethod
    def position(self, pipeline: str) -> Position | None:
        """Returns the newest position applied for the pipeline."""

    @abstractmethod
    def stats(self) -> dict[str, Any]:
        """Returns statistics of the table: ``rows``, ``bytes``, and what else the backend knows."""

    def fail(self, error: Error) -> None:
        """Makes the rows in this process unreadable: every later access raises the error."""
        return None

    @abstractmethod
    def close(self) -> None:
        """Releases connections and memory. A closed table raises Closed."""
