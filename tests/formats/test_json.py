from __future__ import annotations

import gzip
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from millpond.errors import BadData
from millpond.formats import blocks
from millpond.formats.base import find_format
from millpond.formats.messages.json import JsonMessages
from millpond.types import TIMESTAMP, TIMESTAMP_NTZ, Column, Schema

Rows = list[dict[str, Any]]
ELEMENT = pa.field("element", pa.int64())


def schema(**columns: pa.DataType) -> Schema:
    return Schema(tuple(Column(n, t) for n, t in columns.items()))


def read(path: Path, wanted: Schema | None = None) -> Rows:
    form = find_format(str(path))()
    given = wanted or form.discover(str(path))
    found = list(form.read(str(path), given, declared=wanted is not None))
    assert all(b.schema == given.arrow() for b in found)
    return [row for batch in found for row in batch.to_pylist(maps_as_pydicts="strict")]


def discover(path: Path) -> Schema:
    return find_format(str(path))().discover(str(path))


@pytest.fixture(params=["lines", "array"])
def write(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Writes records, given as texts, as JSON lines or as an array."""

    def to(*texts: str) -> Path:
        if request.param == "lines":
            path = tmp_path / "t.jsonl"
            path.write_text("".join(t + "\n" for t in texts))
        else:
            path = tmp_path / "t.json"
            path.write_text("[\n" + ",\n".join(texts) + "\n]")
        return path

    return to


@pytest.mark.parametrize(
    ("texts", "dtype"),
    [
        (["1", "-2"], pa.int64()),
        (["9223372036854775807", "null"], pa.int64()),
        (["1", "9223372036854775808"], pa.decimal128(38, 0)),
        (["1", "1.5"], pa.decimal128(38, 19)),
        (["1e3"], pa.decimal128(38, 19)),
        (["1" * 5000], pa.float64()),
        (["true"], pa.bool_()),
        (['"2024-01-01"'], pa.string()),
        (["1", '"x"'], pa.string()),
        (["null"], pa.null()),
        (["[1]", "[]", "null"], pa.list_(ELEMENT)),
        (["[1, null, 2.5]"], pa.list_(pa.field("element", pa.decimal128(38, 19)))),
        (['{"x": 1}', '{"y": "a"}'], pa.struct([("x", pa.int64()), ("y", pa.string())])),
        (
            ['[{"x": 1}]', '[{"x": 2.5}]'],
            pa.list_(pa.field("element", pa.struct([("x", pa.decimal128(38, 19))]))),
        ),
        (['{"x": 1}', "[1]"], pa.string()),
    ],
)
def test_discovered_types(write: Any, texts: list[str], dtype: pa.DataType) -> None:
    found = discover(write(*(f'{{"k": 1, "v": {t}}}' for t in texts)))
    assert [(c.name, c.type) for c in found] == [("k", pa.int64()), ("v", dtype)]


def test_values_of_every_declared_type(write: Any) -> None:
    path = write(
        '{"a": -128, "b": 1.5, "c": false, "d": "2024-12-31", "e": "2024-01-01T02:00:00+02:00", '
        '"f": "2024-01-01 00:00:00", "g": "aGk=", "h": {"x": 1}, "i": [[1], null], "j": {"k": {"l": "m"}}}',
        "{}",
    )
    wanted = schema(
        a=pa.int8(),
        b=pa.float32(),
        c=pa.bool_(),
        d=pa.date32(),
        e=TIMESTAMP,
        f=TIMESTAMP_NTZ,
        g=pa.binary(),
        h=pa.map_(pa.string(), pa.int64()),
        i=pa.list_(pa.field("element", pa.list_(ELEMENT))),
        j=pa.struct([("k", pa.struct([("l", pa.string())]))]),
    )
    rows = read(path, wanted)
    assert list(rows[0].values()) == [
        -128,
        1.5,
        False,
        date(2024, 12, 31),
        datetime(2024, 1, 1, tzinfo=UTC),
        datetime(2024, 1, 1),
        b"hi",
        {"x": 1},
        [[1], None],
        {"k": {"l": "m"}},
    ]
    assert set(rows[1].values()) == {None}


DIGITS = "1234567890123456789012345678.0123456789"


@pytest.mark.parametrize("slow", [False, True])
def test_decimals_are_exact(write: Any, slow: bool) -> None:
    path = write(*(f'{{"v": {t}}}' for t in (DIGITS, f'"{DIGITS}"', "0.1", "1e2", "-7", "null")))
    wanted = schema(v=pa.decimal128(38, 10), m=pa.map_(pa.string(), pa.string()))
    rows = read(path, wanted if slow else Schema(wanted.columns[:1]))
    expected = [Decimal(t) for t in (DIGITS, DIGITS, "0.1", "100", "-7")]
    assert [r["v"] for r in rows] == [*expected, None]


def test_nested_decimals_are_exact(write: Any) -> None:
    dtype = pa.struct([("x", pa.list_(pa.field("element", pa.decimal128(38, 10))))])
    assert read(write(f'{{"v": {{"x": [{DIGITS}]}}}}'), schema(v=dtype)) == [{"v": {"x": [Decimal(DIGITS)]}}]


@pytest.mark.parametrize(
    ("text", "dtype"),
    [
        ("1.005", pa.decimal128(10, 2)),
        ("123456789.50", pa.decimal128(10, 2)),
        ("4", pa.decimal128(38, 38)),
        ("69039", pa.decimal128(38, 35)),
        ("1e-80", pa.decimal128(5, 2)),
        ("6.06e-256", pa.decimal128(28, 21)),
        ("1e-2147483647", pa.decimal128(38, 2)),
        ('"1e-2147483647"', pa.decimal128(38, 2)),
        ("[4]", pa.list_(pa.field("element", pa.decimal128(38, 38)))),
        ("128", pa.int8()),
        ("9223372036854775808", pa.int64()),
        ("1.0", pa.int64()),
        ('"1"', pa.int64()),
        ("1", pa.bool_()),
        ('"2024-13-01"', pa.date32()),
        ('""', TIMESTAMP),
        ("5", TIMESTAMP),
        ("[1]", pa.struct([("x", pa.int64())])),
        ('{"x": "a"}', pa.struct([("x", pa.int64())])),
        ('[1, "a"]', pa.list_(ELEMENT)),
        ('"%"', pa.binary()),
        ('"\\ud800"', pa.string()),
        ('{"a": 1, "": 2}', pa.map_(pa.int64(), pa.int64())),
    ],
)
def test_misfits_name_file_place_column_and_value(write: Any, text: str, dtype: pa.DataType) -> None:
    path = write('{"v": null}', f'{{"v": {text}}}')
    with pytest.raises(BadData) as e:
        read(path, schema(v=dtype))
    where = "line 2" if path.suffix == ".jsonl" else "record 2"
    assert f'file "{path}", {where}: "' in e.value.message
    assert 'in column "v" is not a ' in e.value.message


def test_other_values_in_a_string_column_are_their_text(write: Any) -> None:
    path = write(*(f'{{"v": {t}}}' for t in ('"a"', "1.50", "true", '{"x": [1, "é", null]}', "null")))
    assert [r["v"] for r in read(path)] == ["a", "1.50", "true", '{"x":[1,"é",null]}', None]


def test_a_late_misfit_of_a_discovered_type_says_to_declare(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text("".join(f'{{"id": {i}, "v": {i}}}\n' for i in range(200_000)) + '{"id": 1, "v": 1.5}\n')
    with pytest.raises(BadData, match=r'line 200001: "1\.5" in column "v" is not a BIGINT') as e:
        read(path)
    assert "declare the columns" in (e.value.hint or "")


def test_names_ignore_case_and_extra_fields_are_left_out(write: Any) -> None:
    path = write('{"ID": 1, "x": 2}', '{"id": 3}', '{"Id": 5, "y": {"z": []}}')
    assert read(path, schema(id=pa.int64(), gone=pa.string())) == [{"id": i, "gone": None} for i in (1, 3, 5)]
    assert [r["ID"] for r in read(path)] == [1, 3, 5]


def test_names_ignore_case_in_every_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "BLOCK", 50)
    path = tmp_path / "t.jsonl"
    path.write_text("".join(f'{{"{"id" if i % 5 else "ID"}": {i}}}\n' for i in range(100)))
    assert [r["iD"] for r in read(path, schema(iD=pa.int64()))] == list(range(100))


def test_unicode_and_escapes(write: Any) -> None:
    text = '漢字 😀 "q" \\ \n \t \u0000 \''
    path = write(json.dumps({"v": text}), json.dumps({"v": text}, ensure_ascii=False))
    assert [r["v"] for r in read(path)] == [text, text]


def test_empty_files(tmp_path: Path) -> None:
    wanted = schema(a=pa.int64())
    for name, content in [
        ("a.jsonl", ""),
        ("b.jsonl", "\n \n"),
        ("c.json", ""),
        ("d.json", "[]"),
        ("e.json", " [ \n ] "),
    ]:
        path = tmp_path / name
        path.write_text(content)
        assert len(discover(path)) == 0
        assert read(path, wanted) == []


def test_byte_order_mark_blank_lines_and_no_last_line_break(tmp_path: Path) -> None:
    path = tmp_path / "t.ndjson"
    path.write_bytes(b'\xef\xbb\xbf{"a": 1}\r\n\r\n  \n{"a": 2}')
    assert read(path) == [{"a": 1}, {"a": 2}]


def test_a_json_file_is_seen_by_its_content(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    for content in (
        '{"a": 1}\n{"a": 2}\n',
        '[{"a": 1}, {"a": 2}]',
        '\n\n [\n{"a":\n1}\n,{"a": 2}]\n',
    ):
        path.write_text(content)
        assert read(path) == [{"a": 1}, {"a": 2}]
    for content in ('{"a": 1}', '{\n  "a": 1\n}\n', '\ufeff{"a": 1}\n'):
        path.write_text(content)
        assert read(path) == [{"a": 1}]


def test_discovery_of_a_large_array_takes_a_sample(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text(json.dumps([{"a": i, "b": "x" * 50} for i in range(30_000)]))
    assert path.stat().st_size > 1 << 20
    assert [c.type for c in discover(path)] == [pa.int64(), pa.string()]
    assert [r["a"] for r in read(path)] == list(range(30_000))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", '{"a": 1}\n{"a": \n', "line 2: not JSON"),
        ("b.jsonl", '{"a": 1}\n[1]\n', "line 2: not a JSON object"),
        ("c.json", '[{"a": 1}, 5]', "record 2: not a JSON object"),
        ("d.json", '[{"a": 1}, null]', "record 2: not a JSON object"),
        ("e.json", '[{"a": 1}', "is not JSON"),
        ("g.jsonl", '{"a": ' + "[" * 100_000, "line 1: nested deeper than 100 levels"),
        ("h.json", '[{"a": ' + "[" * 100_000, "is nested deeper than 100 levels"),
        ("f.json", "5", "record 1: not a JSON object"),
    ],
)
def test_broken_files(tmp_path: Path, name: str, content: str, message: str) -> None:
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(BadData, match=message):
        read(path, schema(a=pa.int64()))
    if '"a": 1}' in content and content != '[{"a": 1}':
        assert discover(path) == schema(a=pa.int64())
    else:
        with pytest.raises(BadData, match=message):
            discover(path)


def test_text_that_is_not_utf8(tmp_path: Path) -> None:
    for name in ("t.jsonl", "t.json"):
        path = tmp_path / name
        path.write_bytes(b'{"v": "a"}\n{"v": "\xff"}\n')
        with pytest.raises(BadData, match="utf-8"):
            read(path, schema(v=pa.string()))


def test_lines_longer_than_a_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "BLOCK", 64)
    rows = [{"id": i, "s": "x" * (i * 7 % 300)} for i in range(200)]
    path = tmp_path / "t.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    assert read(path) == rows


def test_packed_files(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"a": 1}\n'))
    assert read(path) == [{"a": 1}]
    path = tmp_path / "t.json.zst"
    path.write_bytes(pa.compress(b'[{"a": 1}]', "zstd", asbytes=True))
    assert read(path) == [{"a": 1}]


def test_new_fields_of_messages_by_any_spelling() -> None:
    """Each is told once: what came up again comes up again."""
    found = JsonMessages(Schema((Column("id", pa.int64()),)), {}, watch=True)
    texts = ['{"id": 1, "größe": 2}', '{"id": 1, "gr\\u00f6\\u00dfe2": 3}']
    values = pa.array([t.encode() for t in texts], pa.binary())
    found.decode(values)
    assert found.fresh(values).names == ("größe", "größe2")
    assert found.fresh(values).names == ()
