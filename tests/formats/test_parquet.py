from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from millpond.errors import BadData
from millpond.formats.parquet import ROWS_PER_PIECE, Parquet
from millpond.types import TIMESTAMP, TIMESTAMP_NTZ, Column, Schema


def schema(**columns: pa.DataType) -> Schema:
    return Schema(tuple(Column(n, t) for n, t in columns.items()))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "t.parquet"


def read(path: Path, wanted: Schema | None = None) -> list[dict[str, Any]]:
    form = Parquet()
    given = wanted or form.discover(str(path))
    found = list(form.read(str(path), given))
    assert all(b.schema == given.arrow() for b in found)
    return [row for batch in found for row in batch.to_pylist()]


def column(path: Path, values: pa.Array, **options: Any) -> pa.DataType:
    parquet.write_table(pa.table({"v": values}), path, **options)
    found = Parquet().discover(str(path)).find("v")
    assert found is not None
    return found.type


@pytest.mark.parametrize(
    ("given", "value", "dtype"),
    [
        (pa.uint8(), 255, pa.int16()),
        (pa.uint32(), 2**32 - 1, pa.int64()),
        (pa.uint64(), 2**64 - 1, pa.decimal128(20, 0)),
        (pa.float32(), 1.5, pa.float32()),
        (pa.large_string(), "é", pa.string()),
        (pa.dictionary(pa.int32(), pa.string()), "x", pa.string()),
        (pa.binary(2), b"ab", pa.binary()),
        (pa.timestamp("ms"), datetime(2024, 1, 1), TIMESTAMP_NTZ),
        (pa.timestamp("ns", "UTC"), datetime(2024, 1, 1, 0, 0, 0, 5, tzinfo=UTC), TIMESTAMP),
        (pa.timestamp("us", "Europe/Berlin"), datetime(2024, 1, 1, tzinfo=UTC), TIMESTAMP),
        (pa.date64(), date(2024, 2, 29), pa.date32()),
        (pa.decimal128(38, 10), Decimal("1234567890123456789012345678.0123456789"), pa.decimal128(38, 10)),
        (pa.list_(pa.uint8()), [1, None], pa.list_(pa.field("element", pa.int16()))),
        (pa.struct([("x", pa.large_string())]), {"x": "a"}, pa.struct([("x", pa.string())])),
        (pa.map_(pa.string(), pa.uint8()), [("a", 1)], pa.map_(pa.string(), pa.int16())),
        (pa.bool_(), True, pa.bool_()),
    ],
)
def test_types_become_those_of_sql(path: Path, given: pa.DataType, value: Any, dtype: pa.DataType) -> None:
    assert column(path, pa.array([value, None], given)) == dtype
    assert [r["v"] for r in read(path)] == [value, None]


def test_nanoseconds_are_cut_off(path: Path) -> None:
    column(path, pa.array([1_704_067_200_000_001_999], pa.timestamp("ns")))
    assert read(path) == [{"v": datetime(2024, 1, 1, 0, 0, 0, 1)}]
    column(path, pa.array([[1_704_067_200_000_001_999]], pa.list_(pa.timestamp("ns"))))
    assert read(path) == [{"v": [datetime(2024, 1, 1, 0, 0, 0, 1)]}]


def test_timestamps_of_spark_are_instants(path: Path) -> None:
    moment = datetime(1900, 1, 1, 12, 0, 0, 123456)
    dtype = column(path, pa.array([moment], TIMESTAMP_NTZ), use_deprecated_int96_timestamps=True)
    assert dtype == TIMESTAMP
    assert read(path) == [{"v": moment.replace(tzinfo=UTC)}]


def test_columns_are_matched_by_name_ignoring_case(path: Path) -> None:
    parquet.write_table(pa.table({"B": [1], "extra": [2], "A": pa.array([3], pa.int32())}), path)
    assert read(path, schema(a=pa.int64(), b=pa.decimal128(5, 2), gone=pa.string())) == [
        {"a": 3, "b": Decimal("1.00"), "gone": None}
    ]
    assert read(path, schema(gone=pa.string())) == [{"gone": None}]


@pytest.mark.parametrize(
    ("values", "dtype"),
    [([1.5], pa.decimal128(5, 2)), (["1"], pa.int64()), ([1], pa.string()), ([1], pa.bool_())],
)
def test_types_of_another_kind_are_refused(path: Path, values: list[Any], dtype: pa.DataType) -> None:
    column(path, pa.array(values))
    with pytest.raises(BadData, match=r'column "v" is .*, declared'):
        read(path, schema(v=dtype))


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        (pa.array([1, 300]), pa.int8()),
        (pa.array([1000]), pa.decimal128(5, 2)),
        (pa.array([Decimal("1.005")]), pa.decimal128(5, 2)),
        (pa.array([Decimal(69039)]), pa.decimal128(38, 35)),
    ],
)
def test_values_that_do_not_fit_are_refused(path: Path, values: pa.Array, dtype: pa.DataType) -> None:
    column(path, values)
    with pytest.raises(BadData, match=r'column "v" .* does not fit'):
        read(path, schema(v=dtype))


def test_a_type_without_an_sql_type_is_refused_unless_left_out(path: Path) -> None:
    parquet.write_table(pa.table({"k": [1], "v": pa.array([1], pa.time32("s"))}), path)
    with pytest.raises(BadData, match='column "v"'):
        read(path)
    assert read(path, schema(k=pa.int64())) == [{"k": 1}]


def test_empty_and_broken_files(path: Path) -> None:
    assert column(path, pa.array([], pa.int64())) == pa.int64()
    assert Parquet().pieces(str(path)) == [] or read(path) == []
    path.write_bytes(b"no")
    with pytest.raises(BadData, match="not Parquet"):
        read(path)


def test_pieces_are_row_groups_that_cover_the_file_once(path: Path) -> None:
    rows = ROWS_PER_PIECE * 2 + 17
    parquet.write_table(pa.table({"v": range(rows)}), path, row_group_size=50_000)
    form = Parquet()
    pieces = form.pieces(str(path))
    assert len(pieces) == 2
    values: list[int] = []
    for piece in pieces:
        assert piece.first_row == len(values)
        for batch in form.read(str(path), schema(v=pa.int64()), piece):
            values += batch.column(0).to_pylist()
    assert values == list(range(rows))
