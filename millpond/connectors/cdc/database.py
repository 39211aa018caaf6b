"""Databases with a driver of their own below SQLAlchemy, a login, and a log of changes."""

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
        """What the database is called in messages."""


class HostedDatabase(Database):
    """SQLAlchemy gets the connections that the login makes."""

    drivername: ClassVar[str]
    """What SQLAlchemy calls the dialect and the driver."""
    login: Named

    @property
    def name(self) -> str:
        return self.login.name

    def url(self) -> sa.URL:
        return sa.URL.create(self.drivername)

    def _made(self) -> sa.Engine:
        engine = super()._made()
        event.listen(engine, "do_connect", lambda *_: self._connect())
        return engine

    @abstractmethod
    def _connect(self) -> Any:
        """A connection of the driver."""

    @abstractmethod
    def log(self, owner: str, schema: Schema) -> Log:
        """The log of changes of the table, for one who follows it."""
