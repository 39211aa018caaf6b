"""Error records keep the bytes of what could not be processed: of messages, of records of files, and of rows."""

from __future__ import annotations

import datetime as dt
import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from hypothesis import given, settings
from hypothesis import strategies as some

from millpond import App
from millpond.connectors.kafka.source import KafkaSource
from millpond.sql.errortables import ERROR_COLUMNS
from millpond.store.error_records import error_records, message_records, of_messages, rows_of
from millpond.types import Column, Schema
from tests.servers import Servers
from tests.test_kafka import new_topic, uri
from tests.test_kafka_formats import messages

NOW = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
ODD = (b"", b"\0", b"0xff", b"\xff", b"\xed\xa0\x80", b"a\0b", "é\U0001f600\u2028".encode(), b'{"id"', b'"\\')
SOME_BYTES = some.one_of(
    some.sampled_from(ODD), some.binary(max_size=12), some.text(max_size=6).map(str.encode)
)
READ = """
    SELECT
      coalesce(unhex(get_json_object(row, '$._bytes')), encode(get_json_object(row, '$._message'), 'UTF-8')) AS value,
      coalesce(unhex(get_json_object(row, '$._key_bytes')), encode(get_json_object(row, '$._key'), 'UTF-8')) AS key
    FROM {} ORDER BY seq
"""
"""The query of the how-to."""


def bytes_of(row: str) -> tuple[bytes | None, bytes | None]:
    """The key and the value of the message of an error record."""
    found = json.loads(row)
    texts = [(found.get("_key_bytes"), found.get("_key")), (found.get("_bytes"), found["_message"])]
    key, value = (bytes.fromhex(d) if d is not None else None if t is None else t.encode() for d, t in texts)
    return key, value


@given(some.lists(some.tuples(some.none() | SOME_BYTES, some.none() | SOME_BYTES), max_size=6))
@settings(max_examples=60, deadline=None)
def test_a_message_that_cannot_be_decoded_keeps_its_bytes(
    sent: list[tuple[bytes | None, bytes | None]],
) -> None:
    """Whichever of its value and its key cannot be decoded."""
    given = {"key.format": "avro", "avro.key.schema": '"string"'}
    source = KafkaSource("kafka://t", given, Schema((Column("id", pa.int64()),)))
    found = source.decode(messages(*(v for _, v in sent), keys=[k for k, _ in sent]))
    rejected = found.rejected.rename_columns({"place": "seq"})
    records = message_records("q", "s", rejected, ERROR_COLUMNS, NOW)
    assert all(of_messages(records["row"]).to_pylist())
    kept = [bytes_of(row) for row in records["row"].to_pylist()]
    assert kept == [sent[place] for place in found.rejected["place"].to_pylist()]
    assert len(kept) + found.rows.num_rows == len(sent)


BINARY = pa.binary()
BYTES = Schema(
    (
        Column("one", BINARY),
        Column("many", pa.list_(BINARY)),
        Column("pair", pa.struct([("x", BINARY), ("n", pa.int64())])),
        Column("named", pa.map_(pa.string(), BINARY)),
        Column("keyed", pa.map_(BINARY, pa.float64())),
        Column("days", pa.map_(pa.date32(), pa.bool_())),
        Column("places", pa.map_(pa.int64(), pa.list_(pa.struct([("x", BINARY)])))),
    )
)
MAYBE = some.none() | SOME_BYTES
ROWS = some.fixed_dictionaries(
    {
        "one": MAYBE,
        "many": some.none() | some.lists(MAYBE, max_size=3),
        "pair": some.none() | some.fixed_dictionaries({"x": MAYBE, "n": some.none() | some.integers(-9, 9)}),
        "named": some.none() | some.dictionaries(some.text(max_size=3), MAYBE, max_size=2),
        "keyed": some.none() | some.dictionaries(SOME_BYTES, some.floats(allow_nan=False), max_size=2),
        "days": some.none() | some.dictionaries(some.dates(), some.booleans(), max_size=2),
        "places": some.none()
        | some.dictionaries(
            some.integers(-9, 9), some.lists(some.fixed_dictionaries({"x": MAYBE}), max_size=2), max_size=2
        ),
    }
)


@given(some.lists(ROWS, min_size=1, max_size=3))
@settings(max_examples=60, deadline=None)
def test_a_row_comes_back_with_its_bytes(sent: list[dict[str, Any]]) -> None:
    """Also those within lists, structs and maps: REPLAY applies the same row."""
    pairs = [
        {n: list(v.items()) if n in _MAPS and v is not None else v for n, v in row.items()} for row in sent
    ]
    rows = pa.Table.from_pylist([{**row, "_seq": n} for n, row in enumerate(pairs)], _NUMBERED)
    why = pa.chunked_array([["why"] * len(sent)])
    records = error_records("q", "s", rows, why, ERROR_COLUMNS, NOW)
    assert rows_of(records, BYTES, "t").combine_chunks().equals(rows.combine_chunks())


_NUMBERED = BYTES.arrow().append(pa.field("_seq", pa.int64()))
_MAPS = ("named", "keyed", "days", "places")


@pytest.mark.usefixtures("spark")
def test_messages_in_the_error_table(servers: Servers, tmp_path: Path) -> None:
    """Decoded here or on executors, and after a restart, the error table has the bytes that were sent."""
    kafka, numbers = servers.kafka, random.Random(7)
    topic = new_topic(kafka)
    sent = [(numbers.choice((None, *ODD)), value) for value in ODD]
    for _ in range(40):
        key, value = (numbers.randbytes(numbers.randrange(9)) for _ in range(2))
        sent.append((key, b"\xff" + value))
    kafka.produce(topic, [("k", '{"id": 1}', 0), *((k, v, 0) for k, v in sent), (b"\xff", '{"id": 2}', 0)])
    expected = [{"key": key, "value": value} for key, value in sent]
    sql = f"""
        CREATE STREAM s (id BIGINT) WITH ('connector' = '{uri(kafka, topic)}');
        CREATE TABLE here AS SELECT id FROM s WITH ('engine' = 'process');
        CREATE TABLE there AS SELECT id FROM s WITH ('engine' = 'spark');
    """
    for _ in range(2):
        with App(sql, state=tmp_path / "state") as app:
            app.drain(120)
            for name in ("here", "there"):
                assert sorted(r["id"] for r in app.sql(f"SELECT id FROM {name}").rows()) == [1, 2]
                assert app.sql(READ.format(f"{name}$errors")).rows() == expected


def test_a_row_with_headers_is_replayed(servers: Servers) -> None:
    """The values of headers are bytes within structs."""
    kafka = servers.kafka
    topic = new_topic(kafka)
    producer = Producer({"bootstrap.servers": kafka.brokers, "log_level": 0})
    producer.produce(topic, b'{"id": 0}', b"\xff", headers=[("h", b"\xff\0"), ("none", None)])
    assert producer.flush(60) == 0
    sql = f"""
        CREATE STREAM s (id BIGINT) WITH ('connector' = '{uri(kafka, topic)}', 'key.format' = 'raw');
        CREATE TABLE d (id BIGINT PRIMARY KEY, by BIGINT);
        INSERT INTO d VALUES (0, 0);
        CREATE TABLE t AS SELECT s.id, 1 / d.by AS x, s._key, s._headers FROM s JOIN d ON s.id = d.id;
    """
    with App(sql, _direct=True) as app:
        app.drain(60)
        assert app.sql("SELECT COUNT(*) AS n FROM t$errors").rows() == [{"n": 1}]
        app.sql("UPDATE d SET by = 1")
        assert app.sql("REPLAY t$errors").count == 1
        (row,) = app.sql("SELECT * FROM t").rows()
        headers = [{"key": "h", "value": b"\xff\0"}, {"key": "none", "value": None}]
        assert row == {"id": 0, "x": 1.0, "_key": b"\xff", "_headers": headers}
