"""Columns of topics: discovered, kept, and followed when fields come, change and go."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from millpond import App
from millpond.app.check import check_text
from millpond.connectors.kafka.message_columns import flat
from millpond.connectors.kafka.source import KafkaSource
from millpond.errors import BadData
from millpond.formats.messages.json import JsonMessages
from millpond.journal.catalog import Entry
from millpond.journal.journal import Journal
from millpond.loading.discovered_columns import COLUMNS
from millpond.store.catalog import dump_schema, load_schema
from millpond.types import Column, Schema
from tests.servers import Kafka, Servers
from tests.test_kafka import new_topic, uri


@pytest.fixture
def kafka(servers: Servers) -> Kafka:
    return servers.kafka


def described(app: App, name: str) -> dict[str, str]:
    return {r["column"]: r["type"] for r in app.sql(f"DESCRIBE {name}").rows() if r["column"][0] != "_"}


@pytest.mark.usefixtures("spark")
def test_a_restart_sees_the_same_columns(kafka: Kafka, tmp_path: Path) -> None:
    topic = new_topic(kafka)
    kafka.produce(topic, ['{"id": 1, "name": "a"}'])
    sql = f"""
        CREATE STREAM s WITH ('connector' = '{uri(kafka, topic)}');
        CREATE TABLE t AS SELECT * FROM {uri(kafka, topic)};
        CREATE TABLE exact (id BIGINT, name STRING) AS SELECT * FROM {uri(kafka, topic)};
        CREATE TABLE n AS SELECT COUNT(*) AS n FROM s;
    """
    columns = {"id": "BIGINT", "name": "STRING"}
    with App(sql, state=tmp_path) as app:
        app.drain(120)
        assert described(app, "s") == described(app, "t") == columns
    # A sample would now find nothing: the topic's records are gone.
    kafka.delete_records(topic)
    with App(sql, state=tmp_path) as app:
        assert described(app, "s") == described(app, "t") == columns
        kafka.produce(topic, ['{"id": 2, "name": "b"}'])
        app.drain(120)
        assert app.sql("SELECT * FROM t ORDER BY id").rows() == [
            {"id": 1, "name": "a"},
            {"id": 2, "name": "b"},
        ]
        assert app.sql("SELECT (SELECT n FROM n) AS n, COUNT(*) AS e FROM exact").rows() == [{"n": 2, "e": 2}]
        # What nobody reads any more is looked at anew.
        app.sql("DROP TABLE t; DROP TABLE exact; DROP TABLE n; DROP STREAM s")
        kafka.delete_records(topic)
        kafka.produce(topic, ['{"id": "x"}'])
        app.sql(f"CREATE TABLE u AS SELECT * FROM {uri(kafka, topic)}")
        assert described(app, "u") == {"id": "STRING"}


def test_an_empty_topic_is_waited_for(kafka: Kafka) -> None:
    topic = new_topic(kafka)

    def first() -> None:
        time.sleep(0.5)
        kafka.produce(topic, ['{"id": 1}'])

    thread = threading.Thread(target=first)
    thread.start()
    wait = "'topic.wait.timeout' = '60s', 'topic.retry.interval' = '200ms'"
    with App(f"CREATE STREAM s WITH ('connector' = '{uri(kafka, topic)}', {wait})") as app:
        assert described(app, "s") == {"id": "BIGINT"}
    thread.join()


@pytest.mark.usefixtures("spark")
def test_new_fields_become_columns(kafka: Kafka, tmp_path: Path) -> None:
    topic, target = new_topic(kafka), new_topic(kafka)
    kafka.produce(topic, ['{"id": 1, "who": {"a": 1}}'])
    sql = f"""
        CREATE STREAM s WITH ('connector' = '{uri(kafka, topic)}');
        CREATE TABLE every AS SELECT *, id + 1 AS next FROM s;
        CREATE TABLE keyed (PRIMARY KEY (id)) AS SELECT * FROM s;
        CREATE TABLE filed WITH ('extension' = 'sqlite') AS SELECT * FROM s;
        CREATE TABLE few AS SELECT id FROM s;
        CREATE TABLE n AS SELECT COUNT(*) AS n, MAX(id) AS last FROM s;
        CREATE TABLE copied AS SELECT * FROM keyed;
        CREATE STREAM derived AS SELECT * FROM s;
        CREATE TABLE of_derived AS SELECT * FROM derived;
        CREATE TABLE fixed (id BIGINT, who STRUCT<a: BIGINT>);
        INSERT INTO fixed SELECT * FROM s;
        CREATE TABLE bounded WITH ('extension' = 'cache') AS SELECT * FROM s;
        INSERT INTO {uri(kafka, target)} SELECT * FROM s WITH ('delivery' = 'exactly-once');
    """
    with App(sql, state=tmp_path) as app:
        app.drain(120)
        assert described(app, "every") == {"id": "BIGINT", "who": "STRUCT<`a`: BIGINT>", "next": "BIGINT"}
        handle = app.table("keyed")
        assert handle.get_record(1) == {"id": 1, "who": {"a": 1}}
        kafka.produce(topic, ['{"id": 2, "note": "new", "who": {"a": 2, "b": 3}}', '{"id": 3, "gone": null}'])
        app.drain(120)
        assert list(described(app, "every")) == ["id", "who", "note", "next"]
        assert app.sql("SELECT id, note, next FROM every ORDER BY id").rows() == [
            {"id": 1, "note": None, "next": 2},
            {"id": 2, "note": "new", "next": 3},
            {"id": 3, "note": None, "next": 4},
        ]
        assert app.table("keyed").get_record(2) == {"id": 2, "who": {"a": 2}, "note": "new"}
        assert handle.get_record(1) == {"id": 1, "who": {"a": 1}, "note": None}
        assert (
            described(app, "s")
            == described(app, "keyed")
            == described(app, "copied")
            == described(app, "filed")
        )
        assert app.sql("SELECT COUNT(*) AS n, MAX(note) AS note FROM filed").rows() == [
            {"n": 3, "note": "new"}
        ]
        assert app.sql("SELECT note FROM copied WHERE id = 2").rows() == [{"note": "new"}]
        about = {r["property"]: r["value"] for r in app.sql("DESCRIBE EXTENDED s").rows()}
        assert about["new columns"] == "1: note"
        assert described(app, "few") == {"id": "BIGINT"}
        assert [v for _, v in kafka.consume(target)][:2] == [
            b'{"id":1,"who":{"a":1}}',
            b'{"id":2,"who":{"a":2},"note":"new"}',
        ]
        assert app.sql("SELECT * FROM n").rows() == [{"n": 3, "last": 3}]
    # While nobody runs another field comes, and one that is there has another type.
    kafka.produce(topic, ['{"id": 4, "price": 1.5, "note": "x"}', '{"id": "five"}', '{"id": 6}'])
    with App(sql, state=tmp_path) as app:
        app.drain(120)
        assert described(app, "keyed")["price"] == "DECIMAL(38,19)"
        assert app.sql("SELECT id, note, price FROM keyed WHERE id > 1 ORDER BY id").rows() == [
            {"id": 2, "note": "new", "price": None},
            {"id": 3, "note": None, "price": None},
            {"id": 4, "note": "x", "price": 1.5},
            {"id": 6, "note": None, "price": None},
        ]
        reasons = [r["reason"] for r in app.sql("SELECT reason FROM `keyed$errors`").rows()]
        assert len(reasons) == 1 and '"five" in column "id" is not a BIGINT' in reasons[0]
        assert app.sql("SELECT COUNT(*) AS n FROM few").rows() == [{"n": 5}]
    with App(sql, state=tmp_path) as app:
        app.drain(120)  # a cache starts empty and is filled from the topic
        assert app.sql("SELECT price FROM every WHERE id = 4").rows() == [{"price": 1.5}]
        assert app.sql("SELECT price FROM copied WHERE id = 4").rows() == [{"price": 1.5}]
        assert app.sql("SELECT price, note FROM filed WHERE id = 4").rows() == [{"price": 1.5, "note": "x"}]
        # What cannot take new columns goes on with those that it had.
        for table in ("of_derived", "fixed", "bounded"):
            assert list(described(app, table)) == ["id", "who"]
            assert app.sql(f"SELECT COUNT(*) AS n, MAX(id) AS m FROM {table}").rows() == [{"n": 5, "m": 6}]
    # A kill after the columns of the source were kept, and before those of the tables were.
    journal = Journal(tmp_path, durable=True)
    (entry,) = (e for e in journal.entries() if e.kind == COLUMNS)
    found = load_schema(entry.data)
    assert found is not None
    wider = dump_schema(Schema((*found, Column("late", pa.int64())))) or {}
    journal.put_entry(Entry(entry.name, COLUMNS, "", entry.data | wider))
    journal.close()
    with App(sql, state=tmp_path) as app:
        kafka.produce(topic, ['{"id": 7, "late": 70}'])
        app.drain(120)
        for table in ("every", "keyed", "filed", "copied"):
            assert app.sql(f"SELECT late FROM {table} WHERE id = 7").rows() == [{"late": 70}]


def messages(*values: str | bytes | None, keys: list[bytes | None] | None = None) -> pa.Table:
    """What Spark's connector gives for messages."""
    count = len(values)
    return pa.table(
        {
            "key": pa.nulls(count, pa.binary()) if keys is None else pa.array(keys, pa.binary()),
            "value": pa.array([v.encode() if isinstance(v, str) else v for v in values], pa.binary()),
            "partition": pa.array([0] * count, pa.int32()),
            "offset": pa.array(range(count), pa.int64()),
            "timestamp": pa.array([datetime(2024, 1, 1, tzinfo=UTC)] * count, pa.timestamp("us", "UTC")),
            "headers": pa.nulls(count, pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        }
    )


def topic_of(found: Schema, **values: str) -> KafkaSource:
    source = KafkaSource("kafka://t", values, None)
    source.found = found
    return source


ID = Schema((Column("id", pa.int64()),))


def test_the_types_of_new_fields() -> None:
    source = topic_of(ID)
    rows = source.decode(
        messages('{"id": 1, "a": 1, "b": null}', "{", '{"id": 2, "a": "x", "c": {"d": [1]}}', None)
    )
    assert rows.rows.column("a").to_pylist() == ["1", "x", None]
    assert rows.rows.column("c").to_pylist() == [None, {"d": [1]}, None]
    assert source.schema().names[:3] == ("id", "a", "c") and rows.places.to_pylist() == [0, 2, 3]
    # Another spelling is no new field, and what has no value has no type.
    assert source.decode(messages('{"ID": 3, "b": null}')).rows.column("id").to_pylist() == [3]
    assert len(source.schema()) == 9
    assert len(topic_of(Schema((Column("value", pa.string()),)), format="text").schema()) == 7


def test_bad_messages_of_a_sample_are_passed_over() -> None:
    assert JsonMessages.discover([b"{", b'{"id": 1}', b"[]"], {}).names == ("id",)
    with pytest.raises(BadData, match="not JSON"):
        JsonMessages.discover([b"{"], {})


def test_fields_up_to_a_limit_become_columns(caplog: pytest.LogCaptureFixture) -> None:
    source = topic_of(ID)
    many = ", ".join(f'"f{i}": 1' for i in range(1_000))
    rows = source.decode(messages(f'{{"id": 1, {many}}}'))
    assert rows.rows.num_rows == 1 and len(source.schema()) == 7
    assert "more than 1000 fields" in caplog.text


def test_new_fields_of_envelopes() -> None:
    source = topic_of(ID, format="debezium")
    wrapped = '{"schema": {}, "payload": {"op": "u", "before": {"id": 1}, "after": {"id": 1, "note": "x"}}}'
    assert source.decode(messages(wrapped)).rows.column("note").to_pylist() == [None, "x"]
    bare = '{"op": "c", "after": {"id": 2, "more": true}, "ts_ms": 5}'
    rows = source.decode(messages(bare)).rows
    assert rows.column("more").to_pylist() == [True] and rows.column("note").to_pylist() == [None]


@pytest.mark.usefixtures("spark")
def test_the_key_of_a_message_is_the_key_of_its_row(kafka: Kafka, tmp_path: Path) -> None:
    compacted, plain, other = (
        new_topic(kafka, **{"cleanup.policy": "compact"}),
        new_topic(kafka),
        new_topic(kafka),
    )
    first = [("a", '{"id": 1}'), ("b", '{"id": 2}'), ("a", '{"id": 3}'), ("b", None)]
    kafka.produce(compacted, first)
    kafka.produce(
        plain, [*first, ("c", '{"id": 4}'), (None, '{"id": 5}'), ("c", "{"), (None, None), ("d", '{"id": 6}')]
    )
    kafka.produce(
        other, [("1", '{"id": 1, "name": "one"}'), (None, '{"id": null, "name": "none"}'), ("2", '{"id": 3}')]
    )
    sql = f"""
        CREATE STREAM s WITH ('connector' = '{uri(kafka, compacted)}');
        CREATE TABLE last AS SELECT id FROM s;
        CREATE TABLE asked (PRIMARY KEY (_key)) AS SELECT * FROM {uri(kafka, plain)};
        CREATE TABLE every AS SELECT * FROM {uri(kafka, plain)};
        CREATE STREAM left_side (id BIGINT) WITH ('connector' = '{uri(kafka, compacted)}');
        CREATE STREAM right_side (id BIGINT, name STRING) WITH ('connector' = '{uri(kafka, other)}');
        CREATE TABLE named (PRIMARY KEY (id)) AS SELECT * FROM right_side;
        CREATE TABLE joined AS SELECT l.id, r.name FROM left_side l JOIN right_side r ON l.id = r.id;
    """  # fmt: skip
    with App(sql, state=tmp_path) as app:
        app.drain(120)
        assert app.sql("SELECT _key, id FROM last").rows() == [{"_key": "a", "id": 3}]
        assert app.table("last").get_record("a") == {"id": 3, "_key": "a"}
        rows = app.sql("SELECT _key, id FROM asked ORDER BY id").rows()
        assert [(r["_key"], r["id"]) for r in rows] == [("a", 3), ("c", 4), ("d", 6)]
        reasons = sorted(r["reason"] for r in app.sql("SELECT reason FROM `asked$errors`").rows())
        assert len(reasons) == 3 and "has no key" in reasons[0]
        assert any('"_key" is NULL, but it is a primary key' in r for r in reasons)
        assert app.sql("SELECT COUNT(*) AS n FROM every").rows() == [{"n": 8}]
        # A NULL in a declared key is put aside, the rest goes on; so do two topics that are joined.
        assert app.sql("SELECT id FROM named ORDER BY id").rows() == [{"id": 1}, {"id": 3}]
        assert app.sql("SELECT COUNT(*) AS n FROM `named$errors`").rows() == [{"n": 1}]
        assert app.sql("SELECT * FROM joined ORDER BY id").rows() == [
            {"id": 1, "name": "one"},
            {"id": 3, "name": None},
        ]
    kafka.produce(compacted, [("a", None), ("z", '{"id": 9}')])
    with App(sql, state=tmp_path) as app:
        app.drain(120)
        assert app.sql("SELECT _key, id FROM last").rows() == [{"_key": "z", "id": 9}]


@pytest.mark.usefixtures("spark")
def test_messages_that_have_keys_are_the_rows_of_a_keyed_table(kafka: Kafka, tmp_path: Path) -> None:
    topic, empty = new_topic(kafka), new_topic(kafka)
    kafka.produce(
        topic,
        [("a", '{"id": 1, "n": 1}'), ("b", '{"id": 2, "n": 2}'), ("a", '{"id": 3, "n": 3}'), ("b", None)],
    )
    sql = f"""
        CREATE STREAM s (id BIGINT, n INT) WITH ('connector' = '{uri(kafka, topic)}');
        CREATE STREAM nothing (id BIGINT) WITH ('connector' = '{uri(kafka, empty)}');
        CREATE TABLE discovered AS SELECT * FROM {uri(kafka, topic)};
        CREATE TABLE declared AS SELECT n FROM s WHERE id < 100;
        CREATE TABLE every AS SELECT id FROM s WITH ('primary.key' = '');
        CREATE TABLE exact (id BIGINT) AS SELECT id FROM s;
        CREATE TABLE nested AS SELECT id FROM (SELECT id FROM s);
        CREATE TABLE of_nothing AS SELECT id FROM nothing;
    """
    with App(sql, state=tmp_path) as app:
        app.drain(120)
        assert app.sql("SELECT * FROM discovered").rows() == [{"id": 3, "n": 3, "_key": "a"}]
        assert app.sql("SELECT * FROM declared").rows() == [{"n": 3, "_key": "a"}]
        assert app.sql("SELECT * FROM exact").rows() == [{"id": 3, "_key": "a"}]
        for table in ("every", "nested"):
            assert app.sql(f"SELECT COUNT(*) AS n FROM {table}").rows() == [{"n": 4}]
        keys = {r["column"] for r in app.sql("DESCRIBE declared").rows() if r["key"]}
        assert keys == {"_key"}
        plan = [r["plan"] for r in app.sql("EXPLAIN CREATE TABLE t AS SELECT n FROM s").rows()]
        assert any("upsert by _key (its first 4 messages have keys)" in line for line in plan)
    # What was found out is kept: one without a key is now put aside, and what was appended is.
    kafka.produce(topic, [(None, '{"id": 5, "n": 5}'), ("c", '{"id": 6, "n": 6}')])
    kafka.produce(empty, [("a", '{"id": 1}'), ("a", '{"id": 2}')])
    with App(sql, state=tmp_path) as app:
        app.sql("CREATE TABLE later AS SELECT id FROM nothing; CREATE TABLE mixed AS SELECT id FROM s")
        app.drain(120)
        for table in ("discovered", "declared"):
            assert app.sql(f"SELECT _key FROM {table} ORDER BY n").rows() == [{"_key": "a"}, {"_key": "c"}]
            (error,) = app.sql(f"SELECT reason FROM `{table}$errors`").rows()
            assert '"_key" is NULL, but it is a primary key' in error["reason"]
        assert app.sql("SELECT id FROM of_nothing ORDER BY id").rows() == [{"id": 1}, {"id": 2}]
        assert app.sql("SELECT id, _key FROM later").rows() == [{"id": 2, "_key": "a"}]
        assert app.sql("SELECT COUNT(*) AS n FROM mixed").rows() == [{"n": 6}]


def test_a_check_needs_no_broker_where_columns_are_declared(kafka: Kafka) -> None:
    options = "'topic.wait.timeout' = '100s'"
    sql = "CREATE STREAM s (id BIGINT) WITH ('connector' = '{}', {}); CREATE TABLE t AS SELECT id FROM s"
    found = check_text(sql.format("kafka://localhost:1/t", options))
    assert not found.errors and len(found.warnings) == 1
    assert "whether the messages have keys" in found.warnings[0].message
    topic = new_topic(kafka)
    kafka.produce(topic, [("a", '{"id": 1}')])
    found = check_text(sql.format(uri(kafka, topic), options) + "; SELECT _key FROM t")
    assert not found.errors and not found.warnings


@pytest.mark.usefixtures("spark")
def test_what_cannot_take_new_columns_goes_on_without(kafka: Kafka, tmp_path: Path) -> None:
    topic = new_topic(kafka)
    kafka.produce(topic, ['{"id": 1, "p": 1}'])
    sql = f"""
        CREATE STREAM s WITH ('connector' = '{uri(kafka, topic)}');
        CREATE STREAM more (id BIGINT, p BIGINT);
        CREATE TABLE wide AS SELECT * FROM s;
        CREATE MATERIALIZED VIEW named (a, b) AS SELECT * FROM wide;
        CREATE MATERIALIZED VIEW same AS SELECT * FROM wide;
        CREATE TABLE changed (PRIMARY KEY (id)) AS SELECT * FROM s;
        UPDATE changed SET p = changed.p + m.p FROM more m WHERE changed.id = m.id;
        CREATE TABLE cached (PRIMARY KEY (id)) WITH ('extension' = 'cache') AS SELECT * FROM s;
        CREATE STREAM derived AS SELECT * FROM s;
        CREATE TABLE of_derived AS SELECT * FROM derived;
    """
    narrow = {"id": "BIGINT", "p": "BIGINT"}
    with App(sql, state=tmp_path) as app:
        app.drain(120)
        kafka.produce(topic, ['{"id": 2, "p": 2, "x": 7}'])
        app.drain(120)
        assert described(app, "wide") == described(app, "same") == narrow | {"x": "BIGINT"}
        assert app.sql("SELECT x FROM same WHERE id = 2").rows() == [{"x": 7}]
        assert described(app, "named") == {"a": "BIGINT", "b": "BIGINT"}
        for name in ("changed", "cached", "derived", "of_derived"):
            assert described(app, name) == narrow, name
        app.send("more", {"id": 2, "p": 10})
        app.drain(120)
        assert app.sql("SELECT id, p FROM changed ORDER BY id").rows() == [
            {"id": 1, "p": 1},
            {"id": 2, "p": 12},
        ]
    with App(sql, state=tmp_path) as app:
        kafka.produce(topic, ['{"id": 3, "p": 3, "x": 8}'])
        app.send("more", {"id": 1, "p": 10})
        app.drain(120)
        assert [r["x"] for r in app.sql("SELECT x FROM wide ORDER BY id").rows()] == [None, 7, 8]
        # Its text is wrong now: it names two columns of three.
        assert "names 2 columns" in str(app.table("named").health_check())
        for name in ("wide", "same", "changed", "of_derived"):
            assert app.sql(f"SELECT COUNT(*) AS n FROM {name}").rows() == [{"n": 3}], name
        assert app.table("cached").get_record(3) is not None
        assert app.sql("SELECT p FROM changed WHERE id = 1").rows() == [{"p": 11}]


def test_only_what_a_statement_needs_of_messages_goes_to_the_processes_that_decode_them() -> None:
    assert flat(("a", "B"), keys=False) == ("value", "partition", "offset")
    assert flat(("a",), keys=True) == ("value", "key", "partition", "offset")
    assert flat(("_key", "_Timestamp"), keys=False) == ("value", "key", "partition", "offset", "timestamp")
    assert flat(("_headers",), keys=False)[-1] == "to_json(headers) AS headers"
    assert len(flat(None, keys=False)) == 6
