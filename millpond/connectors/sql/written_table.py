"""Writes rows and a position in one transaction, in the SQL that all databases have: INSERT, UPDATE and DELETE."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import sqlalchemy as sa
from sqlalchemy import exc, pool

from millpond import faults
from millpond.changes import Changes, Position
from millpond.connectors.databases.rows_sink import changes_of, taken_over
from millpond.connectors.sql.client import FILES
from millpond.digits import all_written
from millpond.errors import (
    BadData,
    ConnectionLost,
    InvalidOption,
    PackageMissing,
    SourceError,
    UnknownName,
    without_passwords,
)
from millpond.formats.jsontext import to_cells
from millpond.records.checks import checked
from millpond.records.last_rows import last_changes
from millpond.types import Column, Schema, whole

_POSITIONS = sa.Table(
    "millpond_sink_positions",
    sa.MetaData(),
    sa.Column("pipeline", sa.String(500), primary_key=True),
    sa.Column("owner", sa.String(100), nullable=False),
    sa.Column("batch", sa.BigInteger, nullable=False),
    sa.Column("position", sa.Text, nullable=False),
)
"""Tables of positions that other connectors create are named and typed otherwise."""
_EXACT_DIGITS = 15
"""Decimal digits that a float has, which is what some databases have for a NUMERIC."""


class WrittenTable:
    """Represents a table, created if it does not exist. Position and owner are a row of ``millpond_sink_positions``."""

    def __init__(self, url: str, name: str, schema: Schema):
        self._engine = _engine(url)
        self._plain = self._engine.dialect.name == FILES
        """Whether the database has numbers and texts alone: decimals and times are written as text."""
        self._given = name
        self._what = f'table "{name}"'
        self._schema = schema
        self._parts: tuple[str | None, str] = (name.rpartition(".")[0] or None, name.rpartition(".")[2])
        self._rows = sa.table(self._parts[1], *(sa.column(c.name) for c in schema), schema=self._parts[0])
        self._pipeline: str | None = None
        self.owner = ""
        with self._transaction() as connection:
            self._create_or_check(connection)

    def _transaction(self) -> AbstractContextManager[sa.Connection]:
        return _transaction(self._engine, self._what)

    def _create_or_check(self, connection: sa.Connection) -> None:
        _POSITIONS.create(connection, checkfirst=True)
        schema, name = self._parts
        inspected = sa.inspect(connection)
        if not inspected.has_table(name, schema):
            columns = [
                sa.Column(c.name, self._type(c), primary_key=c.name in self._schema.key) for c in self._schema
            ]
            sa.Table(name, sa.MetaData(), *columns, schema=schema).create(connection)
            return
        there = {c["name"].lower() for c in inspected.get_columns(name, schema)}
        for column in self._schema:
            if column.name.lower() not in there:
                raise UnknownName(
                    f'{self._what} has no column "{column.name}"',
                    hint=f"its columns: {', '.join(sorted(there))}",
                )

    def _type(self, column: Column) -> Any:
        t, dtype = pa.types, column.type or pa.string()
        keyed = column.name in self._schema.key
        if t.is_decimal(dtype):
            fits = not self._plain or dtype.precision <= _EXACT_DIGITS
            return sa.Numeric(dtype.precision, dtype.scale) if fits else sa.Text()
        if t.is_timestamp(dtype):
            return sa.DateTime(timezone=dtype.tz is not None)
        kinds: Sequence[tuple[Any, Any]] = (
            (t.is_boolean, sa.Boolean()),
            (t.is_integer, sa.BigInteger()),
            (t.is_floating, sa.Double()),
            (t.is_date, sa.Date()),
            (t.is_binary, sa.LargeBinary()),
        )
        text = sa.String(255) if keyed else sa.Text()
        return next((kind for is_kind, kind in kinds if is_kind(dtype)), text)

    # the position

    def take_over(self, pipeline: str | None, owner: str | None) -> Position | None:
        """Makes this the one that writes for a pipeline, if there is one, and returns its position. If it was that as
        ``owner`` before, no other process may have become it since.
        """
        self._pipeline = pipeline
        if pipeline is None:
            return None
        self.owner = owner or uuid.uuid4().hex
        positions = _POSITIONS.c
        with self._transaction() as connection:
            # A change comes first, so that another one waits.
            if not self._note(connection, batch=positions.batch):
                first = {"pipeline": pipeline, "owner": self.owner, "batch": -1, "position": "null"}
                connection.execute(sa.insert(_POSITIONS).values(first))
            found = sa.select(positions.owner, positions.position).where(positions.pipeline == pipeline)
            known, at = connection.execute(found).one()
            if owner and known != owner:
                raise taken_over(self._given)
            self._note(connection, owner=self.owner)
        noted = json.loads(at)
        return None if noted is None else Position(*noted)

    def _note(self, connection: sa.Connection, *, mine: bool = False, **values: Any) -> int:
        """Changes the row of the pipeline, if it is there; and if it is still ``mine``."""
        same = [
            _POSITIONS.c.pipeline == self._pipeline,
            *([_POSITIONS.c.owner == self.owner] if mine else []),
        ]
        return int(connection.execute(sa.update(_POSITIONS).where(*same).values(values)).rowcount)

    def _advance(self, connection: sa.Connection, position: Position | None) -> None:
        """Stores the position. It is the first change of the transaction, so that another writer waits."""
        values: dict[str, Any] = {"batch": _POSITIONS.c.batch}
        if position is not None:
            values = {"batch": position.batch, "position": json.dumps(position.parts)}
        if not self._note(connection, mine=True, **values):
            raise taken_over(self._given)

    # rows

    def write(self, rows: pa.Table, position: Position | None, *, undo: bool = False) -> None:
        """Writes rows and the position in one transaction; ``undo`` only tries it."""
        changes = checked(self._schema, changes_of(rows), what=self._what, null_keys=False)
        with self._transaction() as connection:
            faults.reach("sink: begun")
            if self._pipeline is not None and not undo:
                self._advance(connection, position)
            self._apply(connection, last_changes(changes, self._schema.key))
            faults.reach("sink: positioned")
            if undo:
                connection.rollback()

    def _apply(self, connection: sa.Connection, changes: Changes) -> None:
        marks: dict[str, Any] = {n: sa.bindparam(_value_name(i)) for i, n in enumerate(self._schema.names)}
        if self._schema.key and len(changes):
            same = [self._rows.c[n] == marks[n] for n in self._schema.key]
            keys = self._values(changes.rows, self._schema.key)
            connection.execute(sa.delete(self._rows).where(*same), keys)
        rows = changes.put
        if rows.num_rows:
            connection.execute(sa.insert(self._rows).values(marks), self._values(rows, self._schema.names))

    def _values(self, rows: pa.Table, names: Sequence[str]) -> list[dict[str, Any]]:
        """Returns what the driver takes for each row."""
        marks = [_value_name(self._schema.names.index(n)) for n in names]
        columns = [self._cells(n, whole(rows.column(n))) for n in names]
        return [dict(zip(marks, row, strict=True)) for row in zip(*columns, strict=True)]

    def _cells(self, name: str, values: pa.Array) -> list[Any]:
        t = pa.types
        if self._plain and t.is_floating(values.type) and pc.any(pc.is_nan(values)).as_py():
            raise BadData(
                f'{self._what} refuses it: column "{name}" is NaN, which the database stores as NULL'
            )
        if t.is_nested(values.type) or t.is_duration(values.type):
            return list(to_cells(pa.chunked_array([values])).to_pylist())
        if self._plain and t.is_decimal(values.type):
            return list(all_written(values).to_pylist())
        if self._plain and t.is_timestamp(values.type):
            return list(values.cast(pa.timestamp("us")).cast(pa.string()).to_pylist())
        if self._plain and t.is_date(values.type):
            return list(pc.cast(values, pa.string()).to_pylist())
        return list(values.to_pylist())

    def close(self) -> None:
        self._engine.dispose()


def forget(url: str, table: str, pipeline: str) -> None:
    """Removes the position of a pipeline, if there is one. The table is not touched."""
    engine = _engine(url)
    try:
        with _transaction(engine, f'table "{table}"') as connection:
            if sa.inspect(connection).has_table(_POSITIONS.name):
                connection.execute(sa.delete(_POSITIONS).where(_POSITIONS.c.pipeline == pipeline))
    finally:
        engine.dispose()


def _engine(url: str) -> sa.Engine:
    try:
        return sa.create_engine(url, poolclass=pool.NullPool)
    except (exc.NoSuchModuleError, exc.ArgumentError) as error:
        raise InvalidOption(f'"{without_passwords(url)}" is no URL of SQLAlchemy: {error}') from None
    except ImportError as error:
        raise PackageMissing(
            f"the driver of the database is not installed: {error.name}", hint=f"pip install {error.name}"
        ) from None


@contextmanager
def _transaction(engine: sa.Engine, what: str) -> Iterator[sa.Connection]:
    """Provides a transaction; translates errors."""
    try:
        with engine.begin() as connection:
            yield connection
    except (exc.IntegrityError, exc.DataError) as error:
        raise BadData(f"{what} refuses it: {_said(error)}") from None
    except (exc.OperationalError, exc.InterfaceError) as error:
        raise ConnectionLost(f"{what} cannot be written: {_said(error)}") from None
    except exc.SQLAlchemyError as error:
        raise SourceError(f"{what} cannot be written: {_said(error)}") from None


def _value_name(at: int) -> str:
    """Returns the name of a value; it is that of no column."""
    return f"millpond_value_{at}"


def _said(error: exc.SQLAlchemyError) -> str:
    return str(getattr(error, "orig", None) or error).strip().partition("\n")[0]
