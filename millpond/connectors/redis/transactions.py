"""Implements one Redis database: a commit is one MULTI, which takes effect only if no other commit came in between."""

from __future__ import annotations

import json
import threading
import uuid
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from millpond.changes import Changes, Position
from millpond.connectors.table import OutsideTable
from millpond.errors import (
    AccessRefused,
    Closed,
    Conflict,
    ConnectionLost,
    Error,
    SourceError,
)
from millpond.packages import needed
from millpond.retry import for_connections
from millpond.tables.base import Backend, Database, Reading, Snapshot, Writing

if TYPE_CHECKING:
    from redis import Redis

T = TypeVar("T")

_COMMIT_KEPT = 3600
"""Seconds for which a commit whose response was lost can be looked up."""


def driver() -> Any:
    return needed("redis", "tables in Redis", "redis")


def spot(url: str) -> str:
    """Returns host, port and number of the database, without the login."""
    parts = urlsplit(url)
    return f"redis://{parts.hostname or 'localhost'}:{parts.port or 6379}{parts.path or '/0'}"


class SecondWriter(Conflict):
    """Reports that another commit came in between."""


_RETRIED = (ConnectionLost, SecondWriter)


class RedisReading(Reading):
    def __init__(self, version: int):
        self.version = version

    def snapshot(self, table: Backend) -> Snapshot:
        assert isinstance(table, RedisBacked)
        return table.reader(self.version)


class RedisBacked(OutsideTable):
    """Represents a table that reads itself."""

    @abstractmethod
    def reader(self, version: int) -> Snapshot:
        """Returns the table, which then had this version."""


class RedisWriting(Writing):
    """Collects commands that take effect together at the end."""

    def __init__(self, database: RedisDatabase, version: int):
        self.database = database
        self.version = version
        self.commands: list[tuple[Any, ...]] = []
        self.touched: list[OutsideTable] = []

    def snapshot(self, table: Backend) -> Snapshot:
        assert isinstance(table, RedisBacked)
        return table.reader(self.version)

    def add(self, *command: Any) -> None:
        self.commands.append(command)

    def apply(self, table: Backend, changes: Changes) -> None:
        assert isinstance(table, OutsideTable)
        table.change(self, changes)
        self.touched.append(table)

    def advance(self, position: Position) -> bool:
        known = self.database.position(position.pipeline)
        if known is not None and known.covers(position):
            return False
        stored = {
            "checkpoint": position.checkpoint,
            "batch": position.batch,
            "offsets": dict(position.offsets),
        }
        self.add("HSET", self.database.positions_key, position.pipeline, json.dumps(stored))
        return True


class RedisDatabase(Database):
    """Represents the keys of a Redis database that begin with a prefix. Writes of this process are serialized."""

    def __init__(self, url: str, prefix: str, *, retry_timeout: float):
        redis = driver()
        self.prefix = prefix
        self.version_key = f"{prefix}version"
        self.positions_key = f"{prefix}positions"
        self._commit_key = f"{prefix}commit:"
        self.name = f"the database {spot(url)}"
        self.patience = for_connections(retry_timeout)
        self._writing = threading.RLock()
        self._closed = False
        try:
            self._client: Redis = redis.Redis.from_url(
                url,
                decode_responses=True,
                socket_connect_timeout=10,
                socket_timeout=60,
                health_check_interval=30,
            )
        except ValueError as error:
            raise SourceError(f"{self.name}: {error}", hint="redis://host:6379/0") from None
        self.ask("PING")

    def ask(self, *command: Any) -> Any:
        """Returns the reply to one command."""
        return self._tried(lambda: self._client.execute_command(*command))  # type: ignore[no-untyped-call]

    def script(self, text: str, keys: Sequence[str], values: Sequence[Any]) -> Any:
        """Returns the result of a script: it sees one point in time."""
        return self._tried(lambda: self._client.register_script(text)(keys=list(keys), args=list(values)))

    def _tried(self, work: Callable[[], Any]) -> Any:
        if self._closed:
            raise Closed(f"{self.name} is closed")
        redis = driver()

        def once() -> Any:
            try:
                return work()
            except redis.RedisError as error:
                raise explained(error, self.name) from error

        return self.patience.wait_for(once, on=(ConnectionLost,))

    def version(self) -> int:
        return int(self.ask("GET", self.version_key) or 0)

    def read(self) -> RedisReading:
        return RedisReading(self.version())

    def write(self, work: Callable[[RedisWriting], T]) -> T:
        with self._writing:
            if self._closed:
                raise Closed(f"{self.name} is closed")
            return self.patience.wait_for(lambda: self._write(work), on=_RETRIED)

    def _write(self, work: Callable[[RedisWriting], T]) -> T:
        redis = driver()
        token = f"{self._commit_key}{uuid.uuid4().hex}"
        writing = RedisWriting(self, self.version())
        sent = False
        done: list[T] = []
        try:
            with self._client.pipeline(transaction=True) as pipe:
                pipe.watch(self.version_key)  # type: ignore[no-untyped-call]
                done.append(work(writing))
                pipe.multi()
                for command in writing.commands:
                    pipe.execute_command(*command)  # type: ignore[no-untyped-call]
                if writing.commands:
                    pipe.incr(self.version_key)
                    pipe.set(token, 1, ex=_COMMIT_KEPT)
                    sent = True
                    pipe.execute()
        except redis.RedisError as error:
            # The driver reports a lost connection as another writer, too.
            if not sent or not self.ask("EXISTS", token):
                raise explained(error, self.name) from error
        for table in writing.touched:
            table.changed()
        return done[0]

    def position(self, pipeline: str) -> Position | None:
        stored = self.ask("HGET", self.positions_key, pipeline)
        if stored is None:
            return None
        found = json.loads(stored)
        return Position(pipeline, found["checkpoint"], found["batch"], found["offsets"])

    def forget(self, pipeline: str) -> None:
        self.write(lambda writing: writing.add("HDEL", self.positions_key, pipeline))

    def forget_all(self, start: str) -> None:
        def work(writing: RedisWriting) -> None:
            going = [name for name in self.ask("HKEYS", self.positions_key) if name.startswith(start)]
            if going:
                writing.add("HDEL", self.positions_key, *going)

        self.write(work)

    def close(self) -> None:
        with self._writing:
            self._closed = True
            self._client.close()


def explained(error: Exception, name: str) -> Error:
    """Translates an error."""
    redis = driver()
    text = str(error).splitlines()[0] if str(error) else type(error).__name__
    if isinstance(error, redis.WatchError) and "occurred" not in text:
        return SecondWriter(f"{name}: another writer was first", hint="try again")
    if isinstance(error, (redis.AuthenticationError, redis.exceptions.NoPermissionError)) or (
        text.startswith(("NOAUTH", "WRONGPASS", "NOPERM", "invalid username-password"))
    ):
        return AccessRefused(f"{name} refuses: {text}", hint="check user, password and rights")
    if isinstance(error, (redis.ConnectionError, redis.TimeoutError, redis.WatchError)) or text.startswith(
        "LOADING"
    ):
        return ConnectionLost(f"{name} does not answer: {text}", hint="check that it runs and can be reached")
    return SourceError(f"{name}: {text}", hint="nothing was changed")
