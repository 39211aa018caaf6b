"""Connects databases that have a driver of their own below SQLAlchemy, a login, and a changelog."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import sqlalchemy as sa
from sqlalchemy import event

from millpond.connectors.databases.client import Database
from millpond.types import Schema

if TYPE_CHECKING:
    from millpond.connectors.cdc.log import Log


class Named(Protocol):
    @property
    def name(self) -> str:
        """Returns the name of the database in messages."""


class HostedDatabase(Database):
    """Provides SQLAlchemy with the connections that the login makes."""

    drivername: ClassVar[str]
    """SQLAlchemy's name of the dialect and the driver."""
    login: Named

    @property
    def name(self) -> str:
        return self.login.name

    @property
    def line(self) -> str:
        """Returns which log has the changes of its tables: by default each database has one."""
        return self.name

    def url(self) -> sa.URL:
        return sa.URL.create(self.drivername)

    def _made(self) -> sa.Engine:
        engine = super()._made()
        event.listen(engine, "do_connect", lambda *_: self._connect())
        return engine

    @abstractmethod
    def _connect(self) -> Any:
        """Opens a connection of the driver."""

    @abstractmethod
    def log(self, owner: str, schema: Schema) -> Log:
        """Returns the changelog of the table, for one follower."""
