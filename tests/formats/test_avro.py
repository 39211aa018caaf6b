"""Avro: values as another library writes and reads them, and bytes that are none."""

from __future__ import annotations

import io
import json
import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from millpond.errors import BadData, InvalidOption
from millpond.formats.avrofit import fitted, refused
from millpond.formats.avroread import read_avro
from millpond.formats.avroschema import parse_avro, to_avro
from millpond.formats.avrowrite import write_avro
from millpond.types import Column, Schema, type_name

EVERYTHING = {
    "type": "record", "name": "Everything", "namespace": "pond.test", "fields": [
        {"name": "id", "type": "long"},
        {"name": "small", "type": ["null", "int"]},
        {"name": "real", "type": "float"},
        {"name": "double", "type": "double"},
        {"name": "yes", "type": "boolean"},
        {"name": "text", "type": ["string", "null"]},
        {"name": "raw", "type": "bytes"},
        {"name": "fixed", "type": {"type": "fixed", "name": "Three", "size": 3}},
        {"name": "side", "type": {"type": "enum", "name": "Side", "symbols": ["BUY", "SELL"]}},
        {"name": "other", "type": ["null", "Side"]},
        {"name": "money", "type": {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 3}},
        {"name": "fee", "type": ["null", {
            "type": "fixed", "name": "Fee", "size": 8, "logicalType": "decimal", "precision": 10, "scale": 2}]},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "millis", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "micros", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]},
        {"name": "tags", "type": {"type": "array", "items": ["null", "string"]}},
        {"name": "nested", "type": ["null", {"type": "record", "name": "Nested", "fields": [
            {"name": "x", "type": "int"},
            {"name": "lists", "type": {"type": "array", "items": {"type": "array", "items": "long"}}}]}]},
        {"name": "map", "type": {"type": "map", "values": "double"}},
        {"name": "lines", "type": {"type": "array", "items": {"type": "record", "name": "Line", "fields": [
            {"name": "sku", "type": "string"}, {"name": "qty", "type": ["null", "int"]}]}}},
    ],
}  # fmt: skip


def a_record(chance: random.Random) -> dict[str, Any]:
    def perhaps(value: Any) -> Any:
        return None if chance.random() < 0.3 else value

    return {
        "id": chance.randrange(-(2**63), 2**63),
        "small": perhaps(chance.randrange(-(2**31), 2**31)),
        "real": chance.randrange(100) / 4,
        "double": chance.random(),
        "yes": chance.random() < 0.5,
        "text": perhaps("é€" * chance.randrange(5)),
        "raw": bytes(chance.randrange(256) for _ in range(chance.randrange(6))),
        "fixed": b"abc",
        "side": chance.choice(["BUY", "SELL"]),
        "other": perhaps("SELL"),
        "money": Decimal(chance.randrange(-(10**20) + 1, 10**20)).scaleb(-3),
        "fee": perhaps(Decimal(chance.randrange(-(10**10) + 1, 10**10)).scaleb(-2)),
        "day": date(1900, 1, 1) + timedelta(days=chance.randrange(90_000)),
        "millis": datetime(1950, 1, 1, tzinfo=UTC) + timedelta(milliseconds=chance.randrange(10**13)),
        "micros": perhaps(
            datetime(1960, 1, 1, tzinfo=UTC) + timedelta(microseconds=chance.randrange(10**16))
        ),
        "tags": [perhaps(str(k)) for k in range(chance.randrange(4))],
        "nested": perhaps(
            {
                "x": chance.randrange(9),
                "lists": [[1] * chance.randrange(3) for _ in range(chance.randrange(3))],
            }
        ),
        "map": {f"k{k}": chance.random() for k in range(chance.randrange(3))},
        "lines": [{"sku": str(k), "qty": perhaps(k)} for k in range(chance.randrange(3))],
    }


def encoded(records: list[dict[str, Any]], schema: Any) -> pa.Array:
    parsed = fastavro.parse_schema(json.loads(json.dumps(schema)))
    found = []
    for record in records:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, parsed, record)
        found.append(out.getvalue())
    return pa.array(found, pa.binary())


def decoded(value: bytes, schema: Any) -> Any:
    """What the other library makes of a value; None if it is not one, or not all of it."""
    data = io.BytesIO(value)
    try:
        found = fastavro.schemaless_reader(data, fastavro.parse_schema(json.loads(json.dumps(schema))), None)
    except Exception:
        return None
    return found if data.tell() == len(value) else None


def plain(rows: pa.RecordBatch) -> list[dict[str, Any]]:
    return [row | {"map": dict(row["map"])} for row in rows.to_pylist()]


def comparable(record: dict[str, Any]) -> dict[str, Any]:
    """NaN is not equal to itself."""
    numbers = {k: repr(record[k]) for k in ("real", "double")}
    return record | numbers | {"map": {k: repr(v) for k, v in record["map"].items()}}


def test_values_of_another_library_are_read() -> None:
    chance = random.Random(1)
    records = [a_record(chance) for _ in range(500)]
    node = parse_avro(json.dumps(EVERYTHING))
    found = read_avro(encoded(records, EVERYTHING), node)
    assert not found.bad and plain(found.rows) == records
    types = {c.name: type_name(c.type) for c in node.columns}
    assert types["money"] == "DECIMAL(20,3)" and types["millis"] == "TIMESTAMP" and types["side"] == "STRING"
    assert (
        types["lines"] == "ARRAY<STRUCT<`sku`: STRING, `qty`: INT>>" and types["map"] == "MAP<STRING, DOUBLE>"
    )


def test_values_are_read_by_another_library() -> None:
    chance = random.Random(2)
    records = [a_record(chance) for _ in range(300)]
    node = parse_avro(json.dumps(EVERYTHING))
    rows = pa.Table.from_pylist([r | {"map": list(r["map"].items())} for r in records], node.columns.arrow())
    values = write_avro(rows, node)
    assert [decoded(v, EVERYTHING) for v in values.to_pylist()] == records
    assert write_avro(rows.slice(100, 50), node).equals(values.slice(100, 50))
    # Without a schema of its own each column may be NULL.
    made = parse_avro(to_avro(node.columns, "9-topic"))
    there_and_back = read_avro(write_avro(rows, made), made)
    assert not there_and_back.bad
    assert pa.Table.from_batches([there_and_back.rows]).cast(rows.schema).equals(rows)
    assert read_avro(write_avro(rows.slice(0, 0), made), made).rows.num_rows == 0


def test_bytes_that_are_no_value_spoil_only_themselves() -> None:
    chance = random.Random(3)
    records = [a_record(chance) for _ in range(1_000)]
    values = []
    for value in encoded(records, EVERYTHING).to_pylist():
        harm, at = chance.randrange(4), chance.randrange(len(value))
        flipped = bytes([value[at] ^ (1 << chance.randrange(8))])
        values.append((value, value[:at], value + b"x", value[:at] + flipped + value[at + 1 :])[harm])
    found = read_avro(pa.array(values, pa.binary()), parse_avro(json.dumps(EVERYTHING)))
    good = [v for at, v in enumerate(values) if at not in set(found.bad)]
    assert 200 < len(good) < 800 and len(found.reasons) == len(found.bad)
    assert [comparable(decoded(v, EVERYTHING)) for v in good] == [comparable(r) for r in plain(found.rows)]
    assert any('it ends too early in field "money"' in r for r in found.reasons)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", "it ends too early"),
        (b"\x80" * 11, "more than 64 bits"),
        (b"\x02\x06", "no such symbol"),
        (b"\x02\x00\xff\xff\xff\xff\x7f", "it ends too early"),
        (b"\x02\x00\x00\x00", "bytes are left"),
    ],
)
def test_why_a_value_is_none(value: bytes, reason: str) -> None:
    schema = {"type": "record", "name": "R", "fields": [
        {"name": "id", "type": "long"}, {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["A"]}},
        {"name": "a", "type": {"type": "array", "items": "long"}}]}  # fmt: skip
    fine = b"\x02\x00\x01\x02\x0e\x00"  # a block with its size
    found = read_avro(pa.array([fine, value, fine], pa.binary()), parse_avro(json.dumps(schema)))
    assert found.bad == [1] and reason in found.reasons[0]
    assert found.rows.to_pylist() == [{"id": 1, "e": "A", "a": [7]}] * 2


def test_unions_of_several_types() -> None:
    schema = {"type": "record", "name": "U", "fields": [
        {"name": "n", "type": ["int", "long"]}, {"name": "u", "type": ["null", "int", "string"]},
        {"name": "z", "type": "null"}]}  # fmt: skip
    records = [{"n": 1, "u": "x", "z": None}, {"n": 2**40, "u": None, "z": None}, {"n": 3, "u": 4, "z": None}]
    found = read_avro(encoded(records, schema), parse_avro(json.dumps(schema))).rows.to_pylist()
    assert [r["n"] for r in found] == [1, 2**40, 3]
    assert [r["u"] for r in found] == [
        {"member0": None, "member1": "x"}, None, {"member0": 4, "member1": None},
    ]  # fmt: skip


def test_one_schema_read_as_another() -> None:
    two = pa.struct([("a", pa.int32()), ("b", pa.int32())])
    rows = pa.RecordBatch.from_pylist(
        [{"ID": 1, "price": Decimal("1.5"), "who": [{"a": 1, "b": 2}]}],
        pa.schema([("ID", pa.int32()), ("price", pa.decimal128(5, 1)), ("who", pa.list_(two))]),
    )  # fmt: skip
    wanted = Schema((
        Column("id", pa.int64()), Column("price", pa.decimal128(10, 2)), Column("more", pa.string()),
        Column("who", pa.list_(pa.field("element", pa.struct([("c", pa.string()), ("a", pa.int64())])))),
    ))  # fmt: skip
    assert fitted(rows, wanted).to_pylist() == [
        {"id": 1, "price": Decimal("1.50"), "more": None, "who": [{"c": None, "a": 1}]}
    ]
    with pytest.raises(BadData, match=r'field "id" is a INT, the column a STRING'):
        fitted(rows, Schema((Column("id", pa.string()),)))
    with pytest.raises(BadData, match=r'field "id" does not fit into TINYINT'):
        fitted(rows.set_column(0, "ID", pa.array([1000], pa.int32())), Schema((Column("id", pa.int8()),)))


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ("{", "not a schema of Avro"),
        ('"long"', "messages are records"),
        ('{"type": "record", "name": "A", "fields": [{"name": "x", "type": "B"}]}', 'there is no type "B"'),
        (
            '{"type": "record", "name": "A", "fields": [{"name": "x", "type": ["null", "A"]}]}',
            "contains itself",
        ),
        ('{"type": "record", "name": "A"}', "fields"),
    ],
)
def test_schemas_that_are_none(schema: str, said: str) -> None:
    with pytest.raises(InvalidOption, match=said):
        parse_avro(schema)


def test_rows_that_a_schema_does_not_take() -> None:
    symbols = {"type": "enum", "name": "E", "symbols": ["A"]}
    fields = [{"name": "id", "type": "long"}, {"name": "e", "type": ["null", symbols]}]
    node = parse_avro(json.dumps({"type": "record", "name": "R", "fields": fields}))
    columns = Schema((Column("id", pa.int64()), Column("e", pa.string())))
    assert refused(columns, node) is None and refused(Schema(columns.columns[:1]), node) is None
    assert 'no column "id"' in (refused(Schema(columns.columns[1:]), node) or "")
    assert 'no field "z"' in (refused(Schema((Column("z", pa.int64()),)), node) or "")
    assert "is a STRING, the field of Avro a BIGINT" in (
        refused(Schema((Column("id", pa.string()),)), node) or ""
    )
    with pytest.raises(BadData, match="it is NULL"):
        write_avro(pa.table({"id": pa.array([None], pa.int64())}), node)
    with pytest.raises(BadData, match='field "e" cannot be written as Avro: it is not one of A'):
        write_avro(pa.table({"id": [1], "e": ["B"]}), node)
