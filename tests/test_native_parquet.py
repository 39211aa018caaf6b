"""Parquet files are read by Spark's own reader where its values are ours, and by ours elsewhere: the same rows, types
and error records in any case."""

from __future__ import annotations

import random
import string
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from millpond import App
from millpond.connectors.files.source import FileSource
from millpond.connectors.spark_ranges import ranges_of
from millpond.engine import split_reader
from millpond.engine.native_parquet import is_of_the_reader
from millpond.engine.split_reader import SplitRead
from millpond.engine_rule import Engine
from millpond.errors import QueryFailed, SourceChanged
from millpond.formats import parquet
from millpond.formats.parquet_footers import Differs, check_columns
from millpond.loading import large_reads
from millpond.types import Schema
from tests.spark_jobs import Jobs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 400


def tables_of(text: str, engine: Engine) -> dict[str, tuple[pa.Schema, list[str]]]:
    """The types and the rows of every table, and of its error records, in order."""
    with App(text, engine=engine) as app:
        app.drain()
        names = [r["name"] for r in app.sql("SHOW TABLES").rows()]
        found = {}
        for name in [*names, *(f"{n}$errors" for n in names)]:
            rows = app.sql(f"SELECT * FROM `{name}`").to_arrow()
            rows = rows.drop_columns(["time"]) if name.endswith("$errors") else rows
            shown = [str(r) for r in rows.cast(as_numbers(rows.schema)).to_pylist()]
            found[name] = (rows.schema, shown if name in ("copied", "made") else sorted(shown))
        return found


def as_numbers(schema: pa.Schema) -> pa.Schema:
    """Times as numbers: Python has none before the year 1, and no nanoseconds."""
    return pa.schema([f.with_type(_as_number(f.type)) for f in schema])


def _as_number(dtype: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(dtype):
        return pa.int64()
    return pa.int32() if pa.types.is_date(dtype) else dtype


# random files

SCALARS: dict[str, tuple[pa.DataType, Callable[[random.Random], Any]]] = {
    "bool": (pa.bool_(), lambda c: c.random() < 0.5),
    "i8": (pa.int8(), lambda c: c.randint(-128, 127)),
    "i16": (pa.int16(), lambda c: c.randint(-(2**15), 2**15 - 1)),
    "i32": (pa.int32(), lambda c: c.choice([-(2**31), 2**31 - 1, c.randint(-99, 99)])),
    "i64": (pa.int64(), lambda c: c.choice([-(2**63), 2**63 - 1, c.randint(-99, 99)])),
    "f32": (pa.float32(), lambda c: c.choice([0.5, -0.0, float("inf"), float("nan"), 3.0e38])),
    "f64": (pa.float64(), lambda c: c.choice([0.1, -0.0, -1.5e300, float("nan"), 5e-324])),
    "text": (pa.string(), lambda c: c.choice(["", "a", "Ä ö", "🙂", "x" * 300, "line\nbreak", "\0"])),
    "raw": (pa.binary(), lambda c: c.choice([b"", b"\xff\x00", b"abc"])),
    "day": (pa.date32(), lambda c: date(1, 1, 1) + timedelta(c.randint(0, 3_000_000))),
    "wide": (pa.date64(), lambda c: date(1, 1, 1) + timedelta(c.randint(0, 3_000_000))),
    "small": (pa.decimal128(7, 2), lambda c: Decimal(c.randint(-(10**7) + 1, 10**7 - 1)).scaleb(-2)),
    "middle": (pa.decimal128(18, 0), lambda c: Decimal(c.randint(-(10**18) + 1, 10**18 - 1))),
    "big": (pa.decimal128(38, 19), lambda c: Decimal(c.choice([1, -(10**37), 7])).scaleb(-19)),
    "local": (
        pa.timestamp("us"),
        lambda c: datetime(1, 1, 1) + timedelta(microseconds=c.randint(0, 3 * 10**17)),
    ),
    "milli": (
        pa.timestamp("ms"),
        lambda c: datetime(1500, 1, 1) + timedelta(milliseconds=c.randint(0, 10**14)),
    ),
    "inst": (
        pa.timestamp("us", "Europe/Berlin"),
        lambda c: datetime(1400, 1, 1, tzinfo=UTC) + timedelta(microseconds=c.randint(0, 10**16)),
    ),
    "minst": (
        pa.timestamp("ms", "UTC"),
        lambda c: datetime(1400, 1, 1, tzinfo=UTC) + timedelta(milliseconds=c.randint(0, 10**13)),
    ),
}
"""Types that Spark's reader reads as ours does."""
OTHERS: dict[str, tuple[pa.DataType, Callable[[random.Random], Any]]] = {
    "u8": (pa.uint8(), lambda c: c.randint(0, 255)),
    "u64": (pa.uint64(), lambda c: c.choice([2**64 - 1, 5])),
    "nano": (pa.timestamp("ns"), lambda c: datetime(2020, 1, 1) + timedelta(seconds=c.randint(0, 10**6))),
    "half": (pa.float16(), lambda c: 0.5),
    "fixed": (pa.binary(3), lambda c: b"abc"),
    "one": (pa.list_(pa.struct([("element", pa.int32())])), lambda c: [{"element": c.randint(0, 9)}, None]),
    "three": (pa.list_(pa.int32(), 3), lambda c: [1, None, 3]),
}
"""Types that it does not, or is not known to."""
Kind = tuple[pa.DataType, Callable[[random.Random], Any]]


def nested(chance: random.Random, depth: int) -> Kind:
    """A type, and what makes a value of it or None."""
    if depth == 0 or chance.random() < 0.4:
        dtype, make = SCALARS[chance.choice(sorted(SCALARS))]
        return dtype, lambda c: None if c.random() < 0.2 else make(c)
    match chance.choice(["list", "struct", "map"]):
        case "list":
            dtype, make = nested(chance, depth - 1)
            many = pa.list_(dtype)
            return many, lambda c: None if c.random() < 0.2 else [make(c) for _ in range(c.randint(0, 3))]
        case "struct":
            fields = {name: nested(chance, depth - 1) for name in chance.sample("abCd", chance.randint(1, 3))}
            row = pa.struct([(name, dtype) for name, (dtype, _) in fields.items()])
            return (
                row,
                lambda c: None if c.random() < 0.2 else {n: make(c) for n, (_, make) in fields.items()},
            )
        case _:
            dtype, make = nested(chance, depth - 1)
            pairs = pa.map_(pa.string(), dtype)
            return (
                pairs,
                lambda c: (
                    None if c.random() < 0.2 else [(key, make(c)) for key in c.sample("xyz", c.randint(0, 3))]
                ),
            )


def write_files(folder: Path, chance: random.Random, kinds: dict[str, Kind], *, typed: bool = False) -> int:
    """Writes files, whose first one has all columns, and answers how many rows they have."""
    folder.mkdir()
    at = 0
    for number in range(chance.randint(1, 3)):
        count = chance.randint(1, ROWS)
        columns = {
            "id": pa.array(range(at, at + count)),
            "k": pa.array([i % 7 for i in range(at, at + count)]),
        }
        for name, (dtype, make) in kinds.items():
            if number and chance.random() < 0.2:
                continue  # it is missing
            spelled = name.upper() if number and chance.random() < 0.3 else name
            values = [None if chance.random() < 0.2 else make(chance) for _ in range(count)]
            columns[spelled] = pa.array(values, dtype)
        pq.write_table(
            pa.table(columns),
            folder / chance.choice(["{}.parquet", "{} a%20#.parquet", "{}[b]*{{c}}.parquet"]).format(number),
            row_group_size=chance.choice([50, 97, 1000]),
            compression=chance.choice(["none", "snappy", "gzip", "zstd"]),
            use_dictionary=chance.random() < 0.5,
            data_page_version=chance.choice(["1.0", "2.0"]),
            store_schema=typed or chance.random() < 0.5,
            store_decimal_as_integer=chance.random() < 0.5,
            write_page_index=chance.random() < 0.5,
        )
        at += count
    return at


LOADS = """
CREATE TABLE copied AS SELECT * FROM file://{0};
CREATE TABLE made AS SELECT id, k + 1 AS k, f.c0 AS c FROM file://{0} f WHERE k > 2;
CREATE TABLE counted AS SELECT COUNT(*) AS n FROM file://{0};
CREATE TABLE last (PRIMARY KEY (k)) AS SELECT k, id FROM file://{0};
CREATE TABLE pairs AS SELECT a.id, b.k, b.c1 FROM file://{0} a JOIN file://{0} b ON a.id = b.id + 1;
"""


@pytest.mark.parametrize(
    "seed", [5, *(pytest.param(seed, marks=pytest.mark.chaos) for seed in (0, 1, 2, 3, 4, 6, 7))]
)
def test_the_same_from_spark_s_reader_as_in_process(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Every file can be read by Spark's reader, and is."""
    chance = random.Random(seed)
    monkeypatch.setattr(large_reads, "GROUP_ROWS", chance.choice([1_000_000, 200]))
    monkeypatch.setattr(parquet, "ROWS_PER_PIECE", chance.choice([100_000, 60]))
    monkeypatch.setattr(split_reader, "TASK_BYTES", chance.choice([8 << 20, 100]))
    kinds = dict(chance.sample(sorted(SCALARS.items()), 8)) | {f"c{i}": nested(chance, 2) for i in range(3)}
    count = write_files(tmp_path / "files", chance, kinds)
    text = LOADS.format(tmp_path / "files")
    here = tables_of(text, "process")
    jobs = Jobs(spark)
    there = tables_of(text, "spark")
    for name in here:
        assert there[name] == here[name], (name, kinds)
    for table, times in {"copied": 1, "made": 1, "counted": 1, "last": 1, "pairs": 2}.items():
        assert sum(s.read for s in jobs.of(f"table:{table}")) == times * count, table
    assert len(here["copied"][1]) == count


@pytest.mark.parametrize(
    "name", [n if n in ("u64", "nano", "one") else pytest.param(n, marks=pytest.mark.chaos) for n in OTHERS]
)
def test_other_types_are_read_by_ours(spark: SparkSession, tmp_path: Path, name: str) -> None:
    chance = random.Random(1)
    count = write_files(tmp_path / "files", chance, {"c0": OTHERS[name]}, typed=True)
    text = f"CREATE TABLE copied AS SELECT * FROM file://{tmp_path}/files"
    jobs = Jobs(spark)
    here, there = tables_of(text, "process"), tables_of(text, "spark")
    assert here == there and len(here["copied"][1]) == count
    assert jobs.of("table:copied") and sum(s.read for s in jobs.of("table:copied")) < count


# footers


def why_not(path: Path, columns: Schema | None = None) -> str | None:
    """Why Spark's reader does not read a file; None if it does."""
    source = FileSource(f"file://{path}", {}, columns)
    splits = source.splits(None, source.latest(None))
    try:
        ranges_of(source, splits, source.schema().names)
    except Differs as why:
        return str(why)
    return None


def test_what_footers_say(tmp_path: Path) -> None:
    def written(table: pa.Table, **options: Any) -> Path:
        path = tmp_path / "a.parquet"
        pq.write_table(table, path, **options)
        return path

    ids = pa.table({"id": [1, 2]})
    at = pa.table({"at": pa.array([datetime(2020, 1, 1)], pa.timestamp("us", "UTC"))})
    assert why_not(written(ids)) is None
    assert why_not(written(at, use_deprecated_int96_timestamps=True)) is None
    assert why_not(written(ids, compression="lz4")) == "it is compressed by LZ4"
    split = written(pa.table({"x": [0.5]}), use_byte_stream_split=True, use_dictionary=False)
    assert "BYTE_STREAM_SPLIT" in str(why_not(split))
    for key in ("org.apache.spark.legacyDateTime", "org.apache.spark.legacyINT96"):
        early = ids.replace_schema_metadata({key: ""})
        assert why_not(written(early)) == "its dates and times are those of an earlier Spark"
    assert why_not(written(ids.replace_schema_metadata({"org.apache.spark.version": "2.4.8"}))) is not None
    assert why_not(written(ids.replace_schema_metadata({"org.apache.spark.version": "4.2.0"}))) is None
    for version, other in {"3.0.3": True, "3.1.0": False, "3.10.0": False, "4.2.0": False}.items():
        by = {"org.apache.spark.version": version}
        assert why_not(written(ids.replace_schema_metadata(by))) is None
        path = written(at.replace_schema_metadata(by), use_deprecated_int96_timestamps=True)
        assert (why_not(path) is not None) == other, version
    # a struct without a zone, that INT96 has none of
    inner = pa.table({"s": pa.array([{"at": datetime(2020, 1, 1)}], pa.struct([("at", pa.timestamp("us"))]))})
    assert why_not(written(inner)) is None
    assert why_not(written(inner, use_deprecated_int96_timestamps=True)) is not None
    # other types than declared
    assert why_not(written(ids), Schema.of(pa.schema([("id", pa.int32())]))) == 'column "id" is int64'
    text = pa.table({"s": pa.array([b"a"], pa.binary())})
    assert why_not(written(text), Schema.of(pa.schema([("s", pa.string())]))) is not None
    nothing = pa.table({"id": pa.nulls(2)})
    assert why_not(written(nothing), Schema.of(ids.schema)) is not None
    waits = pa.table({"w": pa.array([1], pa.duration("us"))})
    assert why_not(written(waits)) == 'column "w" is duration[us]'
    flags = pa.table({"f": pa.array([1, 0], pa.int8()).cast(pa.bool8())})
    assert why_not(written(flags), Schema.of(pa.schema([("f", pa.int8())]))) is not None
    # nested names that differ in case alone, or in their order
    row = pa.table({"s": pa.array([{"a": 1, "b": 2}])})
    known = Schema.of(pa.schema([("s", pa.struct([("A", pa.int64()), ("b", pa.int64())]))]))
    assert why_not(written(row), known) is not None
    known = Schema.of(pa.schema([("s", pa.struct([("b", pa.int64()), ("a", pa.int64())]))]))
    assert why_not(written(row), known) is not None
    twice = pa.table({"id": [1], "ID": [2]})
    assert why_not(written(twice), Schema.of(ids.schema)) == 'several columns are called "id"'


def test_every_row_group_is_looked_at(tmp_path: Path) -> None:
    """Of those that are read."""
    files = []
    for codec in ("snappy", "lz4"):
        pq.write_table(pa.table({"id": [1, 2]}), tmp_path / codec, compression=codec)
        files.append(pq.ParquetFile(tmp_path / codec))
    both = SimpleNamespace(
        metadata={}, schema=files[0].metadata.schema, row_group=lambda n: files[n].metadata.row_group(0)
    )
    file, known = SimpleNamespace(metadata=both, schema_arrow=files[0].schema_arrow), files[0].schema_arrow
    check_columns(file, known, [0])
    with pytest.raises(Differs, match="LZ4"):
        check_columns(file, known, [0, 1])


def test_files_of_early_versions(spark: SparkSession, tmp_path: Path) -> None:
    """Version 1.0 says of a time neither its zone nor its unit in the same way."""
    at = [datetime(1500, 1, 1) + timedelta(days=100 * i, microseconds=7000) for i in range(500)]
    rows = pa.table({"id": range(500), "at": pa.array(at, pa.timestamp("ms"))})
    for version in ("1.0", "2.4", "2.6"):
        pq.write_table(rows, tmp_path / f"{version}.parquet", version=version, store_schema=False)
    text = f"CREATE TABLE copied AS SELECT * FROM file://{tmp_path}"
    assert tables_of(text, "process") == tables_of(text, "spark")


def test_int96_of_spark_itself(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.range(3000).selectExpr(
        "id",
        "timestamp_micros(id * 86400000123 - 20000000000000000) AS at",
        "date_add(DATE'0001-01-01', CAST(id * 300 AS INT)) AS day",
        "CAST(id AS DECIMAL(20, 3)) AS d",
        "array(named_struct('a', id, 'b', CAST(id AS STRING))) AS l",
    )
    rows.coalesce(1).write.parquet(f"file://{tmp_path}/files")
    text = f"CREATE TABLE copied AS SELECT * FROM file://{tmp_path}/files"
    jobs = Jobs(spark)
    here, there = tables_of(text, "process"), tables_of(text, "spark")
    assert here == there and len(here["copied"][1]) == 3000
    assert sum(s.read for s in jobs.of("table:copied")) == 3000


# what goes wrong


def test_a_row_group_that_is_damaged(spark: SparkSession, tmp_path: Path) -> None:
    """Our reader makes an error record of it."""
    path = tmp_path / "a.parquet"
    pq.write_table(
        pa.table({"id": range(3000), "s": ["x" * 20] * 3000}), path, row_group_size=1000, use_dictionary=False
    )
    place = pq.ParquetFile(path).metadata.row_group(1).column(1).data_page_offset
    data = bytearray(path.read_bytes())
    data[place : place + 40] = b"\xff" * 40
    path.write_bytes(data)
    text = f"CREATE TABLE copied AS SELECT * FROM file://{path}; CREATE TABLE n AS SELECT s, id FROM file://{path}"
    here, there = tables_of(text, "process"), tables_of(text, "spark")
    assert here == there
    assert len(here["copied"][1]) == 2000 and len(here["copied$errors"][1]) == 1


def test_a_dictionary_that_lacks_values(spark: SparkSession, tmp_path: Path) -> None:
    """Spark looks them up when they are used."""
    path = tmp_path / "a.parquet"
    kind = pa.schema([pa.field("id", pa.int64()), pa.field("s", pa.string(), nullable=False)])
    rows = pa.table({"id": range(3000), "s": ["a", "b", "c"] * 1000}, kind)
    pq.write_table(rows, path, row_group_size=1000, use_dictionary=["s"], compression="none")
    column = pq.ParquetFile(path).metadata.row_group(1).column(1)
    end = column.dictionary_page_offset + column.total_compressed_size
    data = bytearray(path.read_bytes())
    data[end - 100 : end] = b"\xff" * 100
    path.write_bytes(data)
    text = f"CREATE TABLE copied AS SELECT * FROM file://{path}; CREATE TABLE n AS SELECT s, id FROM file://{path}"
    here, there = tables_of(text, "process"), tables_of(text, "spark")
    assert here == there
    assert len(here["copied"][1]) == 2000 and len(here["copied$errors"][1]) == 1


def test_errors_that_may_be_of_the_reader() -> None:
    """Java leaves out where an exception was raised, if that happens often."""
    bare = RuntimeError("java.lang.ArrayIndexOutOfBoundsException: Index 3 out of bounds for length 3")
    assert is_of_the_reader(bare)
    told = QueryFailed("a value is not one that the function takes")
    told.__cause__ = bare
    assert is_of_the_reader(told)
    for text in ("[DIVIDE_BY_ZERO] Division by zero.", "ExecutorLostFailure (executor 1 exited)"):
        assert not is_of_the_reader(RuntimeError(text))
    assert not is_of_the_reader(SourceChanged("it was replaced"))


def test_a_file_with_the_checksums_of_another(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hadoop's file system refuses it on the driver, where row groups are looked up, or on an executor."""
    monkeypatch.setattr(parquet, "ROWS_PER_PIECE", 1000)
    spark.range(10).coalesce(1).write.parquet(f"file://{tmp_path}/other")
    checksums = next((tmp_path / "other").glob(".*.parquet.crc")).read_bytes()
    for size in (1000, 3000):
        path = tmp_path / f"{size}.parquet"
        pq.write_table(pa.table({"id": range(3000)}), path, row_group_size=size)
        path.with_name(f".{path.name}.crc").write_bytes(checksums)
        text = f"CREATE TABLE copied AS SELECT * FROM file://{path}"
        here, there = tables_of(text, "process"), tables_of(text, "spark")
        assert here == there and len(here["copied"][1]) == 3000


def test_a_file_that_changes_while_it_is_read(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"id": range(3000)}), path)
    frame, changed = split_reader.native_frame, []

    def changing(*given: Any) -> Any:
        made = frame(*given)
        if not changed:
            pq.write_table(pa.table({"id": range(5000, 8000)}), tmp_path / "b")
            changed.append((tmp_path / "b").rename(path))
        return made

    monkeypatch.setattr(split_reader, "native_frame", changing)
    source = FileSource(f"file://{path}", {}, None)
    read = SplitRead(spark, source, source.splits(None, source.latest(None)), sifts=True, native=True)
    assert read.is_native and changed
    read.collected()
    with pytest.raises(SourceChanged):
        read.check_unchanged()
    changed.clear()
    with App(f"CREATE TABLE t AS SELECT * FROM file://{path}", engine="spark") as app:
        app.drain()
        assert app.sql("SELECT MIN(id) AS a, COUNT(*) AS n FROM t").rows() == [{"a": 5000, "n": 3000}]


def test_columns_with_strange_names(spark: SparkSession, tmp_path: Path) -> None:
    names = ["a.b", "a b", "ä;{}()=", "_metadata", "_file", "`q`", *string.punctuation.replace("`", "")]
    pq.write_table(
        pa.table({name: range(300) for name in names}), tmp_path / "_a.parquet", row_group_size=100
    )
    text = f"CREATE TABLE copied AS SELECT * FROM file://{tmp_path}/_a.parquet"
    jobs = Jobs(spark)
    assert tables_of(text, "process") == tables_of(text, "spark")
    assert sum(s.read for s in jobs.of("table:copied")) == 300
    pq.write_table(pa.table({"_tmp_metadata_row_index": range(300)}), tmp_path / "_a.parquet")
    assert tables_of(text, "process") == tables_of(text, "spark")
    pq.write_table(pa.table({"id": range(300)}), tmp_path / "a:b.parquet")
    text = f"CREATE TABLE copied AS SELECT * FROM file://{tmp_path}/a:b.parquet"
    assert tables_of(text, "process") == tables_of(text, "spark")
