"""Implements Kafka as a sink: ``INSERT INTO kafka://topic SELECT …``.

Each row is a message. Its columns are the value; a column ``_key`` is the message's key instead, ``_partition`` its
partition, ``_timestamp`` its time; where ``_deleted`` is true it has no value.

By default Spark's own sink writes: at least once. With ``'delivery' = 'exactly-once'`` one producer of this process
writes a batch in one transaction of Kafka, and with it, in the same transaction, the position after the batch, as an
offset commit of a group that belongs to the query. A start reads it back: a batch that Kafka has is not written again.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping
from functools import reduce
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond import faults
from millpond.changelog import Style
from millpond.changes import Position
from millpond.connectors.kafka.client import client_settings, issue_of, settled
from millpond.connectors.kafka.encode import Keys, Values
from millpond.connectors.kafka.formats import FORMAT_OPTIONS, WRITING_OPTIONS
from millpond.connectors.kafka.source import KafkaSource
from millpond.connectors.sink import Division, NativeSink
from millpond.connectors.source import DELETED
from millpond.errors import BadData, NetworkIssue, NotSupported
from millpond.options import Option
from millpond.types import Schema, quote, whole

_PARTS = ("_key", "_partition", "_timestamp", DELETED)
_QUEUE = 1_000_000
_STEP = 50_000
_AROUND = 100
"""Bytes around a key and a value, for a topic that allows fewer than usual."""
_PLAIN, _PACKED = 1_000, "zlib:"
_LARGEST = 1_000_000
"""Bytes of a message that a broker accepts by default, minus the bytes around it."""


class KafkaSink(NativeSink):
    """Writes messages to a topic."""

    kind: ClassVar[str] = "kafka"
    schemes: ClassVar[tuple[str, ...]] = ("kafka",)
    format: ClassVar[str] = "kafka"
    takes_changes: ClassVar[Style] = "message"
    options: ClassVar[tuple[Option, ...]] = (
        Option(
            "delivery",
            "choice",
            "at-least-once: after a crash a batch may be written again. exactly-once: readers with"
            " isolation.level=read_committed see each row once.",
            "at-least-once",
            ("at-least-once", "exactly-once"),
        ),
        *WRITING_OPTIONS,
        Option(
            "mode",
            "choice",
            "batch: rows are written batch by batch. realtime: Spark's real-time mode, from topic to "
            "topic, writes each row as it arrives",
            "batch",
            ("batch", "realtime"),
        ),
        Option(
            "commit.interval",
            "duration",
            "in real-time mode: how often the position is committed and changed tables are read again",
            5.0,
        ),
        *(
            o
            for o in KafkaSource.options
            if o.name == "bootstrap.servers"
            or (o.name.startswith(("topic.", "kafka.")) and o.name != "topic.recreated")
        ),
    )

    def __init__(self, uri: str, values: Mapping[str, Any], schema: Schema):
        super().__init__(uri, values, schema)
        mine = {o.name for o in KafkaSource.options} - {o.name for o in FORMAT_OPTIONS}
        for_topic = {k: v for k, v in self.values.items() if k in mine or k.startswith("kafka.")}
        # What reading and writing a topic have in common: where it is, whether it exists.
        self._topic = KafkaSource(uri, for_topic, Schema(()))
        self.exact = self.is_exact(self.values)
        columns = Schema(tuple(c for c in schema if c.name.lower() not in _PARTS))
        self._values = Values(self._topic.topic, columns, self.values)
        self._keys = Keys(self._topic.topic, schema.find("_key"), self.values)
        self._allowed = int(self._topic.client.get("max.request.size", _LARGEST))
        self._producer: Any = None
        self._reader: Any = None
        self._group: Any = None

    @classmethod
    def is_exact(cls, values: Mapping[str, Any]) -> bool:
        return bool(values.get("delivery") == "exactly-once")

    @property
    def guarantee(self) -> str:
        if self.exact:
            return "exactly once: one transaction of Kafka for a batch, which holds the position"
        if self.values["mode"] == "realtime":
            return (
                "each row as it comes, by Spark's real-time mode; at least once: a crash writes again what came after"
                f" the last note, of which there is one every {self.values['commit.interval']:g} s"
            )
        return "at least once: a batch that a crash cuts off is written again"

    @property
    def writer(self) -> str:
        return "one transactional producer in the driver: a transaction of Kafka, here a whole batch, has only one"

    def open(self, name: str) -> Position | None:
        self._topic.prepare()
        if (taken := self._topic.setting("max.message.bytes")) is not None:
            self._allowed = min(self._allowed, int(taken) - _AROUND)
        if not self.exact:
            return None
        from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

        self.close()
        group = f"millpond-{name}"
        settings = client_settings(self._topic.servers, self._topic.client)
        try:
            producer = Producer(
                settings
                | {
                    "transactional.id": group,
                    "linger.ms": 5,
                    "queue.buffering.max.messages": _QUEUE,
                    # A topic limits not one message but those that are sent together.
                    "batch.size": min(_LARGEST, self._allowed + _AROUND),
                    "message.max.bytes": max(_LARGEST, self._allowed + _AROUND),
                }
            )
            # From here on a producer of an earlier run is fenced, and its open transaction is aborted.
            producer.init_transactions(60)
            self._reader = Consumer(settings | {"group.id": group, "enable.auto.commit": False})
            reader, mark = self._reader, TopicPartition(self._topic.topic, 0)
            found = settled(lambda: reader.committed([mark], timeout=30)[0])
            self._group = self._reader.consumer_group_metadata()
        except KafkaException as error:
            raise issue_of(error, self._topic.servers) from None
        self._producer = producer
        if found.offset < 0 or not found.metadata:
            return None
        noted = _of_metadata(found.metadata)
        return Position(noted["pipeline"], "", noted["batch"], noted["offsets"])

    @property
    def is_open(self) -> bool:
        return not self.exact or self._producer is not None

    def settings(self) -> dict[str, str]:
        client = {f"kafka.{k}": v for k, v in self._topic.client.items()}
        return client | {"kafka.bootstrap.servers": self._topic.servers, "topic": self._topic.topic}

    def encode(self, rows: pa.Table) -> pa.Table:
        by_name = {n.lower(): rows.column(i) for i, n in enumerate(rows.column_names)}
        live, places = rows, None
        if DELETED in by_name:
            stays = ~np.asarray(pc.fill_null(whole(by_name[DELETED]), False))
            live, places = rows.filter(pa.array(stays)), pa.array(np.cumsum(stays) - 1, mask=~stays)
        encoded = self._values.encode(live.select(list(self._values.columns.names)))
        columns: dict[str, Any] = {"value": encoded if places is None else encoded.take(places)}
        if "_key" in by_name:
            columns["key"] = self._keys.encode(whole(by_name["_key"]))
        if "_partition" in by_name:
            columns["partition"] = by_name["_partition"].cast(pa.int32())
        if "_timestamp" in by_name:
            columns["timestamp"] = by_name["_timestamp"]
        return pa.table(columns)

    def encoding_sql(self, view: str) -> str:
        names = [quote(c.name) for c in self.schema if c.name.lower() not in _PARTS]
        if not self._keys.plain:
            raise NotSupported("keys in avro cannot be written by Spark alone", hint="'key.format' = 'text'")
        value = self._values.sql(names)
        ended = next((quote(c.name) for c in self.schema if c.name.lower() == DELETED), None)
        if ended is not None:
            value = f"CASE WHEN {ended} THEN NULL ELSE {value} END"
        columns = [f"CAST({value} AS BINARY) AS value"]
        for part in self.schema:
            name = part.name.lower()
            if name == "_key":
                binary = part.type is not None and pa.types.is_binary(part.type)
                text = quote(part.name) if binary else f"CAST({quote(part.name)} AS STRING)"
                columns.append(f"CAST({text} AS BINARY) AS key")
            elif name == "_partition":
                columns.append(f"CAST({quote(part.name)} AS INT) AS partition")
            elif name == "_timestamp":
                columns.append(f"CAST({quote(part.name)} AS TIMESTAMP) AS timestamp")
        return f"SELECT {', '.join(columns)} FROM {view}"

    def division(self) -> Division:
        """Divides by the key; without one by the partition, if it is given. A topic of one partition has one order."""
        texts = {"_key": "`key`", "_partition": "CAST(CAST(`partition` AS STRING) AS BINARY)"}
        by = [text for part, text in texts.items() if part in self._parts]
        return Division(self._topic.tasks(), f"coalesce({', '.join(by)})" if by else "NULL")

    def measures(self) -> tuple[str, ...]:
        lengths = ["`value`", "`key`"] if "_key" in self._parts else ["`value`"]
        largest = " + ".join(f"coalesce(octet_length({name}), 0)" for name in lengths)
        asked = ("min(`partition`)", "max(`partition`)") if "_partition" in self._parts else ()
        return (f"max({largest})", *asked)

    def check_measured(self, *found: Any) -> None:
        largest, lowest, highest = (*found, None, None)[:3]
        if largest > self._allowed:
            raise BadData(
                f"a message of {largest:,} bytes is larger than {self._allowed:,}",
                hint="'kafka.max.request.size' allows more, up to what the topic does (max.message.bytes)",
            )
        if highest is None:
            return
        there = self._topic.tasks()
        if not 0 <= lowest <= highest < there:
            raise BadData(
                f'topic "{self._topic.topic}" has partitions 0 to {there - 1}, and _partition is another'
            )

    @property
    def _parts(self) -> set[str]:
        """Returns the parts of messages that have a column."""
        return {c.name.lower() for c in self.schema} & set(_PARTS)

    def check(self, rows: pa.Table) -> None:
        self._encoded(rows)

    def _encoded(self, rows: pa.Table) -> pa.Table:
        encoded = self.encode(rows)
        parts = [
            pc.fill_null(pc.binary_length(encoded[n]), 0)
            for n in ("value", "key")
            if n in encoded.column_names
        ]
        found = [pc.max(reduce(pc.add, parts)).as_py() or 0]
        if "partition" in encoded.column_names:
            found += pc.min_max(encoded["partition"]).as_py().values()
        self.check_measured(*found)
        return encoded

    def write(self, rows: pa.Table, position: Position | None) -> None:
        """Writes in one transaction with the position. After a failure its outcome is unknown: ``open`` finds it."""
        from confluent_kafka import KafkaException, TopicPartition

        messages = _messages(self._encoded(rows))
        producer, self._producer = self._producer, None
        try:
            producer.begin_transaction()
            faults.reach("sink: begun")
            self._produce(producer, messages)
            faults.reach("sink: produced")
            if position is not None:
                noted = {
                    "pipeline": position.pipeline,
                    "batch": position.batch,
                    "offsets": dict(position.offsets),
                }
                mark = TopicPartition(self._topic.topic, 0, position.batch + 1, metadata=_metadata(noted))
                producer.send_offsets_to_transaction([mark], self._group, 60)
            faults.reach("sink: positioned")
            producer.commit_transaction(60)
        except KafkaException as error:
            raise issue_of(error, self._topic.servers) from None
        self._producer = producer

    def _produce(self, producer: Any, messages: list[dict[str, Any]]) -> None:
        from confluent_kafka import KafkaError

        failed: list[Any] = []

        def noted(error: Any, message: Any) -> None:
            if error is not None:
                failed.append(error)

        for first in range(0, len(messages), _STEP):
            some = messages[first : first + _STEP]
            while some:
                producer.produce_batch(self._topic.topic, some, on_delivery=noted)
                errors = [m.pop("_error", None) for m in some]
                failed += [e for e in errors if e is not None and e.code() != KafkaError._QUEUE_FULL]  # noqa: SLF001  librdkafka's own codes begin so
                if failed:
                    break
                some = [m for m, error in zip(some, errors, strict=True) if error is not None]
                if some:
                    producer.poll(0.1)
        left = producer.flush(60)
        if left or failed:
            why = failed[0].str() if failed else "no answer in 60 s"
            raise NetworkIssue(f"{left or len(failed)} messages could not be written: {why}")

    def forget(self, name: str) -> None:
        if not self.exact:
            return
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        self.close()
        admin = AdminClient(client_settings(self._topic.servers, self._topic.client))
        try:
            for deleted in admin.delete_consumer_groups([f"millpond-{name}"]).values():
                deleted.result(30)
        except KafkaException as error:
            raise issue_of(error, self._topic.servers) from None

    def close(self) -> None:
        self._producer = None
        if self._reader is not None:
            self._reader.close()
            self._reader = None


def _metadata(noted: Mapping[str, Any]) -> str:
    """Returns the text of an offset commit, for which brokers allow 4,096 bytes: hundreds of partitions fit."""
    text = json.dumps(noted, separators=(",", ":"))
    return (
        text if len(text) < _PLAIN else _PACKED + base64.b64encode(zlib.compress(text.encode(), 9)).decode()
    )


def _of_metadata(text: str) -> Any:
    packed = text.startswith(_PACKED)
    return json.loads(zlib.decompress(base64.b64decode(text.removeprefix(_PACKED))) if packed else text)


def _messages(encoded: pa.Table) -> list[dict[str, Any]]:
    """Returns what the client takes; a part that is NULL is left out."""
    if "timestamp" in encoded.column_names:
        times = encoded["timestamp"].cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64())
        encoded = encoded.set_column(encoded.column_names.index("timestamp"), "timestamp", times)
    messages: list[dict[str, Any]] = encoded.to_pylist()
    if any(encoded[n].null_count for n in ("partition", "timestamp") if n in encoded.column_names):
        messages = [{k: v for k, v in m.items() if v is not None or k in ("key", "value")} for m in messages]
    return messages
