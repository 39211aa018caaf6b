"""Checks whether the changes of a MySQL table can be captured, and what must be done for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pymysql
from pymysql.constants import FIELD_TYPE

from millpond.connectors.mysql.cells import MADE
from millpond.connectors.mysql.snapshot import no_log, status_of
from millpond.connectors.mysql.statements import TableName
from millpond.connectors.mysql.table_map import Field, TableMap
from millpond.connectors.mysql.types import BINARY
from millpond.errors import CaptureRefused, Error, SourceChanged, TableMissing
from millpond.types import Schema

Ask = Callable[..., list[tuple[Any, ...]]]
AS_TEXT = frozenset(MADE)
_SETTINGS = {
    "binlog_format": ("ROW", "SET GLOBAL binlog_format = 'ROW' (sessions that are open keep theirs)"),
    "binlog_row_image": ("FULL", "SET GLOBAL binlog_row_image = 'FULL' (sessions that are open keep theirs)"),
    "binlog_row_metadata": ("FULL", "SET GLOBAL binlog_row_metadata = 'FULL'"),
}
_TABLE = (
    "SELECT table_schema, table_name, table_type, engine FROM information_schema.tables"
    " WHERE table_schema = %s AND table_name = %s"
)

_CASCADES = (
    "SELECT constraint_name, delete_rule, update_rule FROM information_schema.referential_constraints"
    " WHERE constraint_schema = %s AND table_name = %s"
)
_COLUMNS = "SELECT column_name, column_type FROM information_schema.columns WHERE table_schema = %s AND table_name = %s"


def name_of(ask: Ask, home: str | None, given: str | None) -> TableName:
    """Returns the table of a database as the server spells it."""
    found = ask(_TABLE, home, given)
    folds = variables(ask, "lower_case_table_names")["lower_case_table_names"] != "0"
    schema, table = found[0][:2] if found else (home, given)
    return TableName(str(schema), str(table), folds)


def variables(ask: Ask, *names: str) -> dict[str, str]:
    marks = ", ".join(["%s"] * len(names))
    return {
        str(k).lower(): str(v)
        for k, v in ask(f"SHOW GLOBAL VARIABLES WHERE variable_name IN ({marks})", *names)
    }


def check(ask: Ask, server: str, name: TableName, schema: Schema, what: str) -> None:
    """Raises CaptureRefused with the statement that helps. Messages name the database ``server``, and what is read of
    it ``what``.
    """
    found = variables(ask, "log_bin", *_SETTINGS)
    if found.get("log_bin", "OFF").upper() not in ("ON", "1"):
        raise no_log()
    for setting, (wanted, way) in _SETTINGS.items():
        value = found.get(setting)
        if value is None:
            raise CaptureRefused(
                f"{server} has no setting {setting}: it is too old for its changes to be followed",
                hint="MariaDB 10.5 or newer, MySQL 8.0.14 or newer",
            )
        if value.upper() != wanted:
            raise CaptureRefused(f"{setting} of {server} is {value}, and must be {wanted}", hint=way)
    _refuse_filters(ask, name)
    there = ask(_TABLE, name.schema, name.table)
    if not there:
        raise TableMissing(f"{server} has no {what}")
    _, _, kind, engine = there[0]
    if kind != "BASE TABLE":
        why = (
            "has its history in the log as well"
            if kind == "SYSTEM VERSIONED"
            else "is no table that is logged"
        )
        raise CaptureRefused(
            f'"{name}" ({str(kind).lower()}) {why}', hint="follow a plain table, or poll: 'poll.interval'"
        )
    _refuse_cascades(ask, name)
    for column, column_type in ask(_COLUMNS, name.schema, name.table):
        if column in schema and (str(column_type) == "json" or "COMPRESSED" in str(column_type)):
            raise CaptureRefused(
                f'column "{column}" of "{name}" is of the type {column_type}, which is not read from the log',
                hint="name the other columns in the SELECT, or poll the table: 'incremental.column'",
            )
    if not schema.key and engine != "InnoDB":
        raise CaptureRefused(
            f'"{name}" has no primary key, and {engine} tables cannot be read as of one moment',
            hint="ALTER TABLE … ADD PRIMARY KEY (…), or ENGINE = InnoDB",
        )


def _refuse_filters(ask: Ask, name: TableName) -> None:
    """Refuses a log that excludes the database: logs may be of some databases only."""
    only, never = (str(texts).split(",") if texts else [] for texts in status_of(ask)[2:4])
    if (only and name.schema not in only) or name.schema in never:
        raise CaptureRefused(
            f'the database "{name.schema}" is left out of the log',
            hint="binlog_do_db and binlog_ignore_db of the server say which are logged",
        )


def _refuse_cascades(ask: Ask, name: TableName) -> None:
    for key, delete_rule, update_rule in ask(_CASCADES, name.schema, name.table):
        rules = {"ON DELETE": delete_rule, "ON UPDATE": update_rule}
        for event, rule in rules.items():
            if rule in ("CASCADE", "SET NULL", "SET DEFAULT"):
                raise CaptureRefused(
                    f'the foreign key "{key}" of "{name}" is {event} {rule}: what it changes is not logged',
                    hint="ON DELETE RESTRICT ON UPDATE RESTRICT, or poll the table: 'poll.interval'",
                )


def refused(error: pymysql.Error, explained: Error, user: str) -> Error:
    """Returns the error; for a missing privilege that change capture needs, names who lacks it."""
    if error.args and error.args[0] == 1227:
        return CaptureRefused(
            explained.message, hint=f"GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO '{user}'"
        )
    return explained


def refuse_unnamed(table: TableMap) -> None:
    if not table.named:
        raise CaptureRefused(
            f'changes of "{table.schema}.{table.table}" are logged without the names of columns',
            hint="SET GLOBAL binlog_row_metadata = 'FULL', then load the table again",
        )


def refuse_key(table: TableMap, key: Sequence[str]) -> None:
    """Raises SourceChanged if several rows may have one key by now."""
    if key and table.named and not (table.key and {k.lower() for k in table.key} <= {k.lower() for k in key}):
        now = ", ".join(table.key) or "none"
        raise SourceChanged(
            f'the key of "{table.schema}.{table.table}" is ({now}) now, and was ({", ".join(key)})',
            hint="drop the table and make it again",
        )


def made_of(ask: Ask, name: TableName, field: Field) -> str:
    """Returns the type of a column that the log does not distinguish from BINARY; else nothing."""
    if field.code != FIELD_TYPE.STRING or field.charset != BINARY or field.a not in MADE.values():
        return ""
    found = ask(
        "SELECT data_type FROM information_schema.columns WHERE table_schema = %s AND table_name = %s"
        " AND column_name = %s",
        name.schema,
        name.table,
        field.name,
    )
    kind = str(found[0][0]).lower() if found else ""
    return kind if kind in MADE else ""


def holds(wide: pa.DataType, narrow: pa.DataType) -> bool:
    """Returns whether every value of one type is one of the other."""
    t = pa.types
    if wide == narrow or (t.is_string(wide) and not t.is_binary(narrow)):
        return True
    if t.is_integer(wide) and t.is_integer(narrow):
        return bool(wide.bit_width >= narrow.bit_width)
    if t.is_decimal(wide) and t.is_decimal(narrow):
        return bool(
            wide.scale >= narrow.scale and wide.precision - wide.scale >= narrow.precision - narrow.scale
        )
    if t.is_decimal(wide) and t.is_integer(narrow):
        return bool(wide.precision - wide.scale >= {8: 3, 16: 5, 32: 10, 64: 19}[narrow.bit_width])
    return bool(t.is_float64(wide) and t.is_float32(narrow))
