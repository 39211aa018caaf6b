"""Describes rows of a database to a source: where they are, their columns, and the SELECTs that are sent."""

from __future__ import annotations

import hashlib
import logging
import threading
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from millpond.connectors.abilities import Drifts, Narrows
from millpond.connectors.databases.uri import DatabaseAddress, address_of, options_in
from millpond.connectors.source import Source, Split
from millpond.errors import BadData, InvalidOption, without_passwords
from millpond.packages import needed
from millpond.predicates import All, Any_, Compare, IsNull, Need, OneOf, Predicate, all_of
from millpond.retry import Patience, for_connections
from millpond.types import Schema, type_name

if TYPE_CHECKING:
    import sqlalchemy as sa

    from millpond.connectors.databases.client import Database

log = logging.getLogger("millpond")
_ALL = Need(None, None, None)


class SqlRows(Drifts, Narrows):
    """Represents a table or a query of a database. Each kind is a subclass that names its ``Database``."""

    extra: ClassVar[str]
    """The extra of the package that installs its driver."""
    driver: ClassVar[str] = "sqlalchemy"
    """The other package that it needs."""

    @abstractmethod
    def _open(self) -> Database:
        """Opens its database. The required packages are imported here."""

    def __init__(self, uri: str, values: Mapping[str, Any], declared: Schema | None):
        said, rest = options_in(uri, self.options)
        by_default = {o.name: o.default for o in self.options}
        given = {k: v for k, v in values.items() if k not in said or v != by_default.get(k)}
        super().__init__(uri, said | given, declared)
        self.database_address = self._database_address(rest)
        self._schema: Schema | None = None
        self._physical: Schema | None = None
        self._database: Database | None = None
        self._need = _ALL
        self._origin: SqlRows | None = None
        """The source that this is a part of."""
        self._lock = threading.Lock()
        self._check_options()

    def _database_address(self, rest: tuple[tuple[str, str], ...]) -> DatabaseAddress:
        rows = any(self.values[name] is not None for name in ("table", "query", "poll.query"))
        found = address_of(self.uri, names_rows=rows)
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
        """Returns the address. What is read may contain secrets, so a digest identifies it."""
        read = {
            k: v
            for k, v in self.values.items()
            if k in ("table", "schema", "query", "query.params", "poll.query")
        }
        asked = hashlib.sha256(repr((self.uri, sorted(read.items()))).encode()).hexdigest()
        return f"{without_passwords(self.uri.partition('?')[0])}#{asked[:12]}"

    # columns

    def schema(self) -> Schema:
        """Returns the columns: declared, or those of the database; with the key of the database."""
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
        """Checks declared columns: a missing one is NULL; at least one must exist."""
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
        """Returns the incremental column as the database spells it."""
        from millpond.connectors.databases.incremental import check_column

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
        """Adds columns that were added to the table, unless the columns were declared; dropped ones are NULL."""
        if self._physical is None or not splits or self._need.columns is not None:
            return
        found = self._asked(self.database.discover)
        fresh = tuple(c for c in found if c.name not in self._physical)
        self._physical = found
        if fresh and self.declared is None:
            known = self.schema()
            self.take_columns(Schema((*known, *fresh), known.key))

    def take_columns(self, columns: Schema) -> None:
        """Replaces the columns."""
        self._schema, self._physical = columns, None
        if self._origin is not None:
            self._origin.take_columns(columns)

    @property
    def drifts(self) -> bool:
        return self.declared is None

    def _asked(self, ask: Any) -> Any:
        """Runs a query on the database; a lost connection is retried for a while."""

        def once() -> Any:
            with self.database.connected() as connection:
                return ask(connection)

        return self._patience().wait_for(once, issues=self.issues)

    def _patience(self) -> Patience:
        """Returns how long a lost connection is retried."""
        return for_connections(self.values["retry.timeout"] if self.patient else 0.0)

    # what the query needs

    def narrowed(self, need: Need) -> Source:
        """Returns a source whose database selects columns, rows and their number; not if a column determines what is
        new.
        """
        if self.values["incremental.column"] is not None or self.database.rows.cut or need == _ALL:
            return self
        physical, schema = self._discovered(), self.schema()
        sound = None if need.predicate is None else _sound(need.predicate, physical, self.database.compares)
        found: SqlRows = copy(self)
        found._database, found._origin = self.database, self
        found._need = Need(need.columns, sound, need.limit if _finds_just(sound, need, physical) else None)
        if need.columns is not None:
            found._schema = Schema(tuple(c for c in schema if c.name in need.columns) or schema.columns[:1])
        return found

    @property
    def sent(self) -> str:
        """Returns the SELECT that is sent to the database, for people."""
        statement = self._select(*self._pushed())
        dialect = self.database.engine.dialect
        try:
            text = statement.compile(dialect=dialect, compile_kwargs={"literal_binds": True})
        except Exception:  # a value that has no text in this SQL
            text = statement.compile(dialect=dialect)
        return " ".join(str(text).split())

    # rows

    def _select(self, *conditions: Any, **more: Any) -> sa.Select[Any]:
        database = self.database
        statement = database.rows.select(self._read_schema, database.wire, *conditions, **more)
        return statement if self._need.limit is None else statement.limit(self._need.limit)

    def _pushed(self) -> list[Any]:
        predicate = self._need.predicate
        return [] if predicate is None else [self.database.condition(predicate)]

    @property
    def _read_schema(self) -> Schema:
        """Returns the columns that are read, with the types in which they are."""
        physical = self._discovered()
        columns = (
            (c, physical.find(c.name)) for c in self.schema()
        )  # a dropped column of the table is not read
        return Schema(tuple(self.database.reads(found, c) for c, found in columns if found is not None))

    def _rows(self, connection: sa.Connection, statement: sa.Select[Any]) -> Iterator[pa.RecordBatch]:
        """Yields the rows of a SELECT, with the types of ``schema()``."""
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


def _finds_just(sound: Predicate | None, need: Need, schema: Schema) -> bool:
    """Returns whether the database finds no more rows than the query would: not by texts, of which more are equal there
    than here, nor by times, which may have more digits.
    """
    if need.predicate is None:
        return True
    t = pa.types

    def exact(predicate: Predicate) -> bool:
        match predicate:
            case Compare(column, _, _) | OneOf(column, _, _):
                known = schema.find(column)
                kinds = (t.is_integer, t.is_boolean, t.is_decimal, t.is_date)
                return known is not None and any(is_so(known.type) for is_so in kinds)
            case IsNull():
                return True
            case All(parts) | Any_(parts):
                return all(exact(p) for p in parts)

    return sound == need.predicate and exact(need.predicate)


def _sound(
    predicate: Predicate, schema: Schema, compares: Callable[[pa.DataType, str], bool]
) -> Predicate | None:
    """Returns the part of a condition that the database evaluates as Spark would; at least the rows that match all of
    it are found.
    """
    match predicate:
        case Compare(column, operator, _):
            known = schema.find(column)
            dtype = known.type if known is not None else None
            return predicate if dtype is not None and compares(dtype, operator) else None
        case OneOf():
            return predicate if _sound(predicate.spelled_out, schema, compares) is not None else None
        case IsNull(column, _):
            return predicate if column in schema else None
        case All(parts):
            return all_of(*(_sound(p, schema, compares) for p in parts))
        case Any_(parts):
            found = [_sound(p, schema, compares) for p in parts]
            return None if any(f is None for f in found) else Any_(tuple(f for f in found if f is not None))
