"""Reads tables and queries of MySQL and MariaDB: ``mysql://``."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from millpond.connectors.cdc.source import CapturingSource
from millpond.connectors.databases.options import (
    CAPTURE_OPTIONS,
    LOGIN_OPTIONS,
    SHARED_OPTIONS,
    SOCKET_OPTION,
)
from millpond.errors import InvalidOption
from millpond.options import Option

if TYPE_CHECKING:
    from millpond.connectors.databases.client import Database


class MysqlSource(CapturingSource):
    """Reads with PyMySQL, and follows the binary log."""

    kind: ClassVar[str] = "mysql"
    schemes: ClassVar[tuple[str, ...]] = ("mysql", "mariadb")
    extra: ClassVar[str] = "mysql"
    driver: ClassVar[str] = "pymysql"
    options: ClassVar[tuple[Option, ...]] = (
        *SHARED_OPTIONS,
        *LOGIN_OPTIONS,
        SOCKET_OPTION,
        *CAPTURE_OPTIONS,
        Option(
            "binlog.file",
            "text",
            "the file of the binary log to start from, with 'initial.load' = 'none'; auto: as "
            "'cdc.start' says",
            "auto",
        ),
        Option(
            "binlog.position",
            "int",
            "the position in 'binlog.file'; auto: its beginning, or, without a file, as 'cdc.start' says",
            "auto",
            ("auto",),
            least=4,
        ),
    )

    def _check_options(self) -> None:
        super()._check_options()
        named = self.values["binlog.file"] != "auto"
        if named and not (self.values["cdc"] and self.values["initial.load"] == "none"):
            raise InvalidOption(
                'option "binlog.file" is for changes without the rows before them',
                hint="'cdc' = 'true' and 'initial.load' = 'none', or leave it out",
            )
        if self.values["binlog.position"] != "auto" and not named:
            raise InvalidOption('option "binlog.position" needs "binlog.file"')

    def _open(self) -> Database:
        from millpond.connectors.mysql.client import MysqlDatabase

        return MysqlDatabase(self.uri, self.database_address, self.values)
