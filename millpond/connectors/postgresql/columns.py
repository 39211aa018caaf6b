"""Reads rows of a query in columns: ADBC's driver receives COPY in its binary form, and decodes it without Python.

It is for what it reads exactly as the texts of COPY are read (copy.py): plain types, of which every value has a place
in the type here. It has a connection of its own, in the snapshot of the one that asks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from datetime import date
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.compute as pc

from millpond.connectors.postgresql.text import from_texts
from millpond.connectors.postgresql.types import PgType
from millpond.types import Column, Schema

_EXACT = frozenset("bool int2 int4 int8 float4 float8 date timestamp timestamptz bytea".split())
_TEXTS = (25, 1042, 1043)
"""text, character and character varying: others that are texts here are something else in the binary form."""
_BATCH = 4 << 20
"""Bytes of a batch, about."""
_DAYS = (date(1, 1, 1).toordinal() - 719_163, date(9999, 12, 31).toordinal() - 719_163)
_DAY = 86_400_000_000


class StrangeValue(Exception):
    """Reports a time that has no place here: only its text says which."""


def can_read(schema: Schema, kinds: Sequence[PgType], types: Sequence[int]) -> bool:
    """Returns whether all columns are read exactly; ``types`` are their numbers in the catalog."""
    return all(_is_exact(c, k, t) for c, k, t in zip(schema, kinds, types, strict=True))


def _is_exact(column: Column, kind: PgType, number: int) -> bool:
    if kind.form == "numeric":
        return bool(pa.types.is_decimal(column.type))
    if kind.form == "text":
        return number in _TEXTS
    return kind.form in _EXACT and column.type == kind.arrow


class ColumnReader:
    """Represents a connection that reads one query, in a snapshot. Raises what psycopg does."""

    def __init__(self, conninfo: str, snapshot: str):
        from adbc_driver_postgresql import dbapi

        self._driver = dbapi
        self._connection: Any = dbapi.connect(conninfo)
        try:
            with closing(self._connection.cursor()) as cursor:
                cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
                cursor.execute(f"SET TRANSACTION SNAPSHOT '{snapshot}'")
        except BaseException:
            self._connection.close()
            raise

    def read(self, query: str, schema: Schema, kinds: Sequence[PgType]) -> Iterator[pa.RecordBatch]:
        """Yields the rows of a SELECT. Raises StrangeValue for a value that only its text can tell."""
        cursor = self._connection.cursor()
        ended = False
        try:
            cursor.adbc_statement.set_options(**{"adbc.postgresql.batch_size_hint_bytes": str(_BATCH)})
            cursor.execute(query)
            target = schema.arrow()
            for batch in cursor.fetch_record_batch():
                arrays = [
                    _array(found, column, kind)
                    for found, column, kind in zip(batch.columns, schema, kinds, strict=True)
                ]
                yield pa.RecordBatch.from_arrays(arrays, schema=target)
            ended = True
        except (self._driver.Error, pa.ArrowException, OSError) as error:
            raise _as_psycopg(error) from error
        finally:
            with suppress(Exception):
                if not ended:
                    cursor.adbc_cancel()
                cursor.close()
            with suppress(Exception):
                self._connection.close()


def column_reader(conninfo: str, snapshot: str) -> ColumnReader | None:
    """Returns a reader; None without the driver, or if it cannot connect: the other way says why."""
    try:
        return ColumnReader(conninfo, snapshot)
    except Exception:
        return None


def _array(found: pa.Array, column: Column, kind: PgType) -> pa.Array:
    assert column.type is not None
    if isinstance(found, pa.ExtensionArray):
        found = found.storage
    if kind.form == "numeric":
        return from_texts(found, kind, column.type, column.name)
    if found.type != column.type:
        raise StrangeValue
    if pa.types.is_date(found.type) or pa.types.is_timestamp(found.type):
        _check_times(found)
    return found


def _check_times(found: pa.Array) -> None:
    """Checks that all are in the years 1 to 9999: not infinity, nor what has no text that is read here."""
    day = pa.types.is_date(found.type)
    ends = pc.min_max(found.view(pa.int32() if day else pa.int64()))
    low, high = ends["min"].as_py(), ends["max"].as_py()
    size = 1 if day else _DAY
    if low is not None and not (_DAYS[0] * size <= low and high < (_DAYS[1] + 1) * size):
        raise StrangeValue


def _as_psycopg(error: Exception) -> psycopg.Error:
    state = getattr(error, "sqlstate", None)
    kind: type[psycopg.Error] = psycopg.OperationalError
    if state:
        with suppress(KeyError):
            kind = psycopg.errors.lookup(state)
    return kind(str(error).splitlines()[0] if str(error) else "no answer")
