"""Rows of embedded streams that Spark's own reader reads from the app's Parquet files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from millpond import App
from millpond.connectors.stream.source import StreamSource, stream_uri
from millpond.engine import row_transfer
from millpond.engine.batch import Batch
from millpond.engine.carrier import Sessions
from millpond.engine.collect import collect
from millpond.errors import StateCorrupt
from millpond.journal import Journal
from millpond.types import Column, Schema
from tests.journal.test_segment_files import TYPES, column, files_of
from tests.spark_jobs import Jobs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MANY = 60_000


def batch_of(spark: SparkSession, path: Path, schema: Schema, start: int | None, end: int) -> Batch:
    source = StreamSource(stream_uri(path, "s"), {}, schema)
    offset = None if start is None else {"seq": start}
    return Batch(source, offset, {"seq": end}, carrier=Sessions(source, lambda: spark))


def same(batch: Batch) -> None:
    """Checks that Spark reads what is read here."""
    try:
        found, expected = collect(batch.frame).sort_by("_seq"), batch.read()
        assert found.column_names == expected.column_names
        assert found["_seq"].to_pylist() == expected["_seq"].to_pylist()
        rows = found.num_rows
        some = pa.array([*range(min(100, rows)), *range(max(0, rows - 100), rows)], pa.int64())
        assert str(found.take(some).to_pylist()) == str(expected.take(some).to_pylist())
    finally:
        batch.close()


def table_of(fields: list[tuple[str, pa.DataType]], rows: int, seed: int) -> pa.Table:
    return pa.table({name: column(t, rows, seed + i) for i, (name, t) in enumerate(fields)})


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from(TYPES), min_size=1, max_size=4), st.data())
def test_spark_reads_what_was_sent(
    spark: SparkSession,
    tmp_path_factory: pytest.TempPathFactory,
    types: list[pa.DataType],
    data: st.DataObject,
) -> None:
    """Large and small sends, a column that was added in between, and any range of it."""
    path = tmp_path_factory.mktemp("state")
    fields = [("_metadata", pa.int64()), ("First", pa.string()), *((f"c{i}", t) for i, t in enumerate(types))]
    journal, end = Journal(path, durable=False), 0
    for count in data.draw(st.lists(st.sampled_from([3, 100, MANY]), min_size=1, max_size=4)):
        added = fields if data.draw(st.booleans()) else fields[:-1]
        journal.commit(sent={"s": table_of(added, count, data.draw(st.integers(0, 40)))})
        end += count
    schema = Schema(tuple(Column(name, t) for name, t in fields))
    start = data.draw(st.none() | st.integers(0, end - 1))
    stop = data.draw(st.integers(start or 0, end))
    same(batch_of(spark, path, schema, start, stop))
    journal.close()


def test_nothing_is_copied_of_what_is_in_files(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied: list[int] = []
    put = row_transfer.FolderStore.put
    monkeypatch.setattr(
        row_transfer.FolderStore,
        "put",
        lambda self, name, rows: copied.append(rows.num_rows) or put(self, name, rows),
    )
    state = tmp_path / "[prod] {a} *?"
    with App("CREATE STREAM s (id BIGINT, v STRING)", state=state) as app:
        for i in range(3):
            app.send("s", pa.table({"id": range(i * MANY, (i + 1) * MANY), "v": ["some text here"] * MANY}))
        jobs = Jobs(spark)
        app.sql(
            "CREATE TABLE t AS SELECT id % 10 AS g, COUNT(*) AS n, SUM(id) AS total FROM s GROUP BY id % 10"
        )
        app.drain(120)
        (query,) = app.sql("SHOW QUERIES").rows()
        assert app.sql("SELECT SUM(n) AS n, SUM(total) AS t FROM t").rows() == [
            {"n": 3 * MANY, "t": sum(range(3 * MANY))}
        ]
    assert query["spark_rows"] == 3 * MANY
    assert sum(s.read for s in jobs.of("table:t")) == 3 * MANY
    assert copied == []
    assert not list((state / "pinned").glob("*"))


def test_damage_is_told_by_spark_too(spark: SparkSession, tmp_path: Path) -> None:
    journal = Journal(tmp_path, durable=False)
    journal.commit(sent={"s": pa.table({"v": range(MANY), "s": ["abcdefghij"] * MANY})})
    (file,) = files_of(tmp_path)
    right = file.read_bytes()
    schema = Schema((Column("v", pa.int64()), Column("s", pa.string())))
    for place in (2_000, len(right) // 2, len(right) - 300):
        damaged = bytearray(right)
        damaged[place] ^= 4
        file.write_bytes(damaged)
        batch = batch_of(spark, tmp_path, schema, None, MANY)
        with pytest.raises(StateCorrupt, match="not those that were written"):
            read_on_spark(batch)
        batch.close()


def read_on_spark(batch: Batch) -> pa.Table:
    from millpond.engine.failures import explain

    try:
        return collect(batch.frame)
    except Exception as error:
        raise explain(error) from error
