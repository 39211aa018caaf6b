"""Describes a table from the catalog of PostgreSQL, and whether its changes can be captured."""

from __future__ import annotations

from dataclasses import dataclass

from millpond.connectors.postgresql.login import Connected, Login
from millpond.errors import CaptureLost, CaptureRefused
from millpond.types import Schema

_LOGS_NOTHING = {"v": "a view", "m": "a materialized view", "f": "a foreign table", "S": "a sequence"}
_TABLE = (
    "SELECT c.oid::int8, n.nspname::text, c.relname::text, c.relkind::text, c.relpersistence::text"
    " FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = "
)
_IDENTITY = (
    "SELECT c.oid::regclass::text, c.relreplident::text, ARRAY(SELECT a.attname::text FROM pg_catalog.pg_index i"
    " JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey) WHERE i.indrelid = c.oid"
    " AND CASE c.relreplident WHEN 'd' THEN i.indisprimary ELSE i.indisreplident END) FROM pg_catalog.pg_class c"
    " WHERE (c.oid = %s AND c.relkind = 'r')"
    " OR c.oid IN (SELECT t.relid FROM pg_catalog.pg_partition_tree(%s::oid) t WHERE t.isleaf)"
)
_KEY = (
    "SELECT a.attname::text FROM pg_catalog.pg_index i JOIN pg_catalog.pg_attribute a"
    " ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey) WHERE i.indrelid = %s AND i.indisprimary"
    " ORDER BY array_position(i.indkey::int2[], a.attnum)"
)
# A table that was created as a partition was empty when it became one. One that is attached may be of the same
# transaction, but its columns are marked as inherited by the very command that marks it as a partition.
_PARTITIONS = (
    "SELECT t.relid::oid::int8, i.xmin = y.xmin AND EXISTS (SELECT FROM pg_catalog.pg_attribute a WHERE"
    " a.attrelid = t.relid AND a.attnum > 0 AND NOT a.attisdropped AND a.xmin = i.xmin AND NOT a.cmin = i.cmin)"
    " FROM pg_catalog.pg_partition_tree(%s::oid) t JOIN pg_catalog.pg_inherits i ON i.inhrelid = t.relid"
    " JOIN pg_catalog.pg_class c ON c.oid = t.relid JOIN pg_catalog.pg_type y ON y.oid = c.reltype"
    " WHERE t.level > 0 ORDER BY 1"
)


@dataclass(frozen=True, slots=True)
class Table:
    """Describes the table as it is in the catalog."""

    oid: int
    schema: str
    name: str
    kind: str
    persistence: str

    @property
    def quoted(self) -> str:
        return ".".join('"' + part.replace('"', '""') + '"' for part in (self.schema, self.name))


def by_name(login: Login, desk: Connected, name: str) -> Table | None:
    """Returns the table of a quoted name."""
    found = login.ask(desk, _TABLE + "to_regclass(%s)", (name,))
    return Table(*found[0]) if found else None


def by_oid(login: Login, desk: Connected, oid: int) -> Table | None:
    found = login.ask(desk, _TABLE + "%s", (oid,))
    return Table(*found[0]) if found else None


def key_of(login: Login, desk: Connected, oid: int) -> tuple[str, ...]:
    """Returns the primary key of a table."""
    return tuple(name for (name,) in login.ask(desk, _KEY, (oid,)))


def partitions(login: Login, desk: Connected, table: Table, known: list[int] | None) -> list[int] | None:
    """Returns the numbers of the partitions of a table; None if it has none. Raises CaptureLost if rows were added or
    removed with a partition since ``known`` were all, which is not logged.
    """
    if table.kind != "p":
        return None
    found = dict(login.ask(desk, _PARTITIONS, (table.oid,)))
    gone = [oid for oid in known or () if oid not in found]
    attached = [oid for oid, made in found.items() if known is not None and oid not in known and not made]
    if gone or attached:
        done = "dropped or detached" if gone else "attached"
        raise CaptureLost(
            f"a partition of {table.quoted} was {done}: that is not in the log",
            hint="drop the table and make it again, so that it is loaded as it is now",
        )
    return list(found)


def check(login: Login, desk: Connected, table: Table, schema: Schema) -> None:
    """Raises CaptureRefused, with what must be done, if its changes cannot be captured."""
    if table.kind in _LOGS_NOTHING:
        raise CaptureRefused(
            f"{table.quoted} is {_LOGS_NOTHING[table.kind]}: its changes are not logged",
            hint="follow the table below it, or poll: 'poll.interval' = '10s'",
        )
    if table.persistence != "p":
        raise CaptureRefused(f"{table.quoted} is not logged", hint=f"ALTER TABLE {table.quoted} SET LOGGED")
    check_server(login, desk)
    _check_identity(login, desk, table, schema)
    _check_columns(login, desk, table, schema)


def check_server(login: Login, desk: Connected) -> None:
    """Raises CaptureRefused if the server does not allow this user to read its log."""
    (row,) = login.ask(
        desk,
        "SELECT current_setting('wal_level'), pg_is_in_recovery(), rolsuper OR rolreplication, rolname::text"
        " FROM pg_catalog.pg_roles WHERE rolname = current_user",
    )
    level, standby, allowed, user = row
    if standby:
        raise CaptureRefused(
            f"{login.name} is a standby, which keeps no log for readers", hint="name the primary"
        )
    if level != "logical":
        raise CaptureRefused(
            f'{login.name} has wal_level "{level}": its log does not contain row changes',
            hint="ALTER SYSTEM SET wal_level = 'logical', then restart the server",
        )
    if not allowed:
        raise CaptureRefused(
            f'"{user}" may not read the log of {login.name}',
            hint=f'ALTER ROLE "{user}" REPLICATION',
        )


def _check_identity(login: Login, desk: Connected, table: Table, schema: Schema) -> None:
    for name, identity, columns in login.ask(desk, _IDENTITY, (table.oid, table.oid)):
        if identity == "f":
            continue
        logged = {c.lower() for c in columns}
        if identity == "n" or not schema.key or not {k.lower() for k in schema.key} <= logged:
            known = f"({', '.join(schema.key)})" if schema.key else "all of a row"
            raise CaptureRefused(
                f"the log does not say {known} of rows of {name} that are changed or deleted",
                hint=f"ALTER TABLE {name} REPLICA IDENTITY FULL, or give it a PRIMARY KEY",
            )


def _check_columns(login: Login, desk: Connected, table: Table, schema: Schema) -> None:
    made = login.ask(
        desk,
        "SELECT attname::text FROM pg_catalog.pg_attribute WHERE attrelid = %s AND attgenerated <> ''"
        " AND NOT attisdropped",
        (table.oid,),
    )
    for (column,) in made:
        if column in schema:
            raise CaptureRefused(
                f'the column "{column}" of {table.quoted} is generated, and not in the log',
                hint="leave it out: name the other columns in SELECT",
            )
