"""What is in the messages of a topic: Avro from a schema file, Avro and JSON of a registry (a double of one)."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from millpond import App
from millpond.connectors.kafka.sink import KafkaSink
from millpond.connectors.kafka.source import KafkaSource
from millpond.errors import AuthenticationIssue, FileMissing, InvalidOption, NetworkIssue, SourceError
from millpond.formats.wire import header
from millpond.types import Column, Schema, type_name
from tests.formats.test_avro import decoded, encoded
from tests.registry_double import RegistryDouble
from tests.servers import Kafka, Servers
from tests.test_kafka import _until, new_topic, uri
from tests.test_kafka_columns import messages

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "sym", "type": ["null", "string"]},
        {
            "name": "price",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2},
        },
    ],
}
LATER = {**ORDER, "fields": [*ORDER["fields"], {"name": "note", "type": ["null", "string"], "default": None}]}  # type: ignore[misc]
OTHER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "string"}]}


def order(number: int, **more: Any) -> dict[str, Any]:
    return {"id": number, "sym": f"s{number % 3}", "price": Decimal(number) / 4, **more}


def values(numbers: range, schema: Any = ORDER, lead: bytes = b"", **more: Any) -> list[bytes]:
    return [lead + v for v in encoded([order(n, **more) for n in numbers], schema).to_pylist()]


@pytest.fixture
def kafka(servers: Servers) -> Kafka:
    return servers.kafka


@pytest.fixture
def registry() -> Iterator[RegistryDouble]:
    with RegistryDouble(login="mill:pond").running() as double:
        yield double


def of_registry(double: RegistryDouble, name: str = "avro", **more: Any) -> dict[str, Any]:
    return {
        "format": name,
        "schema.registry.url": double.url,
        "schema.registry.basic.auth.user.info": "mill:pond",
        **more,
    }


def columns(source: KafkaSource) -> dict[str, str]:
    return {c.name: type_name(c.type) for c in source.schema() if not c.hidden}


# Avro


@pytest.mark.usefixtures("spark")
def test_avro_from_a_schema_file(kafka: Kafka, tmp_path: Path) -> None:
    file = tmp_path / "order.avsc"
    file.write_text(json.dumps(ORDER))
    topic, target = new_topic(kafka), new_topic(kafka)
    kafka.produce(topic, [*values(range(100)), b"\x02", *values(range(100, 200)), values(range(1))[0] + b"!"])
    avro = f"'format' = 'avro', 'avro.schema' = '{file}'"
    sql = f"""
        CREATE STREAM s WITH ('connector' = '{uri(kafka, topic)}', {avro});
        CREATE TABLE t (PRIMARY KEY (id)) AS SELECT * FROM s;
        INSERT INTO {uri(kafka, target)} SELECT id, upper(sym) AS sym, price FROM s WHERE id < 5 WITH ({avro});
    """
    with App(sql, state=tmp_path / "state") as app:
        app.drain(120)
        assert app.sql("SELECT COUNT(*) AS n, SUM(price) AS total FROM t").rows() == [
            {"n": 200, "total": Decimal("4975.00")}
        ]
        errors = app.sql("SELECT seq, reason, `row` FROM `t$errors` ORDER BY seq").rows()
        assert [e["seq"] for e in errors] == [100, 201]
        assert 'it ends too early in field "sym"' in errors[0]["reason"]
        assert "bytes are left" in errors[1]["reason"] and errors[0]["row"] == '{"_message": "\\u0002"}'
    written = [decoded(v or b"", ORDER) for _, v in kafka.consume(target)]
    assert sorted(w["id"] for w in written) == list(range(5))
    assert {w["sym"] for w in written} == {"S0", "S1", "S2"}


def test_a_schema_that_is_missing_or_wrong(tmp_path: Path) -> None:
    with pytest.raises(FileMissing, match="cannot be read"):
        KafkaSource(
            "kafka://t", {"format": "avro", "avro.schema": str(tmp_path / "none.avsc")}, None
        ).schema()
    with pytest.raises(InvalidOption, match="the format avro needs a schema"):
        KafkaSource("kafka://t", {"format": "avro"}, Schema((Column("id", pa.int64()),))).schema()
    with pytest.raises(InvalidOption, match=r"'avro.schema' is for the format avro"):
        KafkaSource("kafka://t", {"avro.schema": "x"}, None)
    with pytest.raises(InvalidOption, match="for the formats avro and json, and this is csv"):
        KafkaSource("kafka://t", {"format": "csv", "schema.registry.url": "http://x"}, None)
    with pytest.raises(InvalidOption, match="no meaning without"):
        KafkaSource("kafka://t", {"schema.registry.basic.auth.user.info": "a:b"}, None)
    text = json.dumps(OTHER)
    with pytest.raises(InvalidOption, match="is a BIGINT, the field of Avro a STRING"):
        KafkaSink("kafka://t", {"format": "avro", "avro.schema": text}, Schema((Column("id", pa.int64()),)))


def test_avro_as_declared_columns() -> None:
    declared = Schema(
        (Column("PRICE", pa.decimal128(12, 3)), Column("id", pa.int32()), Column("x", pa.string()))
    )
    source = KafkaSource("kafka://t", {"format": "avro", "avro.schema": json.dumps(ORDER)}, declared)
    records = [order(1), order(2) | {"id": 2**40}, order(3)]
    found = source.decode(messages(*encoded(records, ORDER).to_pylist(), None))
    assert found.rows.column("PRICE").to_pylist() == [Decimal("0.250"), Decimal("0.750"), None]
    assert found.rows.column("id").to_pylist() == [1, 3, None] and found.rows.column("x").null_count == 3
    assert found.places.to_pylist() == [0, 2, 3]
    rejected = found.rejected.to_pylist()
    assert rejected[0]["place"] == 1 and "does not fit into INT" in rejected[0]["reason"]


# a registry


def test_several_schemas_in_one_topic(registry: RegistryDouble) -> None:
    first, other = registry.add("t-value", ORDER), registry.add("x-value", OTHER)
    source = KafkaSource("kafka://t", of_registry(registry), None)
    assert columns(source) == {"id": "BIGINT", "sym": "STRING", "price": "DECIMAL(10,2)"}
    later = registry.add("t-value", LATER)
    wrong = header(other) + encoded([{"id": "x"}], OTHER)[0].as_py()
    mixed = [
        *values(range(2), ORDER, header(first)),
        header(99) + b"\x02",
        *values(range(2, 4), LATER, header(later), note="new"),
        b"\x00\x00",
        *values(range(4, 5), ORDER, header(first)),
        wrong,
        b"{}",
    ]
    found = source.decode(messages(*mixed))
    assert found.rows.column("id").to_pylist() == [0, 1, 2, 3, 4]
    # A field of a later schema becomes a column.
    assert found.rows.column("note").to_pylist() == [None, None, "new", "new", None]
    rejected = {s["place"]: s["reason"] for s in found.rejected.to_pylist()}
    assert rejected.keys() == {2, 5, 7, 8}
    assert "has no schema 99" in rejected[2] and "it has no number of a schema" in rejected[5]
    assert 'field "id" is a STRING, the column a BIGINT' in rejected[7]
    # A number that is there is asked for once.
    source.decode(messages(*mixed))
    asked = [a for a in registry.asked if "/ids/" in a and not a.endswith("/99")]
    assert len(asked) == len({*asked})


def test_json_of_a_registry(registry: RegistryDouble) -> None:
    schema = {"type": "object", "properties": {
        "id": {"type": "integer"}, "at": {"oneOf": [{"type": "null"}, {"type": "string", "format": "date-time"}]},
        "tags": {"type": ["array", "null"], "items": {"type": "string"}}, "any": {"type": ["string", "integer"]},
        "who": {"type": "object", "properties": {"name": {"type": "string"}}}}}  # fmt: skip
    number = registry.add("t-value", schema, "JSON")
    source = KafkaSource("kafka://t", of_registry(registry, "json"), None)
    assert columns(source) == {
        "id": "BIGINT", "at": "TIMESTAMP", "tags": "ARRAY<STRING>", "any": "STRING", "who": "STRUCT<`name`: STRING>",
    }  # fmt: skip
    lead = header(number)
    good = [lead + b'{"id": 1, "any": 5}', lead + b'{"id": 3, "more": 1}']
    found = source.decode(
        messages(good[0], b'{"id": 2}', None, header(7) + b"{}", lead + b"{", good[1]),
    )
    assert found.rows.column("id").to_pylist() == [1, None, 3]
    assert found.rows.column("any").to_pylist() == ["5", None, None]
    assert found.rows.column("more").to_pylist() == [None, None, 1]
    assert found.places.to_pylist() == [0, 2, 5]
    assert sorted(s["place"] for s in found.rejected.to_pylist()) == [1, 3, 4]


STREET = {
    "type": "record",
    "name": "Street",
    "namespace": "shop",
    "fields": [{"name": "street", "type": "string"}],
}
BUYER = {"type": "record", "name": "Buyer", "namespace": "shop", "fields": [
    {"name": "name", "type": "string"}, {"name": "lives", "type": "Street"}]}  # fmt: skip
SALE = {"type": "record", "name": "Sale", "namespace": "shop", "fields": [
    {"name": "id", "type": "long"}, {"name": "buyer", "type": ["null", "shop.Buyer"]},
    {"name": "ship", "type": {"type": "array", "items": "Street"}}]}  # fmt: skip
INLINED = {**SALE, "fields": [
    SALE["fields"][0],
    {"name": "buyer", "type": ["null", {**BUYER, "fields": [BUYER["fields"][0], {"name": "lives", "type": STREET}]}]},
    SALE["fields"][2]]}  # fmt: skip


def test_schemas_that_refer_to_others(registry: RegistryDouble) -> None:
    registry.add("streets/of the shop", STREET | {"fields": []})
    registry.add("streets/of the shop", STREET)
    street = ("shop.Street", "streets/of the shop", 2)
    registry.add("buyers", BUYER, refers=[street])
    number = registry.add("t-value", SALE, refers=[("shop.Buyer", "buyers", 1), street])
    key = registry.add("t-key", {**BUYER, "name": "Key"}, refers=[street])
    lost = registry.add("x-value", SALE, refers=[("shop.Buyer", "buyers", 7)])
    source = KafkaSource("kafka://t", of_registry(registry, **{"key.format": "avro"}), None)
    assert columns(source) == {
        "id": "BIGINT", "buyer": "STRUCT<`name`: STRING, `lives`: STRUCT<`street`: STRING>>",
        "ship": "ARRAY<STRUCT<`street`: STRING>>",
    }  # fmt: skip
    home = {"street": "High St"}
    rows = [{"id": 1, "buyer": {"name": "Ann", "lives": home}, "ship": [home, {"street": "Quay"}]},
            {"id": 2, "buyer": None, "ship": []}]  # fmt: skip
    inlined = {**BUYER, "name": "Key", "fields": [BUYER["fields"][0], {"name": "lives", "type": STREET}]}
    keys = [
        header(key) + v
        for v in encoded([r["buyer"] or {"name": "", "lives": home} for r in rows], inlined).to_pylist()
    ]
    bodies = [header(number) + v for v in encoded(rows, INLINED).to_pylist()]
    found = source.decode(messages(*bodies, header(lost) + b"\x02", keys=[*keys, keys[0]]))
    assert found.rows.select(["id", "buyer", "ship"]).to_pylist() == rows
    assert json.loads(found.rows["_key"][0].as_py()) == {"name": "Ann", "lives": home}
    [rejected] = found.rejected.to_pylist()
    assert rejected["place"] == 2 and 'refers to version 7 of "buyers"' in rejected["reason"]
    # Each is asked for once, whoever refers to it.
    source.decode(messages(*bodies, keys=keys))
    assert Counter(a for a in registry.asked if "of%20the%20shop" in a).most_common(1)[0][1] <= 3
    assert "GET /subjects/streets%2Fof%20the%20shop/versions/1" not in registry.asked


def test_json_schemas_that_refer_to_others(registry: RegistryDouble) -> None:
    where = {"type": "object", "properties": {"street": {"type": "string"}, "no": {"$ref": "#/$defs/no"}}}
    street = {"$defs": {"where": where, "no": {"type": "integer"}}}
    buyer = {"$id": "http://shop/buyer.json", "type": "object", "properties": {
        "name": {"type": "string"}, "lives": {"$ref": "street.json#/$defs/where"}, "knows": {"$ref": "#"}}}  # fmt: skip
    sale = {"type": "object", "properties": {"id": {"type": "integer"}, "buyer": {"$ref": "http://shop/buyer.json"},
            "tags": {"type": "array", "items": {"$ref": "#/definitions/tag~1s"}}, "lost": {"$ref": "nowhere.json"}},
            "definitions": {"tag/s": {"type": "boolean"}}}  # fmt: skip
    registry.add("streets", street, "JSON")
    registry.add("buyers", buyer, "JSON", refers=[("http://shop/street.json", "streets", 1)])
    registry.add("t-value", sale, "JSON", refers=[("http://shop/buyer.json", "buyers", 1)])
    assert columns(KafkaSource("kafka://t", of_registry(registry, "json"), None)) == {
        "id": "BIGINT",
        "buyer": "STRUCT<`name`: STRING, `lives`: STRUCT<`street`: STRING, `no`: BIGINT>, `knows`: STRING>",
        "tags": "ARRAY<BOOLEAN>", "lost": "STRING",
    }  # fmt: skip


def test_schemas_that_refer_in_a_circle(registry: RegistryDouble) -> None:
    registry.add("a", STREET, refers=[("shop.Street", "t-value", 1)])
    registry.add("t-value", SALE, refers=[("shop.Street", "a", 1)])
    with pytest.raises(InvalidOption, match='there is no type "shop'):
        KafkaSource("kafka://t", of_registry(registry), None).schema()


def test_keys_of_a_registry(registry: RegistryDouble) -> None:
    two = {
        "type": "record",
        "name": "K",
        "fields": [{"name": "a", "type": "long"}, {"name": "b", "type": "string"}],
    }
    plain, record, value = (
        registry.add("t-key", "long"),
        registry.add("t-key", two),
        registry.add("t-value", ORDER),
    )
    good = values(range(5), ORDER, header(value))
    keys = [
        header(plain) + b"\x0e",
        header(record) + encoded([{"a": 1, "b": "x"}], two)[0].as_py(),
        None,
        header(99) + b"\x00",
        header(plain) + b"\x80",
        b"text",
    ]
    source = KafkaSource("kafka://t", of_registry(registry, **{"key.format": "avro"}), None)
    found = source.decode(messages(*good, None, keys=keys))
    assert found.rows.column("_key").to_pylist() == ["7", '{"a":1,"b":"x"}', None]
    assert found.rows.column("id").to_pylist() == [0, 1, 2]
    rejected = {s["place"]: s["reason"] for s in found.rejected.to_pylist()}
    assert "its key: the registry of schemas" in rejected[3] and "it ends too early" in rejected[4]
    assert "it has no number of a schema" in rejected[5]
    of_json = KafkaSource("kafka://t", of_registry(registry, **{"key.format": "json"}), None)
    found = of_json.decode(
        messages(*good[:3], keys=[header(plain) + b'{"a": 1}', None, header(plain) + b"\xff"])
    )
    assert found.rows.column("_key").to_pylist() == ['{"a": 1}', None]
    assert found.rejected.to_pylist()[0]["reason"] == "its key: not UTF-8"


def test_keys_of_a_schema_file() -> None:
    given = {"key.format": "avro", "avro.key.schema": '"string"'}
    source = KafkaSource("kafka://t", given, Schema((Column("id", pa.int64()),)))
    found = source.decode(messages('{"id": 1}', "{", '{"id": 3}', keys=[b"\x02a", b"\x04b", b"\x02c!"]))
    assert found.rows.to_pylist()[0]["_key"] == "a" and found.rows.num_rows == 1
    assert sorted(s["place"] for s in found.rejected.to_pylist()) == [1, 2]
    with pytest.raises(InvalidOption, match="keys in avro need a schema"):
        KafkaSource("kafka://t", {"key.format": "avro"}, None)
    with pytest.raises(InvalidOption, match=r"'avro.key.schema' is for"):
        KafkaSource("kafka://t", {"avro.key.schema": '"string"'}, None)


@pytest.mark.parametrize(
    ("kind", "keys", "texts"),
    [
        (
            pa.struct([("a", pa.int64()), ("b", pa.string())]),
            [{"a": 1, "b": "x"}, None],
            ['{"a":1,"b":"x"}', None],
        ),
        (pa.string(), ["x", None, "y"], ["x", None, "y"]),
        (pa.int32(), [7], ["7"]),
    ],
)
def test_keys_are_written_in_avro(
    registry: RegistryDouble, kind: pa.DataType, keys: list[Any], texts: list[Any]
) -> None:
    """What is written is read back, with a registry and by a schema."""
    columns = Schema((Column("_key", kind), Column("id", pa.int64())))
    rows = pa.table({"_key": pa.array(keys, kind), "id": pa.array(range(len(keys)), pa.int64())})
    sink = KafkaSink("kafka://t", of_registry(registry, **{"key.format": "avro"}), columns)
    written = sink.encode(rows)["key"].to_pylist()
    values_ = sink.encode(rows)["value"].to_pylist()
    source = KafkaSource("kafka://t", of_registry(registry, **{"key.format": "avro"}), None)
    found = source.decode(messages(*values_, keys=written))
    assert found.rows.column("_key").to_pylist() == texts
    schema = registry.schemas[2]["schema"]  # the first is that of values
    plain = {"key.format": "avro", "avro.key.schema": schema}
    alone = KafkaSink("kafka://t", plain, columns).encode(rows)
    assert alone["key"].to_pylist() == [None if k is None else k[5:] for k in written]


def test_keys_in_avro_that_cannot_be_written() -> None:
    ids = Schema((Column("id", pa.int64()),))
    with pytest.raises(InvalidOption, match="needs a key"):
        KafkaSink("kafka://t", {"key.format": "avro"}, ids)
    with pytest.raises(InvalidOption, match=r"'avro.key.schema' is for"):
        KafkaSink("kafka://t", {"avro.key.schema": '"string"'}, ids)


def test_what_a_registry_may_answer(registry: RegistryDouble, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r'has no subject "t-value"') as missing:
        KafkaSource("kafka://t", of_registry(registry), None).schema()
    assert missing.value.retryable and "topic.wait.timeout" in str(missing.value)
    login = "schema.registry.basic.auth.user.info"
    with pytest.raises(AuthenticationIssue) as refused:
        KafkaSource("kafka://t", of_registry(registry, **{login: "mill:wrong"}), None).schema()
    assert "wrong" not in str(refused.value)
    registry.add("t-value", {"type": "object"}, "JSON")
    with pytest.raises(InvalidOption, match="is JSON, and 'format' is avro"):
        KafkaSource("kafka://t", of_registry(registry), None).schema()
    registry.down = True
    with pytest.raises(NetworkIssue, match="answers 503: no leader"):
        KafkaSource("kafka://t", of_registry(registry), None).schema()
    nobody = of_registry(registry) | {"schema.registry.url": "http://user:secret@127.0.0.1:1"}
    with pytest.raises(NetworkIssue, match=r"http://127\.0\.0\.1:1 does not answer") as gone:
        KafkaSource("kafka://t", nobody, None).schema()
    assert "secret" not in str(gone.value)


def test_a_registry_that_refuses_what_is_written(registry: RegistryDouble) -> None:
    sink = KafkaSink("kafka://t", of_registry(registry), Schema((Column("id", pa.int64()),)))
    registry.refuse = "incompatible with an earlier schema"
    with pytest.raises(SourceError, match="refuses the schema: incompatible"):
        sink.encode(pa.table({"id": [1]}))
    registry.refuse = None
    encoded_rows = sink.encode(pa.table({"id": [1]}))["value"].to_pylist()
    assert encoded_rows == [header(1) + b"\x02\x02"]
    assert json.loads(registry.schemas[1]["schema"])["fields"][0]["type"] == ["null", "long"]


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("name", ["avro", "json"])
def test_through_a_registry(kafka: Kafka, registry: RegistryDouble, name: str, monkeypatch: Any) -> None:
    topic = new_topic(kafka)
    monkeypatch.setenv("LOGIN", "mill:pond")
    options = f"""'format' = '{name}', 'schema.registry.url' = '{registry.url}',
        'schema.registry.basic.auth.user.info' = '${{LOGIN}}'"""
    with App(f"""
        CREATE STREAM s (id BIGINT, tags ARRAY<STRING>, price DECIMAL(10,2), at TIMESTAMP);
        INSERT INTO {uri(kafka, topic)} SELECT id AS _key, * FROM s WITH ({options});
    """) as app:
        rows = [
            {"id": 1, "tags": ["a", None], "price": Decimal("1.25"), "at": "2024-01-02T03:04:05.000006Z"},
            {"id": 2, "tags": None, "price": None, "at": None},
        ]
        app.send("s", rows)
        app.drain(120)
        assert "pond" not in str(app.sql("SHOW QUERIES").rows())
        app.sql(f"CREATE TABLE t AS SELECT *, _key AS key FROM {uri(kafka, topic)} WITH ({options})")
        app.drain(120)
        found = app.sql("SELECT * FROM t ORDER BY id").rows()
        assert [(f["id"], f["tags"], f["key"]) for f in found] == [(1, ["a", None], "1"), (2, None, "2")]
        assert (
            found[0]["price"] == (Decimal("1.25") if name == "avro" else 1.25) and found[1]["price"] is None
        )
        assert found[0]["at"].isoformat() == "2024-01-02T03:04:05.000006+00:00"
        # A registry that does not answer is tried again.
        registry.down = True
        number = registry.add(f"{topic}-value", *_later(name))
        kafka.produce(topic, [("3", header(number) + _one(name))])
        _until(lambda: any(q["state"] == "retrying" for q in app.sql("SHOW QUERIES").rows()))
        registry.down = False
        app.drain(120)
        assert app.sql("SELECT more, price FROM t WHERE id = 3").rows() == [{"more": "x", "price": None}]


def _later(name: str) -> tuple[Any, str]:
    if name == "json":
        return {"type": "object", "properties": {"id": {"type": "integer"}}}, "JSON"
    fields = [{"name": "id", "type": "int"}, {"name": "more", "type": "string"}]
    return {"type": "record", "name": "Later", "fields": fields}, "AVRO"


def _one(name: str) -> bytes:
    record = {"id": 3, "more": "x"}
    return json.dumps(record).encode() if name == "json" else encoded([record], _later(name)[0])[0].as_py()  # type: ignore[no-any-return]
