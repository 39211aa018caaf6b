"""Opens the log of a table whose rows the app stores in a database."""

from __future__ import annotations

import pyarrow as pa

from millpond.connectors.cdc.database import HostedDatabase
from millpond.connectors.cdc.log import Log
from millpond.connectors.cdc.source import CapturingSource
from millpond.connectors.databases.server_table import ServerTable
from millpond.connectors.row_times import TIME
from millpond.connectors.source import find_source
from millpond.options import read_options, settings_of
from millpond.types import Column, Schema


class StoredLog:
    """Represents the log of a stored table, for one app: ``log`` has the columns of ``logged_schema``."""

    def __init__(self, table: ServerTable, url: str, owner: str):
        kind = find_source(url)
        assert issubclass(kind, CapturingSource)
        *home, name = table.parts
        settings = {"table": name, "cdc": "true", "initial.load": "none"}
        settings |= {"schema": home[0]} if home else {}
        source = kind(url, read_options(table.what, kind.options, settings_of(settings)), None)
        assert isinstance(source.database, HostedDatabase)
        self._source = source
        self.log: Log = source.database.log(owner, logged_schema(table))

    def close(self) -> None:
        self.log.close()
        self._source.close()


def logged_schema(table: ServerTable) -> Schema:
    """Returns the columns of a table as its log has them: under their names there, nested ones as JSON."""
    columns = tuple(
        Column(table.stored[c.name], pa.string() if pa.types.is_nested(c.type) else c.type)
        for c in table.columns
        if c.name != TIME
    )
    key = tuple(table.stored[table.column(name).name] for name in table.identity)
    return Schema(columns, key)
