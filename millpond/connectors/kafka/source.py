"""Kafka: ``kafka://topic``, ``kafka://host:9092/topic``, read by Spark's connector.

An offset is the next offset of each partition, and the identity of the topic. Rows are in the order of their
partition, and across partitions in that of their timestamps.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from threading import Lock
from typing import Any, ClassVar
from urllib.parse import parse_qsl

import pyarrow as pa

from millpond.changes import Offset
from millpond.connectors.abilities import Follows, Keyed, MessageLog, Steps
from millpond.connectors.kafka.client import Brokers, brokers
from millpond.connectors.kafka.decode import as_type, events_of, in_order, received, without
from millpond.connectors.kafka.formats import FORMAT_OPTIONS, Decoder, ValueFormat, key_texts
from millpond.connectors.kafka.settings import CLIENT_SETTINGS
from millpond.connectors.source import DELETED, SEQ, NativeSource, Split
from millpond.errors import (
    ConfigurationIssue,
    Error,
    InvalidOption,
    NotSupported,
    SourceEmpty,
    TopicMissing,
    TopicReplaced,
    did_you_mean,
    without_passwords,
)
from millpond.formats.merge import settle_schema
from millpond.formats.messages import SAMPLE
from millpond.formats.received import Received
from millpond.options import Option, Setting, read_options
from millpond.retry import AGAIN, Patience
from millpond.types import Column, Schema, quote, type_name

log = logging.getLogger("millpond")
ID = "topic"
"""Where an offset has the identity of the topic: one of the same name that was made again has another."""
MOST_COLUMNS = 1_000
"""Fields up to which new ones become columns."""
_WIDENING = Lock()
_BROKERS = "MILLPOND_KAFKA_BROKERS"
_HEADERS = pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())])))


class KafkaSource(NativeSource, Follows, Steps, MessageLog, Keyed):
    """The records of a topic. ``_key``, ``_partition``, ``_offset``, ``_timestamp``, ``_headers`` and ``_deleted`` are
    columns that ``*`` leaves out."""

    kind: ClassVar[str] = "kafka"
    schemes: ClassVar[tuple[str, ...]] = ("kafka",)
    format: ClassVar[str] = "kafka"
    options: ClassVar[tuple[Option, ...]] = (
        *FORMAT_OPTIONS,
        Option(
            "bootstrap.servers",
            "text",
            "the brokers, host:port, separated by commas, if the URI has none; the default is "
            "MILLPOND_KAFKA_BROKERS, then localhost:9092",
        ),
        Option(
            "auto.offset.reset",
            "text",
            "where a new query starts: earliest, or latest for messages that arrive after its start",
            "earliest",
        ),
        Option(
            "topic.wait.timeout",
            "duration",
            "how long to wait for a missing topic or an unreachable broker",
            0.0,
        ),
        Option("topic.retry.interval", "duration", "the first pause between retries (2s)"),
        Option(
            "topic.retry.strategy",
            "choice",
            "how the pauses grow (exponential)",
            None,
            ("exponential", "linear", "fixed"),
        ),
        Option("topic.retry.multiplier", "text", "the factor of exponential pauses (1.5)"),
        Option("topic.retry.max.delay", "duration", "the longest pause (120s)"),
        Option("topic.create.if.missing", "bool", "whether a missing topic is created", False),
        Option(
            "topic.partitions",
            "int",
            "the number of partitions of a created topic; by default the broker decides",
        ),
        Option(
            "topic.replication",
            "int",
            "the number of replicas of a created topic; by default the broker decides",
        ),
        Option(
            "topic.recreated",
            "choice",
            "what happens to a query whose topic was deleted and created again: it fails, or reads "
            "the new topic as 'auto.offset.reset' says",
            "fail",
            ("fail", "restart"),
        ),
        Option("kafka.*", "secret", "any setting of the Kafka client, such as 'kafka.security.protocol'"),
    )

    def __init__(self, uri: str, values: Mapping[str, Any], declared: Schema | None):
        servers, self.topic, more = _parts(uri)
        settings = [Setting(k, v) for k, v in more]
        given = read_options(f'"{uri.partition("?")[0]}"', self.options, settings) if settings else {}
        named = {s.name.lower() for s in settings}
        beaten = {
            k: v for k, v in given.items() if k.lower() in named and values.get(k) in (None, _default(k))
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
        self._format = ValueFormat(self.topic, self.values)
        self._key_texts = key_texts(self.values)
        self._messages: Decoder | None = None
        self._read_id = ""
        self._first_keys: str | None = None

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
        text = str(self.values["auto.offset.reset"]).strip().lower()
        if text not in ("earliest", "latest"):
            log.warning(
                "'auto.offset.reset' = '%s' is neither earliest nor latest: earliest is taken",
                self.values["auto.offset.reset"],
            )
            return "earliest"
        return text

    # columns

    @property
    def address(self) -> str:
        schemas = without_passwords(self.values["schema.registry.url"] or "")
        return f"kafka://{self.servers}/{self.topic} as {self.values['format']} {schemas}".rstrip()

    def keyed(self, *, wait: bool) -> str | None:
        """A topic that is compacted, or whose first messages all have keys; not one that is still to be created."""

        def ask() -> str | None:
            topics = self._brokers.topics()
            if self.topic not in topics:
                if self.values["topic.create.if.missing"]:
                    return None
                raise self._brokers.missing(self.topic, topics)
            if "compact" in (self.setting("cleanup.policy") or ""):
                return "the topic is compacted"
            if self._first_keys is None:
                return _why_keyed([s.key for s in self._brokers.sample(self.topic, SAMPLE)])
            return self._first_keys or None

        return self._patience.wait_for(ask, issues=self.issues) if wait else ask()

    def setting(self, name: str) -> str | None:
        """A setting of the topic; None if the brokers do not let us ask."""
        return self._brokers.setting(self.topic, name)

    def schema(self) -> Schema:
        return Schema((*self._decoder.schema, *self._hidden))

    @property
    def _hidden(self) -> tuple[Column, ...]:
        key = pa.binary() if self.values["key.format"] == "raw" else pa.string()
        return (
            Column("_key", key, hidden=True),
            Column("_partition", pa.int32(), hidden=True),
            Column("_offset", pa.int64(), hidden=True),
            Column("_timestamp", pa.timestamp("us", "UTC"), hidden=True),
            Column("_headers", _HEADERS, hidden=True),
            Column(DELETED, pa.bool_(), hidden=True),
        )

    @property
    def _decoder(self) -> Decoder:
        if self._messages is None:
            if self.declared is None and self.found is None:
                self.found = self._discover()
            columns = self.declared or self.found or Schema(())
            self._messages = self._format.decoder(columns, watch=self.declared is None)
        return self._messages

    def _discover(self) -> Schema:
        """From a schema, or the earliest messages; a topic without any is waited for as a missing one is."""

        def look() -> Schema:
            known = self._format.columns()
            if known is not None:
                return known
            if self.values["topic.create.if.missing"] and not self.values["topic.wait.timeout"]:
                if self.topic not in self._brokers.topics():
                    raise self._empty()  # it is created when it is read
            self._ensure()
            sample = self._brokers.sample(self.topic, SAMPLE)
            self._first_keys = _why_keyed([s.key for s in sample]) or ""
            values = [s.value for s in sample if s.value is not None]
            if not values:
                raise self._empty()
            return self._format.discover(values)

        return self._patience.wait_for(look, issues=self.issues)

    def _empty(self) -> SourceEmpty:
        return _Empty(
            f'topic "{self.topic}" is empty: its columns cannot be discovered',
            hint="declare the columns, or wait for the first record with 'topic.wait.timeout' = '60s'",
        )

    def _widen(self, fresh: Schema) -> None:
        """Takes in columns that have come up. A field that is NULL everywhere tells no type yet."""
        with _WIDENING:
            known = self.found
            assert known is not None
            typed = tuple(c for c in fresh if c.type != pa.null() and c.name not in known)
            if not typed:
                return
            if len(known) + len(typed) > MOST_COLUMNS:
                log.warning(
                    'topic "%s" has more than %s fields: new ones are left out', self.topic, MOST_COLUMNS
                )
                return
            for column in (settled := settle_schema(Schema(typed))):
                log.info('topic "%s" has a new field: %s %s', self.topic, column.name, type_name(column.type))
            self.found, self._messages = Schema((*known, *settled)), None

    # the topic

    @property
    def _brokers(self) -> Brokers:
        return brokers(self.servers, self.client)

    @property
    def _patience(self) -> Patience:
        return Patience(
            self.values["topic.wait.timeout"],
            _number(self.values["topic.retry.interval"], "MILLPOND_RETRY_INTERVAL_SECS", 2.0),
            self.values["topic.retry.strategy"] or _strategy(),
            _number(self.values["topic.retry.multiplier"], "MILLPOND_RETRY_MULTIPLIER", 1.5),
            _number(self.values["topic.retry.max.delay"], "MILLPOND_RETRY_MAX_DELAY_SECS", 120.0),
        )

    def prepare(self) -> None:
        self._patience.wait_for(self._ensure, issues=self.issues)

    def _ensure(self) -> None:
        """Raises TopicMissing, unless it is to be created."""
        topics = self._brokers.topics()
        if self.topic in topics:
            return
        if not self.values["topic.create.if.missing"]:
            raise self._brokers.missing(self.topic, topics)
        partitions = _number(self.values["topic.partitions"], "MILLPOND_DEFAULT_PARTITIONS", -1)
        replicas = _number(self.values["topic.replication"], "MILLPOND_DEFAULT_REPLICATION_FACTOR", -1)
        self._brokers.create(self.topic, int(partitions), int(replicas))
        log.info('created topic "%s" at %s', self.topic, self.servers)

    # offsets

    def latest(self, start: Offset | None) -> Offset:
        ends = {str(p): end for p, end in sorted(self._brokers.ends(self.topic).items())}
        now = ends | {ID: self._brokers.topic_id(self.topic)}
        before = _places(start) if start and _same_topic(start, now) else {}
        return now | {p: max(end, before.get(p, 0)) for p, end in ends.items()}

    def _begin(self, start: Offset | None, end: Offset) -> dict[str, int]:
        """Where each partition of ``end`` begins after ``start``: one that is new, with its first record."""
        if start is not None:
            before = start if _same_topic(start, end) else {}
            return {p: before.get(p, 0) for p in _places(end)}
        if self.reset == "latest":
            return _places(end)
        begins = self._brokers.begins(self.topic, [int(p) for p in _places(end)])
        return {str(p): begin for p, begin in begins.items()}

    def splits(self, start: Offset | None, end: Offset) -> list[Split]:
        begin = self._begin(start, end)
        return [Split(end[p] - begin[p], None) for p in begin if end[p] > begin[p]]

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
        return _same_topic(at, end) and all(at.get(p, 0) >= offset for p, offset in _places(end).items())

    def begin(self) -> Offset | None:
        return self.latest(None) if self.reset == "latest" else None

    def resume(self, at: Offset) -> Offset:
        try:
            fresh = self._brokers.topic_id(self.topic)
        except TopicMissing:
            self._ensure()
            fresh = self._brokers.topic_id(self.topic)
        if _same_topic(at, {ID: fresh}):
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

    def comparable(self, one: Offset, other: Offset) -> bool:
        return _same_topic(one, other)

    def lost(self, start: Offset | None, end: Offset) -> int:
        if start is None:
            return 0
        if not _same_topic(end, {ID: self._brokers.topic_id(self.topic)}):
            raise self._replaced(TopicReplaced if self.values["topic.recreated"] == "fail" else _Restart)
        first = self._brokers.begins(self.topic, [int(p) for p in _places(end)])
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
        begin = self._begin(at, end)
        return {p: max(0, end[p] - begin[p]) for p in begin}

    def patience(self, error: Error) -> Patience:
        """A topic that is gone is waited for as at the start; brokers that do not answer, for ever."""
        return self._patience if isinstance(error, TopicMissing) else AGAIN

    # Spark

    def _settings(self) -> dict[str, str]:
        client = {f"kafka.{k}": v for k, v in self.client.items()}
        return client | {
            "kafka.bootstrap.servers": self.servers,
            "kafka.isolation.level": "read_committed",
            "includeHeaders": "true",
            "failOnDataLoss": "false",
        }

    def stream_settings(self, start: Offset | None, rows: int) -> dict[str, str]:
        self._read_id = (start or {}).get(ID) or self._brokers.topic_id(self.topic)
        return self._settings() | {
            "subscribe": self.topic,
            "startingOffsets": self.reset if start is None else json.dumps({self.topic: _places(start)}),
            "maxOffsetsPerTrigger": str(rows),
        }

    def range_settings(self, start: Offset | None, end: Offset) -> dict[str, str]:
        begin = self._begin(start, end)
        return self._settings() | {
            "subscribe": self.topic,
            "startingOffsets": json.dumps({self.topic: begin}),
            "endingOffsets": json.dumps({self.topic: _places(end)}),
        }

    def tasks(self) -> int:
        return len(self._brokers.partitions(self.topic))

    def decoding_sql(self, view: str) -> str:
        """A message that cannot be decoded ends the query."""
        columns, name = tuple(self._decoder.schema), self.values["format"]
        if name == "json" and not self.values["schema.registry.url"]:
            fields = ", ".join(f"{quote(c.name)} {type_name(c.type)}" for c in columns)
            ddl = fields.replace("\\", "\\\\").replace("'", "\\'")
            value = f"from_json(CAST(value AS STRING), '{ddl}', map('mode', 'FAILFAST'))"
            names = [f"__value.{quote(c.name)} AS {quote(c.name)}" for c in columns]
        elif name in ("text", "raw"):
            value = "CAST(value AS STRING)" if name == "text" else "value"
            names = [f"__value AS {quote(columns[0].name)}"]
        else:
            raise NotSupported(
                f"the format {name} cannot be decoded by Spark alone",
                hint="formats that can: json, text, raw",
            )
        if self._key_texts is not None:
            raise NotSupported(
                f"keys in {self.values['key.format']} cannot be decoded by Spark alone",
                hint="'key.format' = 'text' or 'raw'",
            )
        key = "CAST(key AS STRING)" if self.values["key.format"] == "text" else "key"
        hidden = (
            f"{key} AS _key", "partition AS _partition", "offset AS _offset", "timestamp AS _timestamp",
            "headers AS _headers", f"value IS NULL AS {DELETED}", f"offset AS {quote(SEQ)}",
        )  # fmt: skip
        return f"SELECT {', '.join((*names, *hidden))} FROM (SELECT {value} AS __value, * FROM {view})"

    def offset_of(self, noted: str) -> Offset:
        """Stamped with the topic that was there when Spark began: whether it still is, ``lost`` finds out."""
        places = {p: int(o) for p, o in sorted(json.loads(noted)[self.topic].items())}
        return places | {ID: self._read_id}

    def first_seq(self, start: Offset | None) -> int:
        return sum(_places(start).values()) if start else 0

    def decode(self, raw: pa.Table) -> Received:
        raw = in_order(raw)
        values = as_type(raw["value"], pa.binary())
        decoder = self._decoder
        events = events_of(decoder, values)
        if len(fresh := decoder.fresh(values)):
            self._widen(fresh)
            if (wider := self._decoder) is not decoder:
                decoder, events = wider, events_of(wider, values)
        if self._key_texts is not None:
            keys = self._key_texts.decode(as_type(raw["key"], pa.binary()))
            raw = raw.set_column(raw.schema.get_field_index("key"), "key", keys.texts)
            events = without(events, keys)
        return received(raw, values, events, Schema((*decoder.schema, *self._hidden)))


def _places(offset: Offset) -> dict[str, int]:
    """The offsets of the partitions."""
    return {p: o for p, o in offset.items() if p != ID}


def _same_topic(one: Offset, other: Offset) -> bool:
    """Whether both are of one topic, not of one that was made again; brokers of old do not tell."""
    ids = {one.get(ID, ""), other.get(ID, "")}
    return len(ids) == 1 or "" in ids


class _Restart(TopicReplaced):
    """``resume`` tells where to go on."""

    retryable = True


class _Empty(SourceEmpty):
    code = "topic_empty"
    retryable = True


def _parts(uri: str) -> tuple[str | None, str, list[tuple[str, str]]]:
    """Brokers, topic and options of a URI."""
    rest, _, query = uri.partition("://")[2].partition("?")
    hosts, slash, topic = rest.partition("/")
    if not slash:
        hosts, topic = "", hosts
    topic = topic.strip("/")
    if not topic:
        raise InvalidOption(f'"{uri}" names no topic', hint="kafka://topic or kafka://host:9092/topic")
    return hosts or None, topic, [(k, v.strip("\"'")) for k, v in parse_qsl(query, keep_blank_values=True)]


def _why_keyed(keys: list[bytes | None]) -> str | None:
    """Why the first messages of a topic, with these keys, tell rows by their keys."""
    return f"its first {len(keys):,} messages have keys" if keys and None not in keys else None


def _default(name: str) -> Any:
    return next((o.default for o in KafkaSource.options if o.name == name), None)


def _number(value: Any, variable: str, default: float) -> float:
    """An option, else a variable of the environment, else the default."""
    text = value if value is not None else os.environ.get(variable)
    if text is None:
        return default
    try:
        return float(text)
    except ValueError:
        raise InvalidOption(
            f'"{text}" is not a number', hint=f"the option, or the variable {variable}"
        ) from None


def _strategy() -> Any:
    text = os.environ.get("MILLPOND_RETRY_STRATEGY", "exponential").strip().lower()
    if text not in ("exponential", "linear", "fixed"):
        raise InvalidOption(
            f'MILLPOND_RETRY_STRATEGY cannot be "{text}"', hint="it is exponential, linear or fixed"
        )
    return text
