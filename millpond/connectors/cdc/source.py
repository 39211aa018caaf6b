"""Reads databases with a changelog: a table over one follows the log.

An offset is a position in the log. The rows before the first offset are read as they were at exactly that position. If
the log cannot be followed, the table is polled, if a column for that is named, or read once.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from millpond.changelog import envelope
from millpond.changes import Offset
from millpond.connectors.cdc.capture_source import Capturing
from millpond.connectors.cdc.log import CHANGES, Log
from millpond.connectors.cdc.log_positions import LogPositions
from millpond.connectors.databases.source import SqlSource
from millpond.connectors.source import Source, Split
from millpond.errors import Error, InvalidOption, SourceChanged
from millpond.predicates import Need
from millpond.types import Schema

if TYPE_CHECKING:
    from millpond.connectors.cdc.database import HostedDatabase

log = logging.getLogger("millpond")
AGAIN = 10.0
"""Seconds between two checks whether changes can be followed by now."""
POLL = 10.0
"""Seconds between two polls of a table whose changes cannot be followed."""


@dataclass(frozen=True, slots=True)
class LogSplit(Split):
    """Contains what a log has between two offsets."""

    start: Mapping[str, Any]
    end: Mapping[str, Any]


class CapturingSource(SqlSource, Capturing):
    """Reads a database with a changelog."""

    def __init__(self, uri: str, values: Mapping[str, Any], declared: Schema | None):
        super().__init__(uri, values, declared)
        self._log: Log | None = None
        self._begun: tuple[Offset, str | None] | None = None
        self._instead: Error | None = None
        """Why the log is not followed."""
        self._loads = True
        self._turn = threading.RLock()
        """A log has one user at a time: the follower, or a check whether there is more."""

    def _check_options(self) -> None:
        super()._check_options()
        if not self.values["cdc"]:
            return
        if self.values["query"] is not None or self.values["limit"] is not None:
            raise InvalidOption(
                "changes are captured of a table, not of a query or a part of it", hint="'table' = '…'"
            )
        if self.values["where"] is not None:
            raise InvalidOption(
                'options "cdc" and "where" do not go together',
                hint="put the condition into the statement's WHERE",
            )

    def narrowed(self, need: Need) -> Source:
        return self if self._logs else super().narrowed(need)

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in super().__getstate__().items() if k not in ("_log", "_turn")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._log = None
        self._turn = threading.RLock()

    @property
    def captures(self) -> bool:
        return bool(self.values["cdc"])

    @property
    def polls_instead(self) -> bool:
        return self.values["incremental.column"] is not None

    @property
    def loads_first(self) -> bool:
        return bool(self.values["initial.load"] == "full")

    @property
    def follows(self) -> bool:
        return self.captures or super().follows

    @property
    def enveloped(self) -> Schema | None:
        if not self.captures:
            return None
        if self.values["cdc.format"] != "debezium":
            raise InvalidOption(
                "a stream of changes gives envelopes",
                hint="'cdc.format' = 'debezium'; a table has the rows themselves",
            )
        return envelope(self.schema())

    @property
    def origin(self) -> dict[str, str | None]:
        """Returns what envelopes contain about their origin."""
        rows, database = self.database.rows, self.database_address.database
        return {"connector": self.kind, "db": database, "schema": rows.schema, "table": rows.table}

    @property
    def log_positions(self) -> LogPositions:
        assert self._log is not None
        return LogPositions(self._log, self._hosted().line, self._turn)

    # whose log it is

    def claimed(self, owner: str) -> Self:
        """Returns the same source for one follower of the changes: a log has one reader. The name identifies what the
        database stores for this reader.
        """
        own: Self = type(self)(self.uri, self.values, self.declared)
        own.take_columns(self.schema())
        own._log = own._hosted().log(owner, own.schema())
        return own

    def forget(self, owner: str) -> None:
        """Removes what the database stores for a table that was dropped."""
        self._log = self._hosted().log(owner, Schema(()))
        self._again(self._log.drop)

    def _hosted(self) -> HostedDatabase:
        from millpond.connectors.cdc.database import HostedDatabase

        assert isinstance(self.database, HostedDatabase)
        return self.database

    def begin_capture(self) -> Offset:
        """Returns a position in the log; ``splits(None, position)`` reads the rows before it. Raises CaptureRefused."""
        assert self._log is not None
        changelog = self._log
        self._instead = None
        self._again(changelog.check)
        if self.values["initial.load"] == "none":
            self._loads = False
            return {"log": dict(self._again(lambda: changelog.start(self.values["cdc.start"])))}
        if self.values["cdc.start"] != "latest":
            raise InvalidOption(
                "option \"cdc.start\" is for tables without 'initial.load': after a load changes begin where it ends",
                hint="'initial.load' = 'none', or leave 'cdc.start' out",
            )
        self._loads = True
        self._begun = self._again(changelog.begin)
        return {"log": dict(self._begun[0])}

    def begun(self) -> None:
        """Records that the rows before the first position were read."""
        if self._begun is not None and self._log is not None:
            self._log.begun()
        self._begun = None

    def fall_back(self, why: Error) -> None:
        """Stops following the log, until ``begin_capture``."""
        self._instead = why

    def _again(self, work: Any) -> Any:
        return self._patience().wait_for(work, issues=self.issues)

    def release(self) -> None:
        """Removes what the database stores for the table, which was dropped."""
        if self._log is not None:
            self._log.drop()

    # offsets

    @property
    def _logs(self) -> bool:
        return self._log is not None and self._instead is None

    def latest(self, start: Offset | None) -> Offset:
        if not self._logs or start is None or "log" not in start:
            return super().latest(None if start is not None and "log" in start else start)
        assert self._log is not None
        with self._turn:
            end = self._log.latest(start["log"], CHANGES)
        return start if dict(end) == dict(start["log"]) else {"log": dict(end)}

    def settled(self, at: Offset) -> bool:
        if not self._logs:
            return super().settled(at)
        return "log" in at and self.reached(at, self.latest(at))

    def replaced(self, start: Offset, end: Offset) -> bool:
        if "log" in start and "log" in end:
            return False
        return "log" in start or "log" in end or super().replaced(start, end)

    def splits(self, start: Offset | None, end: Offset) -> list[Split]:
        if "log" not in end:
            return super().splits(start, end)
        if self.reached(start, end):
            return []
        if start is not None:
            return [LogSplit(None, None, start["log"], end["log"])]
        if not self._loads:
            return []
        if self._begun is None or dict(self._begun[0]) != dict(end["log"]):
            raise SourceChanged(f"{self.database.name} is not what it was")
        return self._whole({"read": 0, "step": 0})

    def _held_snapshot(self) -> str | None:
        return self._begun[1] if self._begun is not None else None

    def _shared_snapshot(self) -> str | None:
        return self._held_snapshot() if self._begun is not None else super()._shared_snapshot()

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        """Yields the rows of a split; those of a log have the columns of ``log_schema``."""
        if not isinstance(split, LogSplit):
            return super().read(split)
        assert self._log is not None
        with self._turn:
            return iter(list(self._log.read(split.start, split.end)))

    def notice(self, splits: Sequence[Split]) -> None:
        """Adds columns that were added to the table, unless the columns were declared."""
        for split in splits:
            if not isinstance(split, LogSplit):
                continue
            assert self._log is not None
            with self._turn:
                fresh = self._log.fresh(split.start, split.end)
            if len(fresh) and self.declared is None:
                for column in fresh:
                    log.info('%s has a new column: "%s"', self.database.name, column.name)
                known = self.schema()
                self.take_columns(Schema((*known, *fresh), known.key))
        if not any(isinstance(s, LogSplit) for s in splits):
            super().notice(splits)

    def take_columns(self, columns: Schema) -> None:
        super().take_columns(columns)
        if self._log is not None:
            self._log.schema = columns

    def changes(self, stop: threading.Event) -> Iterator[None]:
        if not self.captures:
            yield from super().changes(stop)
            return
        while not stop.is_set():
            if self._logs:
                assert self._log is not None
                yield from self._log.news(stop)
            elif not stop.wait(self._pause):
                yield

    @property
    def _pause(self) -> float:
        """Returns the seconds between two polls while the log is not followed."""
        polled = self.values["incremental.column"] is not None
        return (self.values["poll.interval"] or POLL) if polled else AGAIN

    @property
    def log_bytes(self) -> int | None:
        return self._log.lag() if self._log is not None and self._logs else None

    def close(self) -> None:
        if self._log is not None:
            self._log.close()
        super().close()
