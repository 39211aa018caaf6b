"""Queries ClickHouse over HTTP: rows come as an Arrow stream."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import date
from typing import Any, ClassVar

import clickhouse_connect
import pyarrow as pa
import sqlalchemy as sa
from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import ClickHouseError
from clickhouse_connect.driver.httputil import get_pool_manager
from sqlalchemy import exc
from urllib3 import Timeout
from urllib3.exceptions import HTTPError

from millpond.connectors.clickhouse.arrow_stream import stream
from millpond.connectors.clickhouse.errors import explain
from millpond.connectors.clickhouse.sql import DRIVER, sent
from millpond.connectors.clickhouse.types import Unreadable, Wire, nested, wire_of
from millpond.connectors.databases.client import Database
from millpond.connectors.databases.selects import condition
from millpond.errors import BadData, Error, InvalidOption, NotSupported
from millpond.predicates import Predicate
from millpond.types import Column, Schema, type_name

PORT, SECURE_PORT = 8123, 8443
_EVER = 1_000_000
"""Seconds of a time-out that never occurs; the driver requires one."""


class ClickhouseDatabase(Database):
    """Represents a ClickHouse database. A table may have many rows of one primary key, so there is no key here."""

    dialect: ClassVar[str] = "clickhouse"
    first_day: ClassVar[date] = date(1970, 1, 1)
    _wires: dict[str, Wire] | None = None
    """How each column is transferred, by its name."""

    # connections

    def url(self) -> sa.URL:
        logging.getLogger("clickhouse_connect").setLevel(logging.CRITICAL)  # what it logs is raised too
        return sa.URL.create(DRIVER.replace(".", "+"))

    def connect_args(self) -> dict[str, Any]:
        values, address, environ = self.values, self.address, os.environ
        password = address.password or values["password"] or environ.get("CLICKHOUSE_PASSWORD") or ""
        tls = self._tls(password)
        return {
            "host": address.host or values["host"] or environ.get("CLICKHOUSE_HOST") or "localhost",
            "port": address.port or values["port"] or (SECURE_PORT if tls else PORT),
            "username": address.username or values["username"] or environ.get("CLICKHOUSE_USER") or "default",
            "password": password,
            "database": address.database or values["database"] or "default",
            "connect_timeout": math.ceil(values["connect.timeout"]),
            "send_receive_timeout": math.ceil(values["connect.timeout"]),  # until it is logged in
            "autogenerate_session_id": False,  # in a session only one query runs at a time
            "query_retries": 0,
            "tz_mode": "aware",
            "interface": "https" if tls else "http",
            **tls,
        }

    def _tls(self, password: str) -> dict[str, Any]:
        """Returns the driver's TLS settings; nothing without TLS."""
        mode, ca, cert, key = (self.values[f"ssl.{name}"] for name in ("mode", "ca", "cert", "key"))
        if mode is None:
            mode = "disable" if ca is None and cert is None else "verify-full"
        if mode == "prefer":
            raise InvalidOption(
                "option \"ssl.mode\" cannot be 'prefer' for ClickHouse: HTTP cannot negotiate TLS",
                hint="'disable', 'require', 'verify-ca' or 'verify-full'",
            )
        if mode == "disable":
            if ca is not None or cert is not None:
                raise InvalidOption(
                    "options \"ssl.ca\" and \"ssl.cert\" cannot be set with 'ssl.mode' = 'disable'"
                )
            return {}
        more: dict[str, Any] = {} if mode == "verify-full" else {"assert_hostname": False}
        try:
            manager = get_pool_manager(
                ca_cert=ca, verify=mode.startswith("verify"), client_cert=cert, client_cert_key=key, **more
            )
        except OSError as error:
            raise InvalidOption(f"a certificate cannot be read: {error}") from None
        found: dict[str, Any] = {"pool_mgr": manager, "verify": mode.startswith("verify")}
        if cert is not None:  # a user without a password logs in by the certificate
            found |= {"client_cert": cert, "tls_mode": "strict" if password else "mutual"}
        return found

    def prepared(self, connection: sa.Connection) -> None:
        client = _client(connection)
        wait = self.values["socket.timeout"] or _EVER
        client.timeout = Timeout(connect=self.values["connect.timeout"], read=wait)  # type: ignore[attr-defined]
        if self.values["query.timeout"] is not None:
            client.set_client_setting("max_execution_time", self.values["query.timeout"])

    @contextmanager
    def explaining(self) -> Iterator[None]:
        try:
            yield
        except Error:
            raise
        except (exc.SQLAlchemyError, ClickHouseError, HTTPError, pa.ArrowException, OSError) as error:
            asked = "query" if self.rows.query else "poll.query" if self.rows.poll_query else None
            asked = asked or ("where" if self.values["where"] else None)
            raise explain(error, self.name, self._names, asked=asked) from None

    def _names(self, query: str) -> list[str]:
        """Returns names of the system, for a hint: nothing if they are not available."""
        with suppress(Exception):
            arguments = self.connect_args()
            for database in (arguments.pop("database"), "default"):
                with (
                    suppress(ClickHouseError),
                    clickhouse_connect.get_client(**arguments, database=database) as c,
                ):
                    return [str(row[0]) for row in c.query(query).result_rows]
        return []

    # columns

    def discover(self, connection: sa.Connection) -> Schema:
        wires = self._described(connection)
        name = self.values["incremental.column"]
        wire = next((w for c, w in wires.items() if name is not None and c.lower() == name.lower()), None)
        if wire is not None and "DateTime64(9" in wire.made:
            raise InvalidOption(
                f'the column "{name}" of option "incremental.column" has digits below a microsecond',
                hint="a query may have it with less: SELECT …, toDateTime64(…, 6) AS …",
            )
        return Schema(tuple(Column(name, wire.type) for name, wire in wires.items()))

    def _described(self, connection: sa.Connection) -> dict[str, Wire]:
        relation = self.rows.relation(poll=self.rows.query is None)
        text, values = sent(sa.select(sa.text("*")).select_from(relation), connection.dialect)
        rows = _client(connection).query(f"DESCRIBE TABLE ({text})", values).result_rows
        found: dict[str, Wire] = {}
        for name, parts in _gathered(
            [(str(r[0]), str(r[1])) for r in rows], table=self.rows.table is not None
        ):
            kind = parts if isinstance(parts, str) else nested(parts)
            try:
                wire = wire_of(kind)
            except Unreadable as error:
                raise NotSupported(
                    f'column "{name}" is of the type {" ".join(kind.split())}, which cannot be read',
                    hint=f"{error}, in 'query' = 'SELECT …'",
                ) from None
            if isinstance(parts, str):
                found[name] = wire
            else:
                columns = ", ".join(_quoted(f"{name}.{part}") for part in parts)
                found[name] = Wire(wire.type, wire.made.replace("{0}", f"arrayZip({columns})"))
        self._wires = found
        return found

    # rows

    def wire(self, column: Column) -> sa.ColumnElement[Any]:
        made = self._made_by(column.name)
        return sa.literal_column(made) if made != "{0}" else super().wire(column)

    def _made_by(self, name: str) -> str:
        if self._wires is None:
            with self.connected() as connection:
                self._described(connection)
        assert self._wires is not None
        made = self._wires[name].made
        return made.replace("{0}", _quoted(name)) if made != "{0}" else made

    def compares(self, dtype: pa.DataType, operator: str) -> bool:
        """Returns whether values are compared as in Spark: texts are, by their bytes; but NaN, which is greater than
        every number here, is not.
        """
        types = pa.types
        exact = types.is_string(dtype) or types.is_integer(dtype) or types.is_decimal(dtype)
        return bool(exact or types.is_boolean(dtype) or types.is_date(dtype) or types.is_timestamp(dtype))

    def condition(self, predicate: Predicate) -> sa.ColumnElement[bool]:
        """Returns a condition on columns as they are transferred: then comparing an Enum with an unknown text is no
        error.
        """
        return condition(predicate, lambda name: self.wire(Column(name, None)))

    def batches(
        self, connection: sa.Connection, statement: sa.Select[Any], schema: Schema
    ) -> Iterator[pa.RecordBatch]:
        text, values = sent(statement, connection.dialect)
        # If a column is cast, its name still means the column.
        settings = {"prefer_column_name_to_alias": "1"} if self.rows.table is not None else {}
        settings["max_block_size"] = str(self.values["fetch.size"])
        arrow = schema.arrow()
        for batch in stream(_client(connection), text, values, settings):
            arrays = [_settled(c, array) for c, array in zip(schema, batch.columns, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, schema=arrow)

    def estimate(self, connection: sa.Connection) -> int | None:
        if self.rows.table is None or self.values["where"] is not None or self.rows.cut:
            return None
        system = sa.table("tables", sa.column("total_rows"), schema="system")
        database = self.rows.schema if self.rows.schema else sa.func.currentDatabase()
        known = sa.select(system.c.total_rows).where(
            sa.column("database") == database, sa.column("name") == self.rows.table
        )
        found = connection.execute(known).scalar()
        return None if found is None else int(found)


def _client(connection: sa.Connection) -> Client:
    found: Client = connection.connection.driver_connection.client  # type: ignore[union-attr]
    return found


def _quoted(name: str) -> str:
    return "`" + name.replace("\\", "\\\\").replace("`", "\\`") + "`"


def _gathered(columns: Sequence[tuple[str, str]], *, table: bool) -> list[tuple[str, Any]]:
    """Returns the columns with their types; those of a Nested, which a table stores separately, together."""
    found: dict[str, Any] = {}
    for name, kind in columns:
        whole, dot, part = name.partition(".")
        if table and dot and kind.startswith("Array("):
            found.setdefault(whole, {})[part] = kind
        else:
            found[name] = kind
    return list(found.items())


def _settled(column: Column, came: pa.Array) -> pa.Array:
    """Converts a received column to its type here."""
    if came.type == column.type:
        return came
    try:
        return came.cast(column.type)
    except pa.ArrowInvalid as error:
        raise BadData(
            f'column "{column.name}" has a value that is no {type_name(column.type)}: {error}',
            hint="a query may make another type of it: 'query' = 'SELECT hex(…), toString(…), toDateTime64(…, 6) …'",
        ) from None
