"""Reads rows of a query by COPY, as CSV that Arrow parses: no value passes through Python."""

from __future__ import annotations

import selectors
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import psycopg
import pyarrow as pa
from pyarrow import csv

from millpond.connectors.postgresql.login import Connected
from millpond.connectors.postgresql.text import from_texts
from millpond.connectors.postgresql.types import PgType
from millpond.types import Schema

_AT_ONCE = frozenset("bool int2 int4 int8 float4 float8 oid xid cid date timestamp timestamptz text".split())
_ALL_DIGITS = 38


def _at_once(kind: PgType) -> bool:
    """Returns whether Arrow parses the values correctly as CSV: decimals only if the column cannot have more digits."""
    return kind.form in _AT_ONCE or (kind.form == "numeric" and kind.arrow.precision < _ALL_DIGITS)


def copied(
    connection: Connected,
    query: str,
    schema: Schema,
    kinds: Sequence[PgType],
    *,
    size: int,
    timeout: float | None,
) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a SELECT of the columns of ``schema``, so many at a time. ``timeout``: the seconds that the
    server may be silent. Raises what psycopg does.
    """
    reader = _Reader(schema, kinds)
    with _Copy(connection, f"COPY ({query}\n) TO STDOUT (FORMAT csv)".encode(), timeout) as copy:
        while lines := copy.lines(size):
            yield reader.read(b"".join(lines))


class _Copy:
    """Reads what COPY sends. This is the loop over all rows of a load: it calls libpq directly, since psycopg's own
    loop takes 50% longer for each.
    """

    def __init__(self, connection: Connected, command: bytes, timeout: float | None):
        self._connection = connection
        self._pgconn = connection.pgconn
        self._timeout = timeout
        self._ended = False
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._pgconn.socket, selectors.EVENT_READ)
        self._pgconn.send_query(command)
        while self._pgconn.flush():
            time.sleep(0.001)
        self._result(psycopg.pq.ExecStatus.COPY_OUT)

    def __enter__(self) -> _Copy:
        return self

    def lines(self, count: int) -> list[Any]:
        """Returns the next rows, so many; fewer at the end."""
        found: list[Any] = []
        take, add = self._pgconn.get_copy_data, found.append
        while not self._ended:
            size, line = take(1)
            if size > 0:
                add(line)
                if len(found) == count:
                    break
            elif size == 0:
                self._wait()
            else:
                self._ended = True
                self._result(psycopg.pq.ExecStatus.COMMAND_OK)
        return found

    def _wait(self) -> None:
        if not self._selector.select(self._timeout):
            self._connection.close()  # a response may still come, to nobody
            raise psycopg.errors.ConnectionTimeout(f"no answer for {self._timeout:g} s")
        self._pgconn.consume_input()

    def _result(self, wanted: int) -> None:
        while self._pgconn.is_busy():
            self._wait()
        result = self._pgconn.get_result()
        if result is None or result.status != wanted:
            self._ended = True
            while self._pgconn.get_result() is not None:
                pass
            raise (
                psycopg.errors.error_from_result(result) if result else psycopg.OperationalError("no answer")
            )

    def __exit__(self, *_: object) -> None:
        """Discards the rest."""
        self._finish()
        self._selector.close()

    def _finish(self) -> None:
        if self._ended or self._connection.closed:
            while not self._connection.closed and self._pgconn.get_result() is not None:
                pass
            return
        with suppress(psycopg.Error):
            self._connection.cancel_safe(timeout=5)
            while not self._ended:
                self.lines(10_000)


class _Reader:
    """Parses CSV as COPY writes it: NULL is nothing, an empty text has quotes."""

    def __init__(self, schema: Schema, kinds: Sequence[PgType]):
        self._schema = schema
        self._arrow = schema.arrow()
        self._kinds = kinds
        names = [str(i) for i in range(len(schema))]
        self._plain = dict.fromkeys(names, pa.string())
        self._typed = {
            n: c.type if c.type == k.arrow and _at_once(k) else pa.string()
            for n, c, k in zip(names, schema, kinds, strict=True)
        }
        self._reading = csv.ReadOptions(column_names=names, block_size=1 << 30, use_threads=False)
        self._parsing = csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False)

    def read(self, data: bytes) -> pa.RecordBatch:
        try:
            found = self._columns(data, self._typed)
        except pa.ArrowInvalid:
            # The texts show which value of which column it was.
            found = self._columns(data, self._plain)
        arrays = []
        for column, kind, array in zip(self._schema, self._kinds, found, strict=True):
            assert column.type is not None
            typed = array.type == column.type and not pa.types.is_string(array.type)
            arrays.append(array if typed else from_texts(array, kind, column.type, column.name))
        return pa.RecordBatch.from_arrays(arrays, schema=self._arrow)

    def _columns(self, data: bytes, types: Mapping[str, pa.DataType]) -> list[pa.Array]:
        options = csv.ConvertOptions(
            column_types=dict(types),
            null_values=[""],
            true_values=["t"],
            false_values=["f"],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        )
        table = csv.read_csv(pa.BufferReader(data), self._reading, self._parsing, options)
        return [c.combine_chunks() if c.num_chunks != 1 else c.chunk(0) for c in table.columns]
