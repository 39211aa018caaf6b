"""The contract of a table's backend. The suite in tests/contract/test_tables.py holds every backend to it.

A file in this folder with a ``BACKEND`` class is a backend, and so is the file ``table`` of a connector; files that a
backend splits into start with ``_``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from decimal import Decimal
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any, ClassVar, Protocol, Self, TypeVar

import pyarrow as pa

from millpond.changes import Changes, Position
from millpond.clock import Clock
from millpond.errors import Error, NotSupported, UnknownName, did_you_mean
from millpond.extensions import modules_of, offered, offered_class, offered_classes
from millpond.lookup import Lookup, Made, Run
from millpond.options import Option
from millpond.predicates import Predicate, equal_values
from millpond.tables._taken import duplicate, refuse_doubles
from millpond.types import Schema

Get = Callable[[Any], dict[str, Any] | None]
Has = Callable[..., bool]
Patch = Mapping[str, Any] | Callable[[dict[str, Any]], Mapping[str, Any]]
"""The fields that change, or what makes them of the record as it is; it raises Unfit where the long way is needed."""
T = TypeVar("T")

_FEW = 1_000
_PLANNED = ("mysql", "mongodb", "delta")


class Found(Protocol):
    """Rows that were found, as a program or a pipeline wants them."""

    def records(self) -> list[dict[str, Any]]: ...
    def table(self) -> pa.Table: ...
    def __len__(self) -> int: ...


class Snapshot(ABC):
    """A table at one moment. It stays as it is while writers go on, and may be read by many threads."""

    schema: Schema
    version: int
    """The table's version then."""
    remote: ClassVar[bool] = False
    """Whether looking up a few rows is better than reading all: they are elsewhere, or their use counts."""

    @abstractmethod
    def get(
        self, columns: Sequence[str], keys: pa.Table, *, nulls: bool = False, rows: bool = False
    ) -> pa.Table:
        """The rows, with all columns, whose ``columns`` equal one of the ``keys``, each row once.

        ``keys`` has one column for each of ``columns``, in their order. Numbers are compared by value,
        whatever their width; a key that does not fit the column's type matches nothing. NULL matches nothing,
        or with ``nulls`` NULL, as it does in GROUP BY. ``rows`` is as in ``scan``.
        """

    def find(self, columns: tuple[str, ...], keys: Sequence[Any]) -> Found | None:
        """As ``get``, for keys that are values of the columns' types as they are: ints for integers, strs for text, a
        tuple for several columns. None if the backend, a column or a key needs the long way of ``get``."""
        return None

    def decimal_sum(self, column: str) -> tuple[Decimal | None] | None:
        """The exact sum of a DECIMAL column, NULL if no row has a value, by a short way; None if there is none."""
        return None

    @abstractmethod
    def scan(self, columns: Sequence[str] | None = None, *, rows: bool = False) -> pa.Table:
        """All rows, or these columns of them. A table without a key keeps the order of its rows: a row that was
        replaced stays in its place.

        With ``rows`` a table without a key also answers, as its last column ``_row``, the number of each row:
        an int64, counted from 0, that a row keeps as long as it lives and that no other row gets. A table with
        a key has none and raises NotSupported.
        """

    def parts(self, *, rows: bool = False) -> Iterator[pa.Table]:
        """All rows in parts that need not be in memory together, at least one; in any order. ``rows`` is as in
        ``scan``."""
        yield self.scan(rows=rows)

    def filtered(self, where: Predicate, *, rows: bool = False) -> pa.Table:
        """Rows, with all columns, among which are all for which ``where`` holds. ``rows`` is as in ``scan``."""
        keys = self.keys_in(where)
        return self.scan(rows=rows) if keys is None else self.get(keys.column_names, keys)

    def keys_in(self, where: Predicate) -> pa.Table | None:
        """The keys of the rows for which ``where`` can hold, if it says which; at most a few."""
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
        """Raises DuplicateKey if the table has a row with the key of one of these, or two of them have one key."""
        names = list(self.schema.key)
        keys = rows.select(names)
        refuse_doubles(keys, what)
        there = self.get(names, keys, nulls=True)
        if there.num_rows:
            raise duplicate(there.select(names), what, "is there already")

    @abstractmethod
    def __len__(self) -> int: ...


class Reading(ABC):
    """One moment of all tables of a database. What it holds there is let go when nothing refers to it any more."""

    @abstractmethod
    def snapshot(self, table: Backend) -> Snapshot: ...


class Writing(Reading):
    """A transaction of a database: its snapshots are the newest rows, and what it applies counts at its end."""

    @abstractmethod
    def apply(self, table: Backend, changes: Changes) -> None:
        """Applies changes that the table has checked."""

    @abstractmethod
    def advance(self, position: Position) -> bool:
        """Notes the position; False if it was applied before."""


class Database(ABC):
    """Where tables live that the app does not journal: one transaction of it changes any of its tables.

    It keeps the positions of pipelines itself, in the transaction that applies their rows.
    """

    name: str
    """For messages; without a password."""

    @abstractmethod
    def read(self) -> Reading:
        """All its tables as they are now."""

    @abstractmethod
    def write(self, work: Callable[[Writing], T]) -> T:
        """Runs ``work`` in one transaction, and again if another writer came first or the connection was lost; what
        it applies counts when it returns, and nothing of it when it raises."""

    @abstractmethod
    def position(self, pipeline: str) -> Position | None:
        """The newest position applied for the pipeline."""

    @abstractmethod
    def forget(self, pipeline: str) -> None:
        """Takes out the position of the pipeline."""

    @abstractmethod
    def forget_all(self, start: str) -> None:
        """Takes out the positions of all pipelines whose names begin so."""

    @abstractmethod
    def close(self) -> None:
        """Lets go of the connections."""


class Backend(ABC):
    """Rows that change by commits.

    One thread at a time may apply; the backend sees to that itself. Reading never waits for a writer and
    never sees half an apply. Column names ignore case.
    """

    aliases: ClassVar[tuple[str, ...]] = ()
    """Other names that the backend is known by."""
    abilities: frozenset[str] = frozenset()
    """What the backend can do beyond the contract; the planner and the contract suite read it.

    - ``held``: a snapshot stays as it is for as long as it is held. Without it each read is of a moment of its own.
    - ``commits``: a snapshot may be asked for by an earlier commit.
    - ``own``: only this object changes the rows: its version stands still, and scans are kept, while nothing changes.
    - ``lasting``: the rows are there again when the table is opened again.
    - ``null_keys``: NULL may be a value of a key.
    - ``every_key``: every type may be a key.
    - ``widen``: columns may be added while it is used.
    """
    options: ClassVar[tuple[Option, ...]] = ()
    """Options of WITH (…) that it takes."""
    journalled: ClassVar[bool] = True
    """Whether the app's journal makes its rows durable."""

    schema: Schema
    database: Database | None = None
    """Where the rows live, if not in this process. The app commits to it by ``Database.write``."""

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
        """The table ``name`` with the values of its options. ``home`` is a directory for its files.

        With ``null_keys`` NULL is a value of a key column, equal to itself: the key of an aggregate's groups.
        """

    @classmethod
    def place(cls, values: Mapping[str, Any]) -> str | None:
        """Which database a table with these options would live in; None for the app's journal. Tables with one
        place can change in one commit."""
        return None

    @property
    def behind(self) -> Backend:
        """The table that the database knows; another one for a cache in front of it."""
        return self

    def through(self, below: Callable[[], Snapshot]) -> Snapshot:
        """What a reader of this table sees of a snapshot of the one behind."""
        return below()

    def changing(self, changes: Changes) -> AbstractContextManager[None]:
        """Entered before the database commits changes of the table, and left when they were noted."""
        return nullcontext()

    def noted(self, changes: Changes) -> None:
        """Called when the database has committed changes of the table."""
        return None

    def remove(self) -> None:
        """Drops what the table keeps outside of this process; called before ``close``, when the table is dropped."""
        return None

    @abstractmethod
    def apply(self, changes: Changes, position: Position | None = None, *, commit: int | None = None) -> bool:
        """Applies all changes or, if it raises, none; False if the position was applied before.

        With a key the last row of each key wins, and deletes end rows; a NULL in the key raises InvalidRecord.
        Without one every row is kept; where ``changes`` has the column ``_row``, a row with a number replaces
        or ends the row of that number. If there is no such row it is put there, and new rows get higher
        numbers than any that was ever named, deletes included; so the rows of a scan with their numbers, applied
        to an empty table, make the same table. ``commit`` is the number of the app's commit, never smaller
        than the one before; without it the changes belong to that one.
        """

    @abstractmethod
    def check(self, changes: Changes) -> Changes:
        """The changes with the table's columns and types. Raises what ``apply`` would raise for them, so that
        a journal holds nothing that cannot be applied."""

    def go_by(self, clock: Clock) -> None:
        """The time of day from now on. Rows whose end a server of its own tells go by that one's."""
        return None

    def admit(self, changes: Changes) -> None:
        """Makes room for changes that were checked. Raises TableFull if they would be more than the table may hold;
        then nothing has changed."""
        return None

    def widen(self, schema: Schema) -> None:
        """Takes columns more, which are NULL in all rows; ``schema`` has those of the table and others. Snapshots
        that are held stay as they are. NotSupported without the ability ``widen``."""
        raise NotSupported("this table cannot take new columns", hint="drop it, and make it anew")

    def restore(self, changes: Changes) -> None:
        """Applies changes that the table has had before: no limit refuses them."""
        self.apply(changes)

    def get(
        self, columns: Sequence[str], keys: pa.Table, *, nulls: bool = False, rows: bool = False
    ) -> pa.Table:
        """As Snapshot.get, now."""
        return self.snapshot().get(columns, keys, nulls=nulls, rows=rows)

    def scan(self, columns: Sequence[str] | None = None, *, rows: bool = False) -> pa.Table:
        """As Snapshot.scan, now. With the ability ``own`` the answer is the same object while nothing changes."""
        return self.snapshot().scan(columns, rows=rows)

    @property
    def next_row(self) -> int | None:
        """The number that the next new row gets; None for a table with a key, and for one that outlives the
        process, which keeps its numbers itself."""
        return None

    @abstractmethod
    def snapshot(self, commit: int | None = None) -> Snapshot:
        """The table now, or as it was after ``commit``, one of the last few (ability ``commits``)."""

    def quick_reads(self, step: Iterator[int], get: Get, has: Has) -> tuple[Get, Has]:
        """Functions that answer as ``get`` (the record with a key, or None) and ``has`` (whether there is one, or
        one with equal values), faster where the backend can; each counts its calls by ``next(step)``, as ``get``
        and ``has`` do."""
        return get, has

    def create_index(self, columns: Sequence[str]) -> bool:
        """Makes an index on the columns, which lookups and joins then use, kept up until ``drop_index``; False from a
        backend that makes none."""
        return False

    def drop_index(self, columns: Sequence[str]) -> bool:
        """Lets go of an index that was made; False as ``create_index``."""
        return False

    def compile_lookup(self, lookup: Lookup, step: Iterator[int], made: Made) -> Run | None:
        """A function that runs the lookup on the newest rows, counts its answers by ``next(step)`` and hands them to
        ``made``; None from a backend without the ability ``lookup``."""
        return None

    @property
    def last_commit(self) -> int:
        """The number of the last commit that changed a table of the app's journal; -1 for others, and before it."""
        return -1

    @property
    @abstractmethod
    def version(self) -> int:
        """A number that grows with every apply that changed rows."""

    def __len__(self) -> int:
        return len(self.snapshot())

    @abstractmethod
    def position(self, pipeline: str) -> Position | None:
        """The newest position applied for the pipeline."""

    @abstractmethod
    def stats(self) -> dict[str, Any]:
        """Numbers about the table: ``rows``, ``bytes``, and what else the backend knows."""

    def fail(self, error: Error) -> None:
        """The rows that it holds in this process are not to be read any more: whoever asks for them gets the error."""
        return None

    @abstractmethod
    def close(self) -> None:
        """Lets go of connections and memory. A closed table raises Closed."""


def backend_names() -> dict[str, str]:
    """The backend of this package that each name stands for, its other names included, in lower case."""
    names: dict[str, str] = {}
    for name in _modules():
        names[name] = name
        names.update({alias.lower(): name for alias in _load(name).aliases})
    return names


@cache
def _modules() -> dict[str, str]:
    """The modules of backends, by name: files of this folder, and files ``table`` of connectors."""
    files = [m.name for m in iter_modules([str(Path(__file__).parent)]) if not m.ispkg]
    own = {f: f"{__package__}.{f}" for f in files if not f.startswith("_") and f != "base"}
    return {**own, **modules_of("table")}


def every_backend() -> list[type[Backend]]:
    """Every backend of this package and of others."""
    return [*(_load(name) for name in _modules()), *offered_classes("table", Backend)]


def find_backend(name: str) -> type[Backend]:
    """The backend of that name, ignoring case. Raises UnknownName, or NotSupported for one that is not
    there yet.
    """
    if name.lower() in _modules():
        return _load(name.lower())  # the others are not loaded for their other names
    names = backend_names()
    found = names.get(name.lower())
    if found is not None:
        return _load(found)
    other = offered_class("table", name, Backend)
    if other is not None:
        return other
    if name.lower() in _PLANNED:
        raise NotSupported(
            f'the table extension "{name}" is not in this version', hint=f"known: {', '.join(sorted(names))}"
        )
    every = sorted({*names, *offered("table")})
    known = ", ".join(every)
    near = did_you_mean(name, every)
    raise UnknownName(
        f'there is no table extension "{name}"',
        hint=f"{near} (known: {known})" if near else f"known: {known}",
    )


def _load(name: str) -> type[Backend]:
    backend = import_module(_modules()[name]).BACKEND
    assert isinstance(backend, type) and issubclass(backend, Backend)
    return backend
