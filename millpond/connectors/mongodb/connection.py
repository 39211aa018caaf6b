"""Sends requests to a MongoDB database, and again if the connection is lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from millpond.connectors.mongodb.commits import Document
from millpond.connectors.mongodb.trouble import database_of, driver, explained, place_of, wrong_url
from millpond.errors import Closed, ConnectionLost, InvalidOption
from millpond.retry import for_connections

if TYPE_CHECKING:
    from pymongo import MongoClient
    from pymongo.collection import Collection

T = TypeVar("T")


class MongoConnection:
    """Represents the connections to a database. Reads see what most servers of a set have, and writes wait for it."""

    def __init__(self, url: str, *, connections: int, retry_timeout: float, connect_timeout: float):
        self.name = f"the database {place_of(url)}"
        self.patience = for_connections(retry_timeout)
        self.closed = False
        self._client: MongoClient[Document] = self._connected(
            url, connections, retry_timeout, connect_timeout
        )
        from bson.codec_options import CodecOptions, DatetimeConversion
        from pymongo import ReadPreference
        from pymongo.read_concern import ReadConcern

        options: CodecOptions[Document] = CodecOptions(datetime_conversion=DatetimeConversion.DATETIME_MS)
        # Whatever the URL says: a read that misses a commit would let the next one begin before it.
        self._database = self._client.get_database(
            database_of(url),
            codec_options=options,
            read_preference=ReadPreference.PRIMARY,
            read_concern=ReadConcern("majority"),
        )

    def _connected(self, url: str, connections: int, retry: float, connect: float) -> MongoClient[Document]:
        if not database_of(url):
            raise InvalidOption(
                f"{self.name}: the URL names no database", hint="mongodb://host:27017/database"
            )
        wait = min(connect, 1.0 if retry > 0 else 3.0)  # then it is tried again
        settings: dict[str, Any] = {
            "serverSelectionTimeoutMS": round(wait * 1000),
            "connectTimeoutMS": round(connect * 1000),
            "socketTimeoutMS": 60_000,
            "maxIdleTimeMS": 600_000,
            "maxPoolSize": max(2, connections),  # one more says that a commit is being applied
            "appname": "millpond",
            "w": "majority",
            "journal": True,
        }
        given = url.partition("?")[2].lower()
        own = {key: value for key, value in settings.items() if f"{key.lower()}=" not in given}
        own["retryWrites"] = False  # it would repeat a change without a look at whose turn it is
        pymongo = driver()
        try:
            client: MongoClient[Document] = pymongo.MongoClient(url, **own)
        except (pymongo.errors.PyMongoError, ValueError, TypeError, OSError) as error:
            raise wrong_url(error, self.name) from None
        if not client.write_concern.acknowledged:
            raise InvalidOption(f"{self.name}: the URL has w=0, and commits need answers", hint="remove it")
        return client

    def collection(self, name: str) -> Collection[Document]:
        return self._database.get_collection(name)

    def tried(self, work: Callable[[], T]) -> T:
        """Returns the result of requests, which are repeated if the connection is lost."""
        return self.patience.wait_for(lambda: self.once(work), on=(ConnectionLost,))

    def once(self, work: Callable[[], T]) -> T:
        if self.closed:
            raise Closed(f"{self.name} is closed")
        try:
            return work()
        except driver().errors.PyMongoError as error:
            raise explained(error, self.name) from error

    def names(self) -> list[str]:
        """Returns the names of all collections."""
        return self.tried(self._database.list_collection_names)

    def size(self, name: str) -> int:
        found = self.tried(lambda: self._database.command("collStats", name))
        return int(found.get("size") or 0)

    def close(self) -> None:
        self.closed = True
        self._client.close()
