"""Reads the messages of a topic in this process, without Spark: ranges of offsets, and what comes at its end.

Positions are ours: no group is joined and nothing is committed to the brokers. Messages that were rolled back, markers
of transactions and compaction leave gaps between offsets, so a range has been read when its partition has passed the
end of it, however many messages there were.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from millpond.changes import Offset
from millpond.connectors.kafka.client import TIMEOUT, Brokers, client_settings, issue_of
from millpond.connectors.kafka.offsets import places_in
from millpond.engine_rule import SMALL_BYTES, SMALL_ROWS
from millpond.errors import ConfigurationIssue, Error, NetworkIssue
from millpond.types import TIMESTAMP

Range = tuple[int, int]
HEADERS = pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())])))
RAW = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", TIMESTAMP),
        ("headers", HEADERS),
    ]
)
"""The form of messages that are not decoded: the columns of Spark's connector that we use."""
_AT_ONCE = 10_000
_GLANCE = 0.05
"""Seconds after which a reader looks whether it is to go on."""
_QUEUED_KILOBYTES = 32 << 10
_ASK = 5.0
"""Seconds after which the brokers are asked for new partitions, and whether it is still the same topic."""


def raw_table(messages: Iterable[Any]) -> pa.Table:
    """Returns messages in the form in which Spark's connector gives them."""
    parts = [
        (m.key(), m.value(), m.partition(), m.offset(), m.timestamp(), m.headers() or None) for m in messages
    ]
    if not parts:
        return RAW.empty_table()
    keys, values, partitions, offsets, times, headers = zip(*parts, strict=True)
    # The first part of a time is its kind: 0 if there is none.
    milliseconds = pa.array([t if kind else -1 for kind, t in times], pa.timestamp("ms", "UTC"))
    arrays = [
        pa.array(keys, pa.binary()),
        pa.array(values, pa.binary()),
        pa.array(partitions, pa.int32()),
        pa.array(offsets, pa.int64()),
        milliseconds.cast(TIMESTAMP),
        _headers(headers),
    ]
    return pa.Table.from_arrays(arrays, schema=RAW)


def _headers(headers: tuple[list[tuple[str, bytes | None]] | None, ...]) -> pa.Array:
    if not any(headers):
        return pa.nulls(len(headers), HEADERS)
    return pa.array([None if h is None else [{"key": k, "value": v} for k, v in h] for h in headers], HEADERS)


class _Consumer:
    """Wraps the client's consumer of one topic: opens it when it is needed, and translates its failures."""

    def __init__(self, brokers: Brokers, topic: str, wait: float):
        self._brokers = brokers
        self._topic = topic
        self._said: list[Any] = []
        self._settings = client_settings(brokers.servers, brokers.settings) | {
            "group.id": "millpond",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "isolation.level": "read_committed",
            # What retention has removed is counted by whoever reads.
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": round(wait * 1000),
            "fetch.error.backoff.ms": 50,
            "fetch.queue.backoff.ms": 5,
            "queued.max.messages.kbytes": _QUEUED_KILOBYTES,
            "error_cb": self._said.append,
        }
        self._client: Any = None

    def assign(self, places: Mapping[int, int]) -> None:
        """Goes to these offsets of the partitions, and to no other partitions."""
        from confluent_kafka import Consumer, KafkaException, TopicPartition

        self._said.clear()
        try:
            if self._client is None:
                self._client = Consumer(self._settings)
            self._client.assign([TopicPartition(self._topic, p, o) for p, o in places.items()])
        except KafkaException as error:
            raise issue_of(error, self._brokers.servers, self._said) from None
        except (TypeError, ValueError) as error:
            raise ConfigurationIssue(f"a setting of Kafka is wrong: {error}") from None

    def receive(self, seconds: float) -> list[Any]:
        """Returns messages, and the ends of partitions, as soon as there are some; nothing after so many seconds."""
        from confluent_kafka import KafkaException

        try:
            first = self._client.poll(seconds)
            if first is None:
                return []
            found = [first, *self._client.consume(_AT_ONCE, 0)]
        except KafkaException as error:
            raise issue_of(error, self._brokers.servers, self._said) from None
        for failed in (m.error() for m in found):
            if failed is not None and failed.name() != "_PARTITION_EOF":
                raise issue_of(failed, self._brokers.servers, self._said)
        return found

    def lost(self, what: str) -> NetworkIssue:
        """Returns the error for brokers that have not sent what they should have."""
        if self._said:
            return issue_of(self._said[-1], self._brokers.servers, self._said)  # type: ignore[return-value]
        return NetworkIssue(f'the brokers at {self._brokers.servers} do not send {what} of "{self._topic}"')

    def leave(self) -> None:
        """Stops to read ahead."""
        if self._client is not None:
            self._client.unassign()

    def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()


class Ranges:
    """Reads any range of a topic, one at a time. The connection stays open between two of them."""

    def __init__(self, brokers: Brokers, topic: str):
        self._brokers = brokers
        self._topic = topic
        self._lock = threading.Lock()
        self._consumer = _Consumer(brokers, topic, wait=0.01)

    def read(self, wanted: Mapping[int, Range]) -> list[Any]:
        """Returns the messages of the partitions between two offsets each, in the order of each partition."""
        if not wanted:
            return []
        with self._lock:
            self._consumer.assign({p: begin for p, (begin, _) in wanted.items()})
            try:
                return self._read(dict(wanted))
            except BaseException:
                self._consumer.close()  # what was requested may still come
                raise
            finally:
                self._consumer.leave()

    def _read(self, wanted: dict[int, Range]) -> list[Any]:
        found: list[Any] = []
        left = dict(wanted)
        until = time.monotonic() + TIMEOUT
        while left:
            came = self._consumer.receive(_GLANCE)
            if came:
                until = time.monotonic() + TIMEOUT
            elif time.monotonic() > until:
                raise self._consumer.lost(f"offset {min(left.values())[0]}")
            for message in came:
                partition, offset = message.partition(), message.offset()
                begin, end = wanted[partition]
                if message.error() is not None:
                    if offset >= end or self._ends_before(partition, end):
                        left.pop(partition, None)
                    continue
                if begin <= offset < end:
                    found.append(message)
                if offset + 1 >= end:
                    left.pop(partition, None)
        return found

    def _ends_before(self, partition: int, end: int) -> bool:
        """Returns whether a partition does not reach an offset any more, as the brokers have lost what was there."""
        return self._brokers.ends(self._topic, [partition])[partition] < end

    def close(self) -> None:
        with self._lock:
            self._consumer.close()


class Tail:
    """Stands at the end of a topic and receives what comes, which costs next to nothing while nothing comes.

    It has the messages of each partition from an offset, which ``stand_at`` moves on, up to another one. It stops to
    receive while it has as much as is evaluated in process.
    """

    fails = False
    """Whether it has failed to receive: whoever asks the brokers gets the error."""

    def __init__(self, brokers: Brokers, topic: str):
        self._lock = threading.Lock()
        self._consumer = _Consumer(brokers, topic, wait=0.5)
        self._kept: dict[int, list[Any]] = {}
        self._from: dict[int, int] = {}
        self._to: dict[int, int] = {}
        self._bytes = 0

    def stand_at(self, places: Mapping[int, int]) -> None:
        """Forgets what lies before these offsets, and goes there, unless it has what comes after them."""
        with self._lock:
            for partition, place in places.items():
                kept = self._kept.get(partition, [])
                if kept and kept[0].offset() < place:
                    self._kept[partition] = [m for m in kept if m.offset() >= place]
            known = self._to.keys() == places.keys() and not self.fails
            if known and all(self._from[p] <= o <= self._to[p] for p, o in places.items()):
                self._from = dict(places)
            else:
                self._consumer.assign(places)
                self._from, self._to = dict(places), dict(places)
                self._kept = {p: [] for p in places}
                self.fails = False
            self._bytes = sum(len(m) for kept in self._kept.values() for m in kept)

    def wait(self, stop: threading.Event, seconds: float) -> bool:
        """Waits for something to come, not longer than so many seconds; returns whether there is something."""
        until = time.monotonic() + seconds
        while not stop.is_set() and (left := until - time.monotonic()) > 0:
            with self._lock:
                stands = bool(self._from) and not self.fails
                if stands and (self.full or self._receive(min(_GLANCE, left))):
                    return True
            if not stands:
                stop.wait(min(_GLANCE, left))
        return False

    @property
    def full(self) -> bool:
        """Returns whether it has as much as it receives: there may be more."""
        return sum(map(len, self._kept.values())) >= SMALL_ROWS or self._bytes >= SMALL_BYTES

    def ends(self) -> dict[int, int]:
        """Returns up to where it has the messages of each partition."""
        with self._lock:
            if self._from and not self.full and not self.fails:
                self._receive(0)
            return dict(self._to)

    def _receive(self, seconds: float) -> bool:
        try:
            came = self._consumer.receive(seconds)
        except Error:
            self.fails = True
            return True
        new = False
        for message in came:
            partition, offset = message.partition(), message.offset()
            if message.error() is None and offset >= self._to[partition]:
                self._kept[partition].append(message)
                self._bytes += len(message)
                offset += 1
            if offset > self._to[partition]:
                self._to[partition], new = offset, True
        return new

    def read(self, wanted: Mapping[int, Range]) -> list[Any] | None:
        """Returns the messages of ranges; None if it does not have all of them."""
        with self._lock:
            for partition, (begin, end) in wanted.items():
                if partition not in self._to or begin < self._from[partition] or end > self._to[partition]:
                    return None
            return [
                m for p, (begin, end) in wanted.items() for m in self._kept[p] if begin <= m.offset() < end
            ]

    def close(self) -> None:
        with self._lock:
            self._kept, self._from, self._to = {}, {}, {}
            self._consumer.close()


class TopicReader:
    """Has the consumers of one source in this process. They are made when they are needed, and not pickled."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ranges: Ranges | None = None
        self._tail: Tail | None = None
        self._asked = 0.0

    def __reduce__(self) -> tuple[type[TopicReader], tuple[()]]:
        return TopicReader, ()

    def read(self, brokers: Brokers, topic: str, wanted: Mapping[int, Range]) -> pa.Table:
        """Returns the messages of the partitions between two offsets each."""
        tail = self._tail
        found = tail.read(wanted) if tail is not None else None
        if found is None:
            with self._lock:
                ranges = self._ranges = self._ranges or Ranges(brokers, topic)
            found = ranges.read(wanted)
        return raw_table(found)

    def changes(self, brokers: Brokers, topic: str, stop: threading.Event) -> Iterator[None]:
        """Yields at first, then as soon as something comes after the offset of the last ``poll``, and from time to
        time.
        """
        self._asked = 0.0
        tail = self._tail = Tail(brokers, topic)
        try:
            while not stop.is_set():
                yield
                if tail.fails:
                    stop.wait(_GLANCE)
                else:
                    tail.wait(stop, _ASK)
        finally:
            if self._tail is tail:
                self._tail = None
            tail.close()

    def poll(self, start: Offset | None, latest: Callable[[Offset | None], Offset]) -> Offset:
        """Returns the end of the topic: while ``changes`` runs, up to where messages have come, and only from time to
        time as the brokers say.
        """
        tail = self._tail
        if tail is None:
            return latest(start)
        if start is not None:
            places = _numbered(start)
            if not tail.fails and time.monotonic() < self._asked + _ASK:
                tail.stand_at(places)
                ends = tail.ends()
                if not tail.fails and not tail.full:
                    return dict(start) | {str(p): end for p, end in ends.items()}
        end = latest(start)
        tail.stand_at(_numbered(end) if start is None else _numbered(start))
        self._asked = time.monotonic()
        return end

    def close(self) -> None:
        ranges, self._ranges = self._ranges, None
        if ranges is not None:
            ranges.close()


def _numbered(offset: Offset) -> dict[int, int]:
    return {int(p): o for p, o in places_in(offset).items()}
