"""Reads Kafka, here or with Spark's connector: ``kafka://topic``, ``kafka://host:9092/topic``.

An offset is the next offset of each partition, and the identity of the topic. Rows are in the order of their partition,
and across partitions in that of their timestamps if they are few: see ``order.py``.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Collection, Iterator, Mapping
from threading import Event, Lock
from typing import Any, ClassVar

import pyarrow as pa

from millpond.changes import Offset
from millpond.connectors.abilities import Follows, Keyed, MessageLog, Steps
from millpond.connectors.job_progress import Adopts, JobProgress
from millpond.connectors.kafka.client import Brokers, brokers
from millpond.connectors.kafka.consumer import TopicReader
from millpond.connectors.kafka.decoding_sql import decoding_sql
from millpond.connectors.kafka.formats import ValueFormat, key_texts, why_keyed
from millpond.connectors.kafka.message_columns import decoded, flat, hidden_columns
from millpond.connectors.kafka.offsets import ID, adopted, places_in, same_topic
from millpond.connectors.kafka.options import SOURCE_OPTIONS, default_of, number, parts_of, patience_of
from millpond.connectors.kafka.order import Order
from millpond.connectors.kafka.settings import CLIENT_SETTINGS
from millpond.connectors.kafka.spark import reading_settings
from millpond.connectors.source import NativeSource, Split
from millpond.errors import (
    ConfigurationIssue,
    Error,
    SourceEmpty,
    TopicMissing,
    TopicReplaced,
    did_you_mean,
    without_passwords,
)
from millpond.formats.merge import settle_schema
from millpond.formats.messages.base import SAMPLE, Messages
from millpond.formats.read_records import Received
from millpond.options import Option, Setting, read_options
from millpond.retry import AGAIN, Patience
from millpond.types import Schema, type_name

log = logging.getLogger("millpond")
MOST_COLUMNS = 1_000
"""Maximum number of fields up to which new ones become columns."""
_WIDENING = Lock()
_BROKERS = "MILLPOND_KAFKA_BROKERS"


class KafkaSource(NativeSource, Follows, Steps, MessageLog, Keyed, Adopts):
    """Reads the records of a topic. ``_key``, ``_partition``, ``_offset``, ``_timestamp``, ``_headers`` and
    ``_deleted`` are columns that ``*`` leaves out.
    """

    kind: ClassVar[str] = "kafka"
    schemes: ClassVar[tuple[str, ...]] = ("kafka",)
    format: ClassVar[str] = "kafka"
    options: ClassVar[tuple[Option, ...]] = SOURCE_OPTIONS

    def __init__(self, uri: str, values: Mapping[str, Any], declared: Schema | None):
        servers, self.topic, more = parts_of(uri)
        settings = [Setting(k, v) for k, v in more]
        given = read_options(f'"{uri.partition("?")[0]}"', self.options, settings) if settings else {}
        named = {s.name.lower() for s in settings}
        beaten = {
            k: v for k, v in given.items() if k.lower() in named and values.get(k) in (None, default_of(k))
        }
        super().__init__(uri, dict(values) | beaten, None)
        self.servers = (
            servers or self.values["bootstrap.servers"] or os.environ.get(_BROKERS) or "localhost:9092"
        )
        self.client = {
            k.removeprefix("kafka."): str(v) for k, v in self.values.items() if k.startswith("kafka.")
        }
        self._check_client()
        self.reset = self._reset()
        visible = tuple(c for c in declared if not c.hidden) if declared is not None else ()
        self.declared = Schema(visible) if visible else None
        self.value_format = ValueFormat(self.topic, self.values)
        self._key_texts = key_texts(self.values)
        self._hidden = hidden_columns(self.values["key.format"])
        self._messages: Messages | None = None
        self._read_id = ""
        self._first_keys: str | None = None
        self._reader = TopicReader()

    @property
    def guesses(self) -> bool:
        return self.declared is None

    def _check_client(self) -> None:
        for name in self.client:
            if name not in CLIENT_SETTINGS:
                raise ConfigurationIssue(
                    f'option "kafka.{name}": the Kafka client has no setting "{name}"',
                    hint=did_you_mean(
                        name, CLIENT_SETTINGS, "see the client configuration in Kafka's documentation"
                    ),
                )

    def _reset(self) -> str:
        given = self.values["auto.offset.reset"]
        if (text := str(given).strip().lower()) in ("earliest", "latest"):
            return text
        log.warning("'auto.offset.reset' = '%s' is neither earliest nor latest: earliest is taken", given)
        return "earliest"

    # columns

    @property
    def address(self) -> str:
        schemas = without_passwords(self.values["schema.registry.url"] or "")
        return f"kafka://{self.servers}/{self.topic} as {self.values['format']} {schemas}".rstrip()

    def keyed(self, *, wait: bool) -> str | None:
        """Returns the reason for a topic that is compacted, or whose first messages all have keys; not for one that is
        still to be created.
        """

        def ask() -> str | None:
            topics = self._brokers.topics()
            if self.topic not in topics:
                if self.values["topic.create.if.missing"]:
                    return None
                raise self._brokers.missing(self.topic, topics)
            if "compact" in (self.setting("cleanup.policy") or ""):
                return "the topic is compacted"
            if self._first_keys is None:
                return why_keyed([s.key for s in self._brokers.sample(self.topic, SAMPLE)])
            return self._first_keys or None

        return self._patience.wait_for(ask, issues=self.issues) if wait else ask()

    def setting(self, name: str) -> str | None:
        """Returns a setting of the topic; None if the brokers refuse the request."""
        return self._brokers.setting(self.topic, name)

    def schema(self) -> Schema:
        return Schema((*self._decoder.schema, *self._hidden))

    @property
    def _decoder(self) -> Messages:
        if self._messages is None:
            if self.declared is None and self.found is None:
                self.found = self._discover()
            columns = self.declared or self.found or Schema(())
            self._messages = self.value_format.decoder(columns, watch=self.declared is None)
        return self._messages

    def _discover(self) -> Schema:
        """Discovers the columns from a schema, or the earliest messages; waits for these as for a missing topic."""

        def look() -> Schema:
            known = self.value_format.columns()
            if known is not None:
                return known
            if self.values["topic.create.if.missing"] and not self.values["topic.wait.timeout"]:
                if self.topic not in self._brokers.topics():
                    raise self._empty()  # it is created when it is read
            self._ensure()
            sample = self._brokers.sample(self.topic, SAMPLE)
            self._first_keys = why_keyed([s.key for s in sample]) or ""
            values = [s.value for s in sample if s.value is not None]
            if not values:
                raise self._empty()
            return self.value_format.discover(values)

        return self._patience.wait_for(look, issues=self.issues)

    def _empty(self) -> SourceEmpty:
        return _Empty(
            f'topic "{self.topic}" is empty: its columns cannot be discovered',
            hint="declare the columns, or wait for the first record with 'topic.wait.timeout' = '60s'",
        )

    def _new(self, fresh: Schema) -> Schema:
        """Returns those of the fields that become columns. A field that is NULL everywhere has no type yet."""
        known = self.found
        typed = [c for c in fresh if c.type != pa.null() and known is not None and c.name not in known]
        if len(known or ()) + len(typed) <= MOST_COLUMNS:
            return Schema(tuple(typed))
        log.warning('topic "%s" has more than %s fields: new ones are left out', self.topic, MOST_COLUMNS)
        return Schema(())

    def _widen(self, fresh: Schema) -> None:
        with _WIDENING:
            if not len(settled := settle_schema(self._new(fresh))):
                return
            for column in settled:
                log.info('topic "%s" has a new field: %s %s', self.topic, column.name, type_name(column.type))
            self.found, self._messages = Schema((*(self.found or ()), *settled)), None

    # the topic

    @property
    def _brokers(self) -> Brokers:
        return brokers(self.servers, self.client)

    @property
    def _patience(self) -> Patience:
        return patience_of(self.values)

    def prepare(self) -> None:
        self._patience.wait_for(self._ensure, issues=self.issues)

    def _ensure(self) -> None:
        """Raises TopicMissing, unless the topic is to be created."""
        topics = self._brokers.topics()
        if self.topic in topics:
            return
        if not self.values["topic.create.if.missing"]:
            raise self._brokers.missing(self.topic, topics)
        partitions = number(self.values["topic.partitions"], "MILLPOND_DEFAULT_PARTITIONS", -1)
        replicas = number(self.values["topic.replication"], "MILLPOND_DEFAULT_REPLICATION_FACTOR", -1)
        self._brokers.create(self.topic, int(partitions), int(replicas))
        log.info('created topic "%s" at %s', self.topic, self.servers)

    # offsets

    def latest(self, start: Offset | None) -> Offset:
        ends = {str(p): end for p, end in sorted(self._brokers.ends(self.topic).items())}
        now = ends | {ID: self._brokers.topic_id(self.topic)}
        before = places_in(start) if start and same_topic(start, now) else {}
        return now | {p: max(end, before.get(p, 0)) for p, end in ends.items()}

    @property
    def announces(self) -> bool:
        return True

    def changes(self, stop: Event) -> Iterator[None]:
        return self._reader.changes(self._brokers, self.topic, stop)

    def poll(self, start: Offset | None) -> Offset:
        return self._reader.poll(start, self.latest)

    def fetch(self, start: Offset | None, end: Offset) -> pa.Table:
        return self._reader.read(self._brokers, self.topic, self._ranges(start, end))

    def close(self) -> None:
        self._reader.close()

    def _begin(self, start: Offset | None, end: Offset) -> dict[str, int]:
        """Returns where each partition of ``end`` begins after ``start``: a new one at its first record."""
        if start is not None:
            before = start if same_topic(start, end) else {}
            return {p: before.get(p, 0) for p in places_in(end)}
        if self.reset == "latest":
            return places_in(end)
        begins = self._brokers.begins(self.topic, [int(p) for p in places_in(end)])
        return {str(p): begin for p, begin in begins.items()}

    def _ranges(self, start: Offset | None, end: Offset) -> dict[int, tuple[int, int]]:
        begin = self._begin(start, end)
        return {int(p): (begin[p], end[p]) for p in begin if end[p] > begin[p]}

    def begun(self, start: Offset | None, end: Offset) -> Offset:
        return start if start is not None else dict(end) | self._begin(None, end)

    def splits(self, start: Offset | None, end: Offset) -> list[Split]:
        return [Split(until - begin, None) for begin, until in self._ranges(start, end).values()]

    def clip(self, start: Offset | None, end: Offset, rows: int) -> Offset:
        begin = self._begin(start, end)
        there = {p: max(0, end[p] - begin[p]) for p in begin}
        total = sum(there.values())
        if total <= rows:
            return end
        return dict(end) | {p: min(end[p], begin[p] + -(-there[p] * rows // total)) for p in begin}

    def reached(self, at: Offset | None, end: Offset) -> bool:
        if at is None:
            return not self.splits(None, end)
        return same_topic(at, end) and all(at.get(p, 0) >= offset for p, offset in places_in(end).items())

    def begin(self) -> Offset | None:
        return self.latest(None) if self.reset == "latest" else None

    def resume(self, at: Offset) -> Offset:
        try:
            fresh = self._brokers.topic_id(self.topic)
        except TopicMissing:
            self._ensure()
            fresh = self._brokers.topic_id(self.topic)
        if same_topic(at, {ID: fresh}):
            return at
        if self.values["topic.recreated"] == "fail":
            raise self._replaced(TopicReplaced)
        log.warning(
            'topic "%s" was deleted and created again: continuing with the new one, %s',
            self.topic,
            self.reset,
        )
        found = self._brokers.ends(self.topic) if self.reset == "latest" else self._brokers.begins(self.topic)
        return {str(p): offset for p, offset in sorted(found.items())} | {ID: fresh}

    def adopted(self, progress: JobProgress) -> Offset:
        return adopted(self.topic, progress, self.latest(None))

    def comparable(self, one: Offset, other: Offset) -> bool:
        return same_topic(one, other)

    def lost(self, start: Offset | None, end: Offset) -> int:
        if start is None:
            return 0
        now = {ID: self._brokers.topic_id(self.topic)}
        if not same_topic(start, now) or not same_topic(end, now):
            raise self._replaced(TopicReplaced if self.values["topic.recreated"] == "fail" else _Restart)
        first = self._brokers.begins(self.topic, [int(p) for p in places_in(end)])
        begin = self._begin(start, end)
        return sum(max(0, min(first[int(p)], end[p]) - begin[p]) for p in begin)

    def _replaced(self, kind: type[TopicReplaced]) -> TopicReplaced:
        return kind(
            f'topic "{self.topic}" at {self.servers} was deleted and created again: records that were not read are'
            " gone",
            hint="START QUERY continues with the new topic, as 'auto.offset.reset' says;"
            " 'topic.recreated' = 'restart' does so by itself",
        )

    def lag(self, at: Offset | None) -> dict[str, int]:
        end = self.latest(at)
        return {p: max(0, end[p] - begin) for p, begin in self._begin(at, end).items()}

    def patience(self, error: Error) -> Patience:
        """Returns how long to wait: for a removed topic as at the start; for brokers that do not respond, for ever."""
        return self._patience if isinstance(error, TopicMissing) else AGAIN

    # Spark

    def stream_settings(self, start: Offset | None) -> dict[str, str]:
        self._read_id = (start or {}).get(ID) or self._brokers.topic_id(self.topic)
        return reading_settings(self.servers, self.client) | {
            "subscribe": self.topic,
            "startingOffsets": self.reset if start is None else json.dumps({self.topic: places_in(start)}),
        }

    def range_settings(self, start: Offset | None, end: Offset, most: int) -> dict[str, str]:
        begin = self._begin(start, end)
        return reading_settings(self.servers, self.client) | {
            "assign": json.dumps({self.topic: [int(p) for p in begin]}),  # there may be others by now
            "startingOffsets": json.dumps({self.topic: begin}),
            "endingOffsets": json.dumps({self.topic: places_in(end)}),
            "maxRecordsPerPartition": str(most),
        }

    def tasks(self) -> int:
        return len(self._brokers.partitions(self.topic))

    def decoding_sql(self, view: str) -> str:
        """Returns the decoding as SQL. A message that cannot be decoded stops the query."""
        return decoding_sql(view, self._decoder.schema, self.values, keys_as_they_are=self._key_texts is None)

    def offset_of(self, noted: str) -> Offset:
        """Returns the offset, with the identity of the topic at Spark's start: ``lost`` checks it."""
        places = {p: int(o) for p, o in sorted(json.loads(noted)[self.topic].items())}
        return places | {ID: self._read_id}

    def first_seq(self, start: Offset | None) -> int:
        return sum(places_in(start).values()) if start else 0

    def order(self, start: Offset | None, end: Offset, raw: pa.Table | None = None) -> Order:
        order = Order(self.first_seq(start), self._ranges(start, end))
        if not order.wants_times:
            return order
        return order.by_times(self.fetch(start, end) if raw is None else raw)

    def decode(self, raw: pa.Table) -> Received:
        decoder = self._decoder
        found, fresh = self._decode(raw, decoder)
        if len(fresh):
            self._widen(fresh)
        return found if self._decoder is decoder else self._decode(raw, self._decoder)[0]

    def flat(self, columns: Collection[str] | None) -> tuple[str, ...]:
        return flat(columns, keys=self._key_texts is not None)

    def decode_known(self, raw: pa.Table) -> tuple[Received, bool]:
        found, fresh = self._decode(raw, self._decoder)
        return found, len(fresh) > 0 and len(self._new(fresh)) > 0

    def _decode(self, raw: pa.Table, decoder: Messages) -> tuple[Received, Schema]:
        return decoded(raw, decoder, self._key_texts, self._hidden)


class _Restart(TopicReplaced):
    """Says with ``resume`` where to continue."""

    retryable = True


class _Empty(SourceEmpty):
    code = "topic_empty"
    retryable = True
