from __future__ import annotations

import gzip
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from millpond.errors import BadData, InvalidOption, NotSupported
from millpond.formats import blocks
from millpond.formats.csv import Csv
from millpond.types import TIMESTAMP, TIMESTAMP_NTZ, Column, Schema

Rows = list[dict[str, Any]]


def schema(**columns: pa.DataType) -> Schema:
    return Schema(tuple(Column(n, t) for n, t in columns.items()))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "t.csv"


def read(path: Path, wanted: Schema | None = None, **values: Any) -> Rows:
    form = Csv({k.replace("_", "."): v for k, v in values.items()})
    given = wanted or form.discover(str(path))
    found = list(form.read(str(path), given, declared=wanted is not None))
    assert all(b.schema == given.arrow() for b in found)
    return [row for batch in found for row in batch.to_pylist()]


def types(path: Path, **values: Any) -> list[pa.DataType]:
    return [c.type for c in Csv(values).discover(str(path))]


@pytest.mark.parametrize(
    ("texts", "dtype"),
    [
        (["1", "-2", "+3", "007"], pa.int64()),
        (["9223372036854775807"], pa.int64()),
        (["9223372036854775808"], pa.decimal128(38, 0)),
        (["9" * 39], pa.string()),
        (["12.50", "1"], pa.decimal128(38, 19)),
        (["1e3", "NaN", "-Infinity", ".5", "5."], pa.float64()),
        (["true", "FALSE"], pa.bool_()),
        (["2024-02-29"], pa.date32()),
        (["2023-02-29"], pa.string()),
        (["2024-01-01 10:00:00", "2024-01-01T10:00:00.123456789Z"], TIMESTAMP),
        (["2024-01-01", "2024-01-01 10:00:00+02:00"], TIMESTAMP),
        (["0x1F"], pa.string()),
        (["10:00"], pa.string()),
        (["1", "x"], pa.string()),
        (["nan"], pa.string()),
        (["", ""], pa.null()),
        (["", "5"], pa.int64()),
    ],
)
def test_discovered_types(path: Path, texts: list[str], dtype: pa.DataType) -> None:
    path.write_text("k,v\n" + "".join(f"1,{t}\n" for t in texts))
    assert types(path) == [pa.int64(), dtype]


def test_values_of_every_declared_type(path: Path) -> None:
    path.write_text(
        "a,b,c,d,e,f,g,h,i,j\n"
        "-128,32767,2147483647,-9223372036854775808,1.5,0.1,true,2024-12-31,2024-01-01 00:00:00.5,äöü\n"
    )
    wanted = schema(
        a=pa.int8(),
        b=pa.int16(),
        c=pa.int32(),
        d=pa.int64(),
        e=pa.float32(),
        f=pa.float64(),
        g=pa.bool_(),
        h=pa.date32(),
        i=TIMESTAMP_NTZ,
        j=pa.binary(),
    )
    assert list(read(path, wanted)[0].values()) == [
        -128,
        32767,
        2147483647,
        -(2**63),
        1.5,
        0.1,
        True,
        date(2024, 12, 31),
        datetime(2024, 1, 1, 0, 0, 0, 500000),
        "äöü".encode(),
    ]


def test_decimals_keep_38_digits(path: Path) -> None:
    path.write_text("v\n12345678901234567890123456789012345.678\n-0.100\n1e2\n 5 \n")
    expected = ["12345678901234567890123456789012345.678", "-0.100", "100.000", "5.000"]
    assert [r["v"] for r in read(path, schema(v=pa.decimal128(38, 3)))] == [Decimal(x) for x in expected]


@pytest.mark.parametrize("text", ["1.005", "123456789.50", "abc", "1,5"])
def test_decimals_that_do_not_fit(path: Path, text: str) -> None:
    path.write_text(f'v\n1.00\n"{text}"\n')
    with pytest.raises(BadData, match=f'line 3: "{text}" in column "v" is not a DECIMAL'):
        read(path, schema(v=pa.decimal128(10, 2)))


@pytest.mark.parametrize(
    ("text", "dtype"),
    [
        ("9" * 39, pa.decimal128(38, 0)),
        ("4", pa.decimal128(38, 38)),
        ("69039", pa.decimal128(38, 35)),
        ("1e-80", pa.decimal128(5, 2)),
        ("1e-2147483647", pa.decimal128(38, 2)),
        ("1e999999999999999999999", pa.decimal128(38, 2)),
    ],
)
def test_decimals_that_arrow_would_wrap_around(path: Path, text: str, dtype: pa.DataType) -> None:
    path.write_text(f"v\n{text}\n")
    with pytest.raises(BadData, match="is not a DECIMAL"):
        read(path, schema(v=dtype))


def test_timestamps_with_and_without_zones_are_utc(path: Path) -> None:
    path.write_text(
        "v\n2024-01-01 10:00:00\n2024-01-01T10:00:00+02:00\n2024-01-01T10:00:00.123456789Z\n"
        "2024-01-01\n1969-12-31 23:59:59.999999\n\n0001-01-01 00:00:00Z\n9999-12-31T23:59:59.999999-00:00\n"
    )
    wanted = [
        datetime(2024, 1, 1, 10, tzinfo=UTC),
        datetime(2024, 1, 1, 8, tzinfo=UTC),
        datetime(2024, 1, 1, 10, 0, 0, 123456, tzinfo=UTC),
        datetime(2024, 1, 1, tzinfo=UTC),
        datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
        datetime(1, 1, 1, tzinfo=UTC),
        datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    ]
    assert [r["v"] for r in read(path)] == wanted
    assert [r["v"] for r in read(path, schema(v=TIMESTAMP))] == wanted


def test_null_is_not_the_empty_string(path: Path) -> None:
    path.write_text('k,s,n\n1,,\n2,"",""\n3,NULL,4\n')
    wanted = schema(k=pa.int64(), s=pa.string(), n=pa.int32())
    assert [(r["s"], r["n"]) for r in read(path, wanted)] == [(None, None), ("", None), ("NULL", 4)]
    assert [r["s"] for r in read(path, wanted, null_value="NULL")] == ["", "", None]


def test_quotes_and_line_breaks_in_values(path: Path) -> None:
    path.write_bytes('id,"na\nme"\r\n1,"a ""b"", c\r\nd"\r\n2,漢字 😀\r\n'.encode())
    assert read(path) == [{"id": 1, "na\nme": 'a "b", c\r\nd'}, {"id": 2, "na\nme": "漢字 😀"}]


def test_other_delimiters_quotes_and_escapes(path: Path) -> None:
    path.write_text("a;b\n'x;\\'y';1\n")
    assert read(path, delimiter=";", quote="'", escape="\\") == [{"a": "x;'y", "b": 1}]
    path.write_text('a\tb\n"x\t1\n')
    assert read(path, delimiter="\\t", quote="") == [{"a": '"x', "b": 1}]
    with pytest.raises(InvalidOption, match='"delimiter" cannot be "\\|\\|"'):
        Csv({"delimiter": "||"})


def test_tsv_is_separated_by_tabs(tmp_path: Path) -> None:
    path = tmp_path / "t.tsv"
    path.write_text("a\tb\n1\tx,y\n")
    assert read(path) == [{"a": 1, "b": "x,y"}]


def test_byte_order_mark_and_blank_lines(path: Path) -> None:
    path.write_bytes(b"\xef\xbb\xbf\n\nid,x\n\n1,2\n\n\n3,4")
    assert read(path) == [{"id": 1, "x": 2}, {"id": 3, "x": 4}]


def test_empty_files(path: Path) -> None:
    wanted = schema(a=pa.int64())
    path.write_text("")
    assert types(path) == [] and read(path, wanted) == []
    path.write_text("\n\n")
    assert types(path) == [] and read(path, wanted) == []
    for header in ("a,b", "a,b\n", "a,b\r\n\r\n"):
        path.write_text(header)
        assert types(path) == [pa.null(), pa.null()] and read(path, wanted) == []


def test_columns_are_matched_by_name_ignoring_case(path: Path) -> None:
    path.write_text("B,extra,A\n1,2,3\n")
    assert read(path, schema(a=pa.int64(), b=pa.string(), gone=pa.date32())) == [
        {"a": 3, "b": "1", "gone": None}
    ]


def test_without_header_columns_are_matched_by_position(path: Path) -> None:
    path.write_text("1,x\n2,y\n")
    assert read(path, header=False) == [{"_c0": 1, "_c1": "x"}, {"_c0": 2, "_c1": "y"}]
    assert read(path, schema(k=pa.int8()), header=False) == [{"k": 1}, {"k": 2}]
    wide = schema(k=pa.int8(), v=pa.string(), more=pa.string())
    assert read(path, wide, header=False)[1] == {"k": 2, "v": "y", "more": None}


def test_a_header_without_any_declared_column_is_an_error(path: Path) -> None:
    path.write_text("1,x\n2,y\n")
    with pytest.raises(BadData, match="none of the columns k, v") as e:
        read(path, schema(k=pa.int8(), v=pa.string()))
    assert "'header' = 'false'" in (e.value.hint or "")


def test_two_columns_of_one_name(path: Path) -> None:
    path.write_text("a,A,b\n1,2,3\n")
    with pytest.raises(BadData, match='two columns "A"'):
        types(path)
    assert read(path, schema(b=pa.int64())) == [{"b": 3}]


@pytest.mark.parametrize(("text", "dtype"), [("128", pa.int8()), ("1.0", pa.int64()), ("0x1F", pa.int64())])
def test_misfits_name_file_line_column_and_value(path: Path, text: str, dtype: pa.DataType) -> None:
    path.write_text(f'note,v\n"two\nlines",1\n\nx,{text}\n')
    with pytest.raises(BadData) as e:
        read(path, schema(v=dtype))
    assert f'file "{path}", line 5: "{text}" in column "v" is not a ' in e.value.message


def test_a_late_misfit_of_a_discovered_type_says_to_declare(path: Path) -> None:
    path.write_text("id,v\n" + "".join(f"{i},{i}\n" for i in range(300_000)) + "300000,1.5\n")
    with pytest.raises(BadData, match=r'line 300002: "1\.5" in column "v" is not a BIGINT') as e:
        read(path)
    assert "declare the columns" in (e.value.hint or "")
    assert read(path, schema(id=pa.int64(), v=pa.decimal128(9, 1)))[-1] == {"id": 300000, "v": Decimal("1.5")}


@pytest.mark.parametrize("row", ["1", "1,2,3"])
def test_rows_of_another_width(path: Path, row: str) -> None:
    path.write_text("a,b\n" + "1,2\n" * 400_000 + row + "\n")
    with pytest.raises(BadData, match=rf"line 400002: {row.count(',') + 1} values where there are 2 columns"):
        read(path)


def test_text_that_is_not_utf8(path: Path) -> None:
    path.write_bytes(b"a,b\n1,x\n1,\xff\n")
    with pytest.raises(BadData, match=r"line 3: .*UTF8"):
        read(path)


def test_nested_types_cannot_be_read(path: Path) -> None:
    path.write_text("a\n1\n")
    with pytest.raises(NotSupported, match='column "a" ARRAY<BIGINT>'):
        read(path, schema(a=pa.list_(pa.int64())))


def test_rows_larger_than_a_block(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "BLOCK", 64)
    rows = [(i, "x" * (i * 7 % 300)) for i in range(200)]
    path.write_text("id,s\n" + "".join(f'{i},"{s}"\n' for i, s in rows))
    assert [(r["id"], r["s"]) for r in read(path)] == rows


def test_a_quote_that_is_not_closed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "BLOCK", 64)
    path.write_text("id,s\n" + "1,x\n" * 20 + '2,"y\n' + "3,z\n" * 2000)
    with pytest.raises(BadData, match="line 22: a row of more than 512 bytes") as e:
        read(path, max_record=512)
    assert "quote" in (e.value.hint or "")


def test_packed_files(tmp_path: Path) -> None:
    packed = tmp_path / "t.csv.gz"
    packed.write_bytes(gzip.compress(b"a,b\n1,x\n"))
    assert read(packed) == [{"a": 1, "b": "x"}]
    packed = tmp_path / "t.tsv.zst"
    packed.write_bytes(pa.compress(b"a\tb\n1\tx\n", "zstd", asbytes=True))
    assert read(packed) == [{"a": 1, "b": "x"}]
