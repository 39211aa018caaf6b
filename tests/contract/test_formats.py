"""What every format of files and of messages promises, over every one there is."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from pyarrow import csv, parquet

from millpond.formats.base import formats
from millpond.formats.jsontext import to_json
from millpond.formats.messages.base import message_formats
from millpond.testing.contracts import FormatContract, FormatPlace, MessagesContract, MessagesPlace
from millpond.testing.contracts.source import rows
from millpond.types import Column, Schema

_AVRO = {"int64": "long", "string": "string"}


def avro_schema(table: pa.Table) -> dict[str, Any]:
    fields = [{"name": f.name, "type": ["null", _AVRO[str(f.type)]]} for f in table.schema]
    return {"type": "record", "name": "r", "fields": fields}


class CsvFiles(FormatPlace):
    name, suffix = "csv", ".csv"

    def write(self, path: Path, table: pa.Table) -> None:
        csv.write_csv(table, path)

    def append(self, path: Path, table: pa.Table) -> None:
        with open(path, "ab") as file:
            csv.write_csv(table, file, csv.WriteOptions(include_header=False))


class JsonLineFiles(FormatPlace):
    name, suffix = "jsonl", ".jsonl"

    def write(self, path: Path, table: pa.Table) -> None:
        path.write_bytes(b"")
        self.append(path, table)

    def append(self, path: Path, table: pa.Table) -> None:
        with open(path, "ab") as file:
            file.writelines(line + b"\n" for line in to_json(table).to_pylist())


class JsonFiles(FormatPlace):
    name, suffix = "json", ".json"

    def write(self, path: Path, table: pa.Table) -> None:
        path.write_text(json.dumps(table.to_pylist()))


class ParquetFiles(FormatPlace):
    name, suffix = "parquet", ".parquet"
    packs = False

    def write(self, path: Path, table: pa.Table) -> None:
        parquet.write_table(table, path, row_group_size=7)


class AvroFiles(FormatPlace):
    name, suffix = "avro", ".avro"
    packs = False

    def write(self, path: Path, table: pa.Table) -> None:
        with open(path, "wb") as file:
            fastavro.writer(file, avro_schema(table), table.to_pylist(), sync_interval=100)


FILES = {place.name: place for place in (CsvFiles, JsonLineFiles, JsonFiles, ParquetFiles, AvroFiles)}


class TestFormats(FormatContract):
    """The suite that ships, over every format of files there is."""

    @pytest.fixture(params=FILES)
    def place(self, request: pytest.FixtureRequest) -> FormatPlace:
        return FILES[request.param]()


class JsonMessage(MessagesPlace):
    name = "json"

    def encode(self, table: pa.Table) -> list[bytes]:
        return [json.dumps(row).encode() for row in table.to_pylist()]


class CsvMessage(MessagesPlace):
    name = "csv"
    discovers = False
    widens = False

    def encode(self, table: pa.Table) -> list[bytes]:
        return [f"{row['id']},{row['name'] or ''}".encode() for row in table.to_pylist()]


class TextMessage(MessagesPlace):
    name = "text"
    schema = Schema((Column("value", pa.string()),))
    rejected = b"\xff"
    widens = False

    def table(self, first: int, count: int) -> pa.Table:
        return pa.table({"value": pa.array([f"é{i}" for i in range(first, first + count)])})

    def encode(self, table: pa.Table) -> list[bytes]:
        return [row["value"].encode() for row in table.to_pylist()]


class RawMessage(MessagesPlace):
    name = "raw"
    schema = Schema((Column("value", pa.binary()),))
    rejected = None
    widens = False

    def table(self, first: int, count: int) -> pa.Table:
        return pa.table({"value": pa.array([b"\xff%d" % i for i in range(first, first + count)])})

    def encode(self, table: pa.Table) -> list[bytes]:
        return [row["value"] for row in table.to_pylist()]


class AvroMessage(MessagesPlace):
    name = "avro"
    widens = False  # by a registry alone: tests/test_kafka_formats.py

    def __init__(self) -> None:
        self._written_with = avro_schema(rows(0, 1))
        self.values = {"avro.schema": json.dumps(self._written_with)}

    def encode(self, table: pa.Table) -> list[bytes]:
        found = []
        for row in table.to_pylist():
            buffer = io.BytesIO()
            fastavro.schemaless_writer(buffer, self._written_with, row)
            found.append(buffer.getvalue())
        return found


class DebeziumMessage(MessagesPlace):
    name = "debezium"

    def encode(self, table: pa.Table) -> list[bytes]:
        return [json.dumps({"before": None, "after": r, "op": "c"}).encode() for r in table.to_pylist()]


MESSAGES = {
    p.name: p for p in (JsonMessage, CsvMessage, TextMessage, RawMessage, AvroMessage, DebeziumMessage)
}


class TestMessages(MessagesContract):
    """The suite that ships, over every format of messages there is."""

    @pytest.fixture(params=MESSAGES)
    def place(self, request: pytest.FixtureRequest) -> MessagesPlace:
        return MESSAGES[request.param]()


def test_every_format_has_a_place() -> None:
    assert set(FILES) == {f.name for f in formats()}
    assert set(MESSAGES) == {m.name for m in message_formats()}
