"""Reads a stream in one loop for all statements on it.

The loop asks the source for its newest offset, cuts off a range of rows, and passes it as a batch to the statements at
its beginning, one after another. A small batch is evaluated in this process, without Spark. Each statement has its own
offset in the stream. One that is behind the others, because it is new or was delayed, catches up with ranges that are
read for it, in a thread of its own, and then joins them.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from millpond.changes import Offset
from millpond.connectors import abilities
from millpond.connectors.pinned_files import Pins
from millpond.connectors.source import Source
from millpond.engine.batch import Batch
from millpond.engine.carrier import Carrier
from millpond.engine.failures import explain
from millpond.engine.pipeline import Pipeline
from millpond.engine.sizes import SPARK_SECONDS, BatchSize
from millpond.engine.stream import Stream
from millpond.errors import EngineLost

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOOK = 0.1
"""Seconds between two checks whether a retry is due."""
_SOON, _LATER = 0.01, 0.2
"""Seconds between two polls of a source: just after new rows, and when none have come for a while."""
_REST = 0.025
"""Seconds that the loop rests at the most after a batch with which it has reached the newest rows: for as long as the
batch took, so that many small batches leave half of the time to those who send rows."""
_ANNOUNCED = 5.0
"""The same, at the most, for a source whose rows are announced."""
Subscribe = Callable[[Callable[[], None]], Callable[[], None]]


class StreamLoop(Stream):
    """Runs the statements on one stream. Spark, if a batch needs it, is what ``spark`` returns; ``directory`` is
    temporary.

    ``subscribe`` registers a function that is called when there are new rows, and returns what removes it; without it
    the source is polled.
    """

    def __init__(
        self,
        name: str,
        source: Source,
        size: BatchSize,
        directory: Path,
        spark: Callable[[], SparkSession],
        subscribe: Subscribe | None = None,
    ):
        super().__init__(source)
        self._size = size
        self._carrier = Carrier(source, name, directory / "now", spark)
        self._late_carrier = Carrier(source, f"{name}, behind", directory / "behind", spark)
        interval = abilities.interval(source)
        self._soon, self._idle = (interval, interval) if interval is not None else (_SOON, _LATER)
        if subscribe is not None:
            self._idle = _ANNOUNCED
        self._behind: list[Pipeline] = []
        self._at: Offset | None = None
        """The offset that the next batch begins at."""
        self._turn = 0
        """The number of the current run of the loop; 0 if no statement needs it."""
        self._turns = itertools.count(1)
        self._stop = threading.Event()
        """Ends the wait for new rows."""
        self._closed = False
        self._thread: threading.Thread | None = None
        self._follower: threading.Thread | None = None
        self._last: Batch | None = None
        self._expected: Batch | None = None
        """The next batch, whose rows Spark may be finding already."""
        self._news = threading.Event()
        self._hurry = threading.Event()
        """Ends the rest after a batch."""
        self._unsubscribe = subscribe(self.wake) if subscribe is not None else lambda: None

    def wake(self) -> None:
        """Makes the loop look for new rows at once."""
        self._news.set()

    def pull(self) -> None:
        """Looks for new rows at once: the statements move by themselves."""
        self._hurry.set()
        self.wake()

    def settle(self) -> None:
        """Starts or ends the loop. It begins at the offset of the most advanced statement; others at the same offset
        share its batches.
        """
        with self._lock:
            wanted = self._wanted()
            if wanted and not self._turn and not self._closed:
                self._turn, self._stop = next(self._turns), threading.Event()
                failed = not self._begin()
                self._thread = threading.Thread(
                    target=self._run,
                    args=(self._turn, self._stop, failed, self._thread),
                    name="millpond-stream",
                    daemon=True,
                )
                self._thread.start()
            elif not wanted:
                self._end_turn()
            self._look_for_late()
        self.wake()

    def _end_turn(self) -> None:
        """Ends the current run of the loop. Called with the lock held."""
        self._turn = 0
        self._stop.set()

    def _begin(self) -> bool:
        """Finds where to begin: at the offset of the most advanced statement. One whose offset cannot be continued has
        failed; returns whether there are others. Called with the lock held.
        """
        offsets: list[Offset | None] = []
        for pipeline in self._wanted():
            at = pipeline.offset
            try:
                offsets.append(None if at is None else abilities.resume(self.source, at))
            except Exception as error:
                self._fail_one(pipeline, explain(error))
        self._at = self._furthest(offsets)
        return bool(offsets)

    def _furthest(self, offsets: list[Offset | None]) -> Offset | None:
        found: Offset | None = None
        for at in offsets:
            if at is not None and (found is None or abilities.reached(self.source, at, found)):
                found = at
        return found

    def _run(self, turn: int, stop: threading.Event, failed: bool, before: threading.Thread | None) -> None:
        """Reads until the turn is over. After an error that may be temporary it begins again."""
        if before is not None:
            before.join()
        abilities.end_with(self.source, stop)
        changes = abilities.announcements(self.source, stop)
        try:
            while self._turn == turn:
                try:
                    if failed and not self._begun_again(turn):
                        continue
                    self._read(turn, changes, failed)
                except Exception as error:
                    failed = True
                    self._expect_nothing()
                    if self._turn == turn:
                        self._fail(explain(error))
        finally:
            with self._lock:
                if self._turn == turn:
                    self._end_turn()
            if isinstance(changes, Generator):
                changes.close()
            self._expect_nothing()
            self._carrier.close()

    def _begun_again(self, turn: int) -> bool:
        """Waits for the next try; returns whether reading can continue."""
        with self._lock:
            while self._turn == turn and (left := self._until_next_try()) > 0:
                self._lock.wait(left)
            if self._turn != turn:
                return False
            if not self._wanted():
                self._end_turn()
                return False
            if self._at is None:
                return self._begin()
            try:
                self._at = abilities.resume(self.source, self._at)
            except Exception as error:
                self._fail(explain(error))
                return False
            return True

    def _read(self, turn: int, changes: Iterator[None] | None, failed: bool) -> None:
        """Passes batches to the statements, until the turn is over. After a failure they recover first."""
        pause = self._soon
        while True:
            self._news.clear()
            with self._lock:
                self._look_for_late()
                wanted = self._wanted()
                if self._turn == turn and not wanted:
                    self._end_turn()
                if self._turn != turn:
                    return
                at = self._at
                members = [p for p in wanted if p.active and p not in self._behind]
            if not members and not failed:
                self._news.wait(_LOOK)
                continue
            end = abilities.poll(self.source, at)
            if self._turn != turn:
                return
            if failed:
                self._recover()
                failed = False
            elif end == at:
                self._carrier.rest()
                self._hurry.clear()
                if changes is not None:
                    next(changes, None)
                else:
                    self._news.wait(pause)
                    pause = min(self._idle, pause * 1.5)
            else:
                pause, began = self._soon, time.monotonic()
                self._apply(turn, members, at, end)
                if self._at == end:
                    # The rows that arrive one by one meanwhile share the next batch.
                    self._hurry.wait(min(_REST, time.monotonic() - began))

    def _apply(self, turn: int, members: list[Pipeline], start: Offset | None, newest: Offset) -> None:
        """Applies one range to the statements at its beginning. One that fails is behind, if others do not."""
        end = abilities.clip(self.source, start, newest, self._size.rows)
        batch = self._batch(start, end, newest, shared=len(members) > 1)
        batch.check()
        began = time.monotonic()
        for pipeline in members:
            pipeline.steps.engine = None
            self._advance(pipeline, batch)
        batch.close()
        by_spark = sum(p.steps.engine == "spark" for p in members)
        self._size.note(batch.size, time.monotonic() - began, SPARK_SECONDS * by_spark)
        if any(isinstance(p.error, EngineLost) for p in members):
            self._size.lessen()
        with self._lock:
            if self._turn == turn and any(p.reached(end) for p in members):
                self._at = end

    def _batch(self, start: Offset | None, end: Offset, newest: Offset, *, shared: bool) -> Batch:
        """Returns a batch, which may be the one that was expected; expects the next one if there are more rows."""
        expected, self._expected = self._expected, None
        if expected is not None and (expected.start, expected.end, expected.shared) != (start, end, shared):
            expected.close()
            expected = None
        batch = expected or Batch(self.source, start, end, carrier=self._carrier, shared=shared)
        if end != newest and isinstance(self.source, Pins):
            until = abilities.clip(self.source, end, newest, self._size.rows)
            self._expected = Batch(self.source, end, until, carrier=self._carrier, shared=shared)
        batch.then = self._expected
        return batch

    def _expect_nothing(self) -> None:
        if self._expected is not None:
            self._expected.close()
            self._expected = None

    def _advance(self, pipeline: Pipeline, batch: Batch) -> None:
        """Applies one batch to one statement, which may be past the beginning, or past all of it."""
        at = pipeline.offset
        if at == batch.start:
            pipeline.advance(batch, at)
        elif not pipeline.reached(batch.end) and (batch.start is None or pipeline.reached(batch.start)):
            own = Batch(self.source, at, batch.end, carrier=self._carrier)
            pipeline.advance(own, at)
            own.close()

    # statements that are behind

    def _look_for_late(self) -> None:
        """Starts the thread for statements that are behind. Called with the lock held."""
        at = self._at
        if at is not None and not self._closed:
            for pipeline in self._members:
                if pipeline not in self._behind and self._is_behind(pipeline, at):
                    self._behind.append(pipeline)
            if self._behind and self._follower is None:
                self._follower = threading.Thread(
                    target=self._catch_up, name="millpond-catch-up", daemon=True
                )
                self._follower.start()
        self._lock.notify_all()

    def _catch_up(self) -> None:
        """Moves statements that are behind to the offset of the others, a range at a time, in turn."""
        while True:
            while (at := self._still_behind()) is not None:
                for pipeline in [p for p in list(self._behind) if p.active]:
                    began = time.monotonic()
                    self._one_range(pipeline, at)
                    self._rest(pipeline, time.monotonic() - began)
            self._forget_last()
            self._late_carrier.close()
            with self._lock:
                if not self._behind or self._at is None or self._closed:
                    self._follower = None
                    break
        self.wake()

    def _rest(self, pipeline: Pipeline, seconds: float) -> None:
        """Rests after work for a statement for which others come first, unless one of those is behind here too."""
        courtesy = pipeline.courtesy
        if courtesy is None or any(p.courtesy is None for p in self._behind):
            return
        end = time.monotonic() + courtesy.rest(seconds)
        with self._lock:
            while (left := end - time.monotonic()) > 0 and pipeline.courtesy is courtesy:
                if self._closed or not pipeline.active or pipeline not in self._members:
                    return
                self._lock.wait(min(left, _LOOK))

    def _still_behind(self) -> Offset | None:
        """Waits until a statement that is behind can be moved; returns to where. None if there is none."""
        with self._lock:
            while True:
                at = self._at
                self._behind = [p for p in self._behind if at is not None and self._is_behind(p, at)]
                if at is None or not self._behind or self._closed:
                    return None
                if any(p.active for p in self._behind):
                    return at
                self._lock.wait(_LOOK)

    def _is_behind(self, pipeline: Pipeline, at: Offset) -> bool:
        try:
            return pipeline.wanted and pipeline in self._members and not pipeline.reached(at)
        except Exception as error:
            self._fail_one(pipeline, explain(error))
            return True

    def _forget_last(self) -> None:
        last, self._last = self._last, None
        if last is not None:
            last.close()

    def _one_range(self, pipeline: Pipeline, at: Offset) -> None:
        seen = pipeline.offset
        try:
            start = None if seen is None else abilities.resume(self.source, seen)
            end = abilities.clip(self.source, start, at, self._size.rows)
            if self._last is None or (self._last.start, self._last.end) != (start, end):
                self._forget_last()
                self._last = Batch(self.source, start, end, carrier=self._late_carrier)
            self._last.check()
        except Exception as error:
            self._fail_one(pipeline, explain(error))
            return
        pipeline.advance(self._last, seen)
        if isinstance(pipeline.error, EngineLost):
            self._size.lessen()
        if pipeline.error is not None:
            self._forget_last()  # what Spark holds of it may be gone

    def close(self) -> None:
        self._unsubscribe()
        with self._lock:
            self._closed = True
            self._end_turn()
            self._lock.notify_all()
        for pipeline in list(self._members):
            pipeline.close()
        self.wake()
        for thread in (self._thread, self._follower):
            if thread is not None and thread is not threading.current_thread():
                thread.join()
        self._carrier.close()
