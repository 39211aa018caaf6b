"""Rows of a database. What all databases share of being a source: what is new, and what to read of it.

Without more a table is read once. With ``poll.interval`` it is looked at again: by the values of a column that grows,
or as a whole. With ``cdc`` it follows the log of changes of the database.
"""

from __future__ import annotations

import hashlib
import itertools
import logging
import math
import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from millpond.changes import Offset
from millpond.errors import BadData, InvalidOption, without_passwords
from millpond.packages import needed
from millpond.predicates import All, Any_, Compare, IsNull, Need, Predicate, all_of
from millpond.retry import Patience, for_connections
from millpond.sources._ahead import ahead
from millpond.sources._sqluri import Place, options_in, place_of
from millpond.sources.base import Source, Split, with_seq
from millpond.types import Schema, type_name

if TYPE_CHECKING:
    import sqlalchemy as sa

    from millpond.sources.databases.base import Database
    from millpond.sources.databases.mark import Mark

log = logging.getLogger("millpond")
ROW_BITS = 40
_ALL = Need(None, None, None)


@dataclass(frozen=True, slots=True)
class SqlSplit(Split):
    """Rows from one value of the incremental column to another, or a range of the key of all rows."""

    first: int
    """The sequence number of its first row."""
    start: Mapping[str, Any] | None = None
    end: Mapping[str, Any] | None = None
    low: int | None = None
    high: int | None = None
    moment: str | None = None


class SqlSource(Source):
    """Reads a database. Each kind is a subclass that names its ``Database``."""

    extra: ClassVar[str]
    """The extra of the package that brings its driver."""
    driver: ClassVar[str] = "sqlalchemy"
    """The package that it needs besides."""

    @abstractmethod
    def _open(self) -> Database:
        """Its database. What is needed for that is imported here, and is there."""

    def __init__(self, uri: str, values: Mapping[str, Any], declared: Schema | None):
        said, rest = options_in(uri, self.options)
        by_default = {o.name: o.default for o in self.options}
        given = {k: v for k, v in values.items() if k not in said or v != by_default.get(k)}
        super().__init__(uri, said | given, declared)
        self.place = self._place(rest)
        self._schema: Schema | None = None
        self._physical: Schema | None = None
        self._database: Database | None = None
        self._need = _ALL
        self._origin: SqlSource | None = None
        """The one that this is a part of."""
        self._newest: Offset | None = None
        self._compared_at: float | None = None
        self._polled_at = -math.inf
        self._lock = threading.Lock()
        self._check_options()

    def _place(self, rest: tuple[tuple[str, str], ...]) -> Place:
        rows = any(self.values[name] is not None for name in ("table", "query", "poll.query"))
        found = place_of(self.uri, names_rows=rows)
        if rest:
            uri = without_passwords(self.uri.partition("?")[0])
            raise InvalidOption(
                f'"{uri}" has the parameter "{rest[0][0]}", which is no option',
                hint=f"options are {', '.join(sorted(o.name for o in self.options))}",
            )
        return found

    def _check_options(self) -> None:
        values = self.values
        polls = values["poll.interval"] is not None or values.get("cdc")
        for name in ("incremental.column", "poll.query", "compare.interval"):
            if values[name] is not None and not polls:
                raise InvalidOption(
                    f'option "{name}" is for a table that is polled', hint="'poll.interval' = '10s'"
                )
        if values["poll.query"] is not None and values["incremental.column"] is None:
            raise InvalidOption(
                'option "poll.query" needs to know whose last value its ? is',
                hint="'incremental.column' = '…'",
            )
        if values["limit"] is not None and values["incremental.column"] is not None:
            raise InvalidOption('options "limit" and "incremental.column" do not go together')

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k not in ("_lock", "_database")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = threading.Lock()
        self._database = None

    @property
    def database(self) -> Database:
        if self._database is None:
            needed("sqlalchemy", f"sources in {self.kind}", self.extra)
            needed(self.driver, f"sources in {self.kind}", self.extra)
            self._database = self._open()
        return self._database

    @property
    def address(self) -> str:
        """What is read may hold secrets: it is told apart by a digest."""
        read = {
            k: v
            for k, v in self.values.items()
            if k in ("table", "schema", "query", "query.params", "poll.query")
        }
        asked = hashlib.sha256(repr((self.uri, sorted(read.items()))).encode()).hexdigest()
        return f"{without_passwords(self.uri.partition('?')[0])}#{asked[:12]}"

    # how it goes on

    @property
    def follows(self) -> bool:
        return self.values["poll.interval"] is not None

    @property
    def runs(self) -> bool:
        """What is new is known by a column that grows."""
        return self.follows and self.values["incremental.column"] is not None

    def changes(self, stop: threading.Event) -> Iterator[None]:
        while not stop.wait(self.values["poll.interval"]):
            yield

    @property
    def parallel(self) -> int:
        return int(self.values["parallel.readers"])

    # columns

    def schema(self) -> Schema:
        """Declared, or as the database has them; with the key that the database has."""
        if self._schema is None:
            found = self._discovered()
            if self.declared is not None:
                self._look_for(self.declared, found)
                key = found.key if all(k in self.declared for k in found.key) else ()
                self._schema = Schema(self.declared.columns, key)
            else:
                self._schema = found
        return self._schema

    def _discovered(self) -> Schema:
        if self._physical is None:
            self._physical = self._asked(self.database.discover)
            if self.values["incremental.column"] is not None:
                self._column(self._physical)
        return self._physical

    def _look_for(self, declared: Schema, found: Schema) -> None:
        """A declared column that is not there is NULL; one of them must be there."""
        missing = [c.name for c in declared if c.name not in found]
        if len(missing) == len(declared):
            raise InvalidOption(
                f'{self.database.rows.what} has no column "{missing[0]}"',
                hint=f"its columns: {', '.join(found.names)}",
            )
        if missing:
            listed = ", ".join(f'"{m}"' for m in missing)
            log.warning("%s has no column %s: it is NULL", self.database.rows.what, listed)

    def _column(self, schema: Schema) -> str:
        """The incremental column as the database spells it."""
        from millpond.sources.databases.mark import check_column

        name = self.values["incremental.column"]
        column = schema.find(name)
        if column is None:
            raise InvalidOption(
                f'the column "{name}" of option "incremental.column" is not in {self.database.rows.what}',
                hint=f"its columns: {', '.join(schema.names)}",
            )
        check_column(name, column.type)
        return column.name

    def notice(self, splits: Sequence[Split]) -> None:
        """Columns that came to the table are taken in, unless the columns were declared; those that it has lost are
        NULL."""
        if self._physical is None or not splits or self._need.columns is not None:
            return
        found = self._asked(self.database.discover)
        fresh = tuple(c for c in found if c.name not in self._physical)
        self._physical = found
        if fresh and self.declared is None:
            known = self.schema()
            self.take_columns(Schema((*known, *fresh), known.key))

    def take_columns(self, columns: Schema) -> None:
        """There are other columns by now."""
        self._schema, self._physical = columns, None
        if self._origin is not None:
            self._origin.take_columns(columns)

    @property
    def drifts(self) -> bool:
        return self.declared is None

    def _asked(self, ask: Any) -> Any:
        """What a database answers; a lost connection is tried again for a while."""

        def once() -> Any:
            with self.database.connected() as connection:
                return ask(connection)

        return self._patience().wait_for(once, issues=self.issues)

    def _patience(self) -> Patience:
        """How long a lost connection is tried again."""
        return for_connections(self.values["retry.timeout"] if self.patient else 0.0)

    # what the query needs

    def narrowed(self, need: Need) -> Source:
        """Columns, rows and their number are looked for by the database; not while a column tells what is new."""
        if self.values["incremental.column"] is not None or self.database.rows.cut or need == _ALL:
            return self
        physical, schema = self._discovered(), self.schema()
        sound = None if need.predicate is None else _sound(need.predicate, physical, self.database.compares)
        found = copy(self)
        found._database, found._origin = self.database, self
        found._need = Need(need.columns, sound, need.limit)
        if need.columns is not None:
            found._schema = Schema(tuple(c for c in schema if c.name in need.columns) or schema.columns[:1])
        return found

    @property
    def sent(self) -> str:
        """The SELECT that the database is sent, for people."""
        statement = self._select(*self._pushed())
        dialect = self.database.engine.dialect
        try:
            text = statement.compile(dialect=dialect, compile_kwargs={"literal_binds": True})
        except Exception:  # a value that has no text in this SQL
            text = statement.compile(dialect=dialect)
        return " ".join(str(text).split())

    # offsets

    def latest(self, start: Offset | None) -> Offset:
        with self._lock:
            number = 0 if start is None else start["read"]
            if self.values["incremental.column"] is not None:
                found = self._marked(start, number)
            elif start is None or self.follows:
                found = {"read": number + 1 if start is not None else 0, "step": 0}
            else:
                found = dict(start)
            self._newest = found
            return found

    def _marked(self, start: Offset | None, number: int) -> dict[str, Any]:
        """The offset of the highest value that is there. A comparison that is due reads everything again."""
        from millpond.sources.databases.mark import Mark

        interval, now = self.values["compare.interval"], time.monotonic()
        self._compared_at = self._compared_at or now
        due = start is not None and interval is not None and now - self._compared_at >= interval
        known = Mark.of(start) if start is not None else None
        mark = self._asked(lambda connection: self._mark(connection, known))
        if known is not None and not due and (mark is None or _same(mark, known)):
            assert start is not None
            return dict(start)
        if due:
            self._compared_at = now
            number += 1
        elif known is not None and (known.ties is None or (mark.value == known.value and mark.ties is None)):
            number += 1  # which of so many rows with one value are new only a comparison tells
        mark = mark or known
        assert mark is not None
        return {"read": number, "step": start["step"] + 1 if start is not None else 0, **mark.noted()}

    def _mark(self, connection: sa.Connection, known: Mark | None) -> Mark | None:
        """The highest value, and the rows at it; None if nothing is there (that is new)."""
        import sqlalchemy as sa

        from millpond.sources.databases.mark import MANY, Mark, digests
        from millpond.sources.databases.text import named

        rows, column = self.database.rows, named(self._column(self._discovered()))
        more = self._polling(known)
        value = connection.execute(rows.one(sa.func.max(column), **more)).scalar()
        if value is None:
            return None if known is not None else Mark(None, 0, ())
        if isinstance(value, float) and math.isnan(value):
            raise BadData(
                'the column of option "incremental.column" has the value NaN, after which nothing comes'
            )
        if known is not None and known.value is not None and value < known.value:
            return None
        at = column == value
        count = int(connection.execute(rows.one(sa.func.count(), at, **more)).scalar() or 0)
        if count > MANY:
            return Mark(value, count, None)
        found = [d for batch in self._rows(connection, self._select(at, **more)) for d in digests(batch)]
        return Mark(value, len(found), tuple(sorted(found)))

    def _polling(self, known: Mark | None) -> dict[str, Any]:
        """How ``Rows`` is asked for what is new since a mark."""
        from millpond.sources.databases.mark import before, lowest

        if self.values["poll.query"] is None or (known is None and not self._only_polled):
            return {}
        if known is None or known.value is None:
            column = self._discovered().find(self.values["incremental.column"])
            assert column is not None and column.type is not None
            return {"poll": True, "since": lowest(column.type, self.database.first_day)}
        return {"poll": True, "since": before(known.value)}

    @property
    def _only_polled(self) -> bool:
        return self.database.rows.table is None and self.database.rows.query is None

    def settled(self, at: Offset) -> bool:
        """Without asking: that is done once in an interval."""
        return self._newest is None or self.reached(at, self._newest)

    def replaced(self, start: Offset, end: Offset) -> bool:
        return bool(start["read"] != end["read"])

    def stands(self, end: Offset) -> bool:
        """A database is not what it was."""
        return False

    def reached(self, at: Offset | None, end: Offset) -> bool:
        """Two offsets of one place may have been reached in other steps."""
        return at is not None and {**at, "step": 0} == {**end, "step": 0}

    def poll(self, start: Offset | None) -> Offset:
        """What is known, until it is time to look again."""
        now = time.monotonic()
        if start is not None and now - self._polled_at < self.values["poll.interval"]:
            return start
        self._polled_at = now
        return self.latest(start)

    def splits(self, start: Offset | None, end: Offset) -> list[Split]:
        if self.reached(start, end):
            return []
        if start is not None and not self.replaced(start, end):
            return [SqlSplit(None, None, end["step"] << ROW_BITS, start, end)]
        return self._whole(end)

    def _whole(self, end: Offset) -> list[Split]:
        """All rows, by ranges of the key if several are to read them."""
        place = end if "value" in end else None
        rows = self._asked(self.database.estimate)
        bounds = self._asked(self._bounds) if self.parallel > 1 else []
        moment = self._moment() if bounds else self._held()
        if not bounds:
            return [SqlSplit(rows, None, 0, None, place, moment=moment)]
        each = None if rows is None else rows // (len(bounds) + 1)
        edges = [None, *bounds, None]
        return [
            SqlSplit(each, None, i << ROW_BITS, None, place, low, high, moment)
            for i, (low, high) in enumerate(itertools.pairwise(edges))
        ]

    def _held(self) -> str | None:
        """The moment at which one reader sees the database: the one that it begins at, unless one is held."""
        return None

    def _moment(self) -> str | None:
        """The moment at which several readers see the database."""
        return self.database.moment()

    @property
    def _range_column(self) -> str | None:
        """The column whose ranges are read side by side: a key of one whole number."""
        found = self._discovered()
        column = found.find(found.key[0]) if len(found.key) == 1 else None
        whole = column is not None and column.type is not None and pa.types.is_integer(column.type)
        return column.name if column is not None and whole and not self.database.rows.cut else None

    def _bounds(self, connection: sa.Connection) -> list[int]:
        """Values of the key between which there are about equally many."""
        import sqlalchemy as sa

        from millpond.sources.databases.text import named

        name = self._range_column
        if name is None:
            return []
        column, rows = named(name), self.database.rows
        low, high = (connection.execute(rows.one(f(column))).scalar() for f in (sa.func.min, sa.func.max))
        if low is None or high is None or high - low < self.parallel:
            return []
        count = self.parallel * 2
        return sorted({int(low) + (int(high) - int(low)) * i // count for i in range(1, count)})

    # rows

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        assert isinstance(split, SqlSplit)
        seq = split.first
        for batch in ahead(self._batches(split), self.values["prefetch.count"]):
            yield with_seq(batch, seq)
            seq += batch.num_rows

    def _batches(self, split: SqlSplit) -> Iterator[pa.RecordBatch]:
        with self.database.connected(split.moment) as connection:
            for statement, sieve in self._statements(split):
                for batch in self._rows(connection, statement):
                    kept = batch if sieve is None else sieve(batch)
                    size = self.values["batch.size"]
                    for at in range(0, kept.num_rows, size):
                        yield kept.slice(at, size)

    def _statements(self, split: SqlSplit) -> Iterator[tuple[sa.Select[Any], Any]]:
        """What is asked for a split, and what lets only its rows pass."""
        import sqlalchemy as sa

        from millpond.sources.databases.mark import Mark, Sieve
        from millpond.sources.databases.text import named

        conditions = self._pushed()
        if split.low is not None or split.high is not None:
            name = self._range_column
            assert name is not None
            key = named(name)
            if split.low is None:
                conditions.append(sa.or_(key < split.high, key.is_(None)))
            else:
                conditions += [key >= split.low, *([key < split.high] if split.high is not None else [])]
        if split.end is None:
            yield self._select(*conditions), None
            return
        column, end = named(self._column(self._discovered())), Mark.of(split.end)
        start = Mark.of(split.start) if split.start is not None else None
        more = self._polling(start)
        known = self._discovered().find(self.values["incremental.column"])
        if start is None and not more and known is not None and known.nullable:
            # Rows without a value are there when the table is loaded, and never new.
            yield self._select(*conditions, column.is_(None)), None
        if end.value is None:
            return
        if start is None or start.value is None:
            yield self._select(*conditions, column < end.value, **more), None
            yield self._select(*conditions, column == end.value, **more), Sieve(end.ties)
            return
        seen = start.ties or ()
        if start.value == end.value:
            yield self._select(column == end.value, **more), Sieve(end.ties, seen)
            return
        yield self._select(column == start.value, **more), Sieve(None, seen)
        yield self._select(column > start.value, column < end.value, **more), None
        yield self._select(column == end.value, **more), Sieve(end.ties)

    def _select(self, *conditions: Any, **more: Any) -> sa.Select[Any]:
        database = self.database
        statement = database.rows.select(self._read_schema, database.wire, *conditions, **more)
        return statement if self._need.limit is None else statement.limit(self._need.limit)

    def _pushed(self) -> list[Any]:
        predicate = self._need.predicate
        return [] if predicate is None else [self.database.condition(predicate)]

    @property
    def _read_schema(self) -> Schema:
        """The columns that are read, with the types in which they are."""
        physical = self._discovered()
        columns = (
            (c, physical.find(c.name)) for c in self.schema()
        )  # one that the table has lost is not read
        return Schema(tuple(self.database.reads(found, c) for c, found in columns if found is not None))

    def _rows(self, connection: sa.Connection, statement: sa.Select[Any]) -> Iterator[pa.RecordBatch]:
        """The rows of a SELECT, with the types of ``schema()``."""
        physical, schema = self._read_schema, self.schema()
        target = schema.arrow()
        places = {c.name.lower(): i for i, c in enumerate(physical)}
        for batch in self.database.batches(connection, statement, physical):
            if batch.schema.equals(target):
                yield batch
                continue
            arrays = []
            for column in schema:
                at = places.get(column.name.lower())
                array = pa.nulls(batch.num_rows, column.type) if at is None else batch.column(at)
                try:
                    arrays.append(array if array.type == column.type else array.cast(column.type))
                except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                    raise BadData(
                        f'column "{column.name}" is {type_name(array.type)} in the database and declared as'
                        f" {type_name(column.type)}: {error}"
                    ) from None
            yield pa.RecordBatch.from_arrays(arrays, schema=target)

    def close(self) -> None:
        if self._database is not None:
            self._database.close()


def _sound(
    predicate: Predicate, schema: Schema, compares: Callable[[pa.DataType, str], bool]
) -> Predicate | None:
    """What of a condition the database looks for as Spark would; at least the rows that meet all of it are found."""
    match predicate:
        case Compare(column, operator, _):
            known = schema.find(column)
            dtype = known.type if known is not None else None
            return predicate if dtype is not None and compares(dtype, operator) else None
        case IsNull(column, _):
            return predicate if column in schema else None
        case All(parts):
            return all_of(*(_sound(p, schema, compares) for p in parts))
        case Any_(parts):
            found = [_sound(p, schema, compares) for p in parts]
            return None if any(f is None for f in found) else Any_(tuple(f for f in found if f is not None))


def _same(one: Mark, other: Mark) -> bool:
    return bool(one.value == other.value) and (one.count, one.ties) == (other.count, other.ties)
