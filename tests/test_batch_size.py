from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from millpond import App, Error
from millpond.engine.sizes import FEWEST_ROWS, MOST_ROWS, SPARK_TARGET, TARGET, BatchSize


def test_a_slow_batch_makes_the_next_ones_smaller_and_quick_full_ones_larger() -> None:
    size = BatchSize()
    size.note(MOST_ROWS, TARGET * 4)
    assert size.rows == MOST_ROWS // 4
    size.note(size.rows // 2, TARGET / 10)
    assert size.rows == MOST_ROWS // 4, "it was not full: it says nothing about larger ones"
    size.note(size.rows, TARGET / 10)
    assert size.rows == MOST_ROWS // 2
    for _ in range(30):
        size.note(size.rows, TARGET * 100)
    assert size.rows == FEWEST_ROWS
    for _ in range(30):
        size.note(size.rows, 0.0)
    assert size.rows == MOST_ROWS
    size.note(None, 100.0)
    assert size.rows == MOST_ROWS


def test_declared_limits() -> None:
    size = BatchSize(100, 0.5)
    size.note(100, 1.0)
    assert size.rows == 100, "it is not made smaller than a few rows"
    size = BatchSize(50_000, 0.5)
    size.note(50_000, 1.0)
    assert size.rows == 25_000


def test_spark_takes_longer_batches_unless_a_short_time_is_declared() -> None:
    for declared, seconds, rows in (
        (TARGET, SPARK_TARGET, 100_000),
        (10.0, 9.0, 100_000),
        (1.0, 1.5, 50_000),
    ):
        size = BatchSize(100_000, declared)
        size.note(100_000, seconds, fixed=0.5)
        assert size.rows == rows


def test_a_stream_says_how_much_is_taken_at_once(tmp_path: Path) -> None:
    for i in range(5):
        pq.write_table(pa.table({"x": [i]}), tmp_path / f"{i}.parquet")
    sql = f"""
        CREATE STREAM s (x INT) WITH ('batch.max.rows' = '8', 'batch.max.time' = '1s');
        CREATE STREAM f WITH ('connector' = 'file://{tmp_path}/*.parquet', 'batch.max.files' = '2');
        CREATE STREAM d WITH ('batch.max.rows' = '4') AS SELECT x FROM s;
        CREATE TABLE n AS SELECT COUNT(*) AS n FROM s; CREATE TABLE m AS SELECT COUNT(*) AS n FROM f;
        CREATE TABLE k AS SELECT COUNT(*) AS n FROM d;
    """
    for restarted in (False, True):
        with App(sql, state=tmp_path / "state", _direct=True) as app:
            app.send("s", [{"x": i} for i in range(15)])
            app.drain()
            found = {q["name"]: q["batches"] for q in app.sql("SHOW QUERIES").rows()}
            assert found["table:n"] == 2 and found["table:k"] == 4
            assert found["table:m"] == (0 if restarted else 3)
    with pytest.raises(Error, match="must be greater than 0"):
        App("CREATE STREAM s (x INT) WITH ('batch.max.rows' = '0')")


ONLY_SPARK = """
    CREATE STREAM pages (id INT, url STRING) WITH ('batch.max.time' = '1ms');
    CREATE TABLE names (id INT PRIMARY KEY, name STRING);
    CREATE TABLE ids AS SELECT id, regexp_extract(url, '(&|^)id=([^&]*)', 2) AS found FROM pages;
    CREATE TABLE named AS SELECT p.id, n.name, regexp_extract(p.url, '(&|^)id=([^&]*)', 2) AS found
        FROM pages p JOIN names n ON n.id = p.id % 10 WITH ('on.miss' = 'retry');
"""


@pytest.mark.spark
def test_batches_that_only_spark_can_evaluate_are_cut(spark: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each part is read anew, in the thread that Spark hands the batch to."""
    monkeypatch.setattr("millpond.engine.loop.SPARK_SECONDS", 0.0)
    with App(ONLY_SPARK) as app:
        app.sql("INSERT INTO names " + " UNION ALL ".join(f"SELECT {i}, 'n{i}'" for i in range(9)))
        for rows in (2_000, 6_000):
            app.send("pages", [{"id": i, "url": f"a=1&id={i}"} for i in range(rows)])
            app.drain()
        queries = {q["name"]: q for q in app.sql("SHOW QUERIES").rows()}
        assert queries["table:ids"]["batches"] >= 5, "they were cut"
        assert app.sql("SELECT COUNT(*) AS n, COUNT(DISTINCT found) AS d FROM ids").rows() == [
            {"n": 8_000, "d": 6_000}
        ]
        assert app.sql("SELECT COUNT(*) AS n FROM named").rows() == [{"n": 7_200}]
        app.sql("INSERT INTO names VALUES (9, 'n9')")
        app.drain()
        assert app.sql("SELECT COUNT(*) AS n, MAX(found) AS x FROM named WHERE name = 'n9'").rows() == [
            {"n": 800, "x": "999"}
        ]
