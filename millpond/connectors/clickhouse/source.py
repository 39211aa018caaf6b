"""Implements the ClickHouse source: a table, or the result of a SELECT there."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from millpond.connectors.databases.options import LOGIN_OPTIONS, SHARED_OPTIONS, SOCKET_OPTION
from millpond.connectors.databases.source import SqlSource
from millpond.errors import InvalidOption
from millpond.options import Option

if TYPE_CHECKING:
    from millpond.connectors.databases.client import Database


class ClickhouseSource(SqlSource):
    """Reads over HTTP, with clickhouse-connect."""

    kind: ClassVar[str] = "clickhouse"
    schemes: ClassVar[tuple[str, ...]] = ("clickhouse",)
    extra: ClassVar[str] = "clickhouse"
    driver: ClassVar[str] = "clickhouse_connect"
    options: ClassVar[tuple[Option, ...]] = (
        *SHARED_OPTIONS,
        *LOGIN_OPTIONS,
        SOCKET_OPTION,
        Option("cdc", "bool", "cannot be true: ClickHouse has no change log that others can read", False),
    )

    def _check_options(self) -> None:
        super()._check_options()
        if self.values["cdc"]:
            raise InvalidOption(
                'option "cdc" cannot be true for ClickHouse: it has no change log that others can read',
                hint="'poll.interval' = '10s', and 'incremental.column' = '…' if one grows",
            )
        if self.values["parallel.readers"] != 1:
            raise InvalidOption(
                'option "parallel.readers" does not apply to ClickHouse: its keys are not unique, and several'
                " queries share no snapshot",
                hint="leave it out: the server reads with all its cores",
            )
        if self.values["transaction.isolation"] != "read committed":
            raise InvalidOption(
                'option "transaction.isolation" does not apply to ClickHouse: it has no transactions',
                hint="leave it out: one SELECT sees each table as it was when it began",
            )

    def _open(self) -> Database:
        from millpond.connectors.clickhouse.client import ClickhouseDatabase

        return ClickhouseDatabase(self.uri, self.database_address, self.values)
