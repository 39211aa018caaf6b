"""Delta tables that Spark and delta-rs both read and write: each reads what the other wrote.

This file is also the program that runs Spark, whose jars must be known when it starts.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from millpond import App
from millpond.connectors.delta.spark import FORMAT
from millpond.engine.failures import explain
from millpond.engine.session import connector_settings
from millpond.errors import SourceError

TYPES = """id BIGINT, b BOOLEAN, t TINYINT, f FLOAT, d DECIMAL(20, 4), x BINARY, day DATE, at TIMESTAMP,
    local TIMESTAMP_NTZ, l ARRAY<STRING>, m MAP<STRING, INT>, r STRUCT<a: INT, b: STRING>"""
VERSIONS = 6
"""Those of the table that an app keeps."""
ROW = """SELECT 1, true, CAST(-3 AS TINYINT), CAST(1.5 AS FLOAT), CAST('1.2345' AS DECIMAL(20, 4)), X'00ff',
    DATE'2024-02-29', TIMESTAMP'2024-01-01 00:00:00.000001Z', TIMESTAMP_NTZ'1999-12-31 23:59:59', ARRAY('a', NULL),
    MAP('k', 1), NAMED_STRUCT('a', 1, 'b', NULL)"""


def work(folder: Path) -> None:
    """What Spark does: reads what the sink wrote, and writes for delta-rs."""
    from millpond.engine.session import get_session

    spark = get_session("local[1]", formats={"delta"})
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    for few in ("spark.sql.shuffle.partitions", "spark.databricks.delta.snapshotPartitions"):
        spark.conf.set(few, "1")
    read = {name: spark.read.format("delta").load(str(folder / name)) for name in ("out", "keyed")}
    found: dict[str, Any] = {name: texts(frame.toArrow()) for name, frame in read.items()}
    found["version 1"] = texts(
        spark.read.format("delta").option("versionAsOf", 1).load(str(folder / "parts")).toArrow()
    )
    for version in range(VERSIONS):
        frame = spark.sql(f"SELECT * FROM delta.`{folder}/table` VERSION AS OF {version}")
        found[f"table {version}"] = texts(frame.toArrow())
    history = spark.sql(f"DESCRIBE HISTORY delta.`{folder}/table`").select("version", "operation")
    found["history"] = texts(history.toArrow())
    spark.sql(f"""MERGE INTO delta.`{folder}/keyed` t USING (SELECT 2L AS id, 'merged' AS k, 5 AS n
        UNION ALL SELECT 9L, 'new', 9) s ON t.id = s.id
        WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *""")
    spark.sql(f"CREATE TABLE delta.`{folder}/made` USING delta AS SELECT id, id % 3 AS k FROM range(100)")
    spark.sql(f"DELETE FROM delta.`{folder}/made` WHERE id % 7 = 0")
    found["made"] = texts(spark.read.format("delta").load(str(folder / "made")).toArrow())
    try:
        spark.read.format("delta").load(str(folder)).collect()
    except Exception as error:
        found["refused"] = str(explain(error))
    print(json.dumps(found), flush=True)


def texts(rows: pa.Table) -> list[str]:
    return sorted(str(row) for row in rows.to_pylist())


def keep_table(at: Path) -> dict[str, list[str]]:
    """Returns what an app reads of each version of its table in Delta, and the versions."""
    text = f"""CREATE TABLE t (id BIGINT PRIMARY KEY, name STRING, at TIMESTAMP, took INTERVAL DAY TO SECOND)
        WITH ('extension' = 'delta', 'path' = '{at}', 'flush.interval' = '1h')"""
    moment, took = "TIMESTAMP '2024-01-01 00:00:00.000001Z'", "INTERVAL '1' SECOND"
    with App(text) as app:
        for changes in (
            f"INSERT INTO t VALUES (1, 'a', {moment}, {took}), (2, 'b', NULL, NULL), (3, NULL, NULL, NULL)",
            "UPDATE t SET name = 'c' WHERE id = 2",
            "DELETE FROM t WHERE id = 1",
            f"INSERT INTO t VALUES (9, 'z', {moment}, NULL)",
        ):
            app.sql(changes)
            app._runtime.compactor.flusher.flush("t")
        app.sql("OPTIMIZE t")
        # An interval is a number of microseconds there.
        shown = "SELECT id, name, at, CAST(EXTRACT(SECOND FROM took) * 1000000 AS BIGINT) AS took FROM t"
        found = {
            f"table {v}": texts(app.sql(f"{shown} VERSION AS OF {v}").to_arrow()) for v in range(VERSIONS)
        }
        versions = app.sql("DESCRIBE HISTORY t").to_arrow().select(["version", "operation"])
        return found | {"history": texts(versions)}


@pytest.mark.slow
def test_spark_and_delta_rs_read_what_the_other_wrote(tmp_path: Path) -> None:
    text = f"""CREATE STREAM s ({TYPES}); CREATE STREAM changes (id BIGINT, k STRING, n INT);
        INSERT INTO delta://{tmp_path}/out SELECT * FROM s;
        INSERT INTO delta://{tmp_path}/keyed SELECT * FROM changes WITH ('key' = 'id')"""
    with App(text, state=tmp_path / "state", _direct=True) as app:
        app.sql(f"INSERT INTO s {ROW}")
        app.send("s", [{"id": 2}])
        for n in range(2):
            app.send("changes", [{"id": i, "k": f"k{n}", "n": n} for i in range(n, n + 3)])
            app.drain(60)
    kept = keep_table(tmp_path / "table")
    for first in (0, 10):
        rows = pa.table({"id": range(first, first + 10), "part": [f"p {i % 2}%" for i in range(10)]})
        write_deltalake(tmp_path / "parts", rows, mode="append", partition_by=["part"])
    before = {
        name: texts(DeltaTable(tmp_path / name).to_pyarrow_table()) for name in ("out", "keyed", "parts")
    }
    done = subprocess.run(
        [sys.executable, "-m", "tests.test_delta_spark", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=550,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["out"] == before["out"] and len(found["out"]) == 2
    assert found["keyed"] == before["keyed"] and len(found["keyed"]) == 4
    assert found["version 1"] == before["parts"]
    assert {name: found[name] for name in kept} == kept and len(kept["table 4"]) == 3
    keyed = DeltaTable(tmp_path / "keyed").to_pyarrow_table().sort_by("id").to_pylist()
    assert [r["k"] for r in keyed] == ["k0", "k1", "merged", "k1", "new"]
    assert texts(pa.table(DeltaTable(tmp_path / "made").scan())) == found["made"] and len(found["made"]) == 85
    assert "Delta refuses it" in found["refused"]


def test_only_a_session_that_names_delta_has_it() -> None:
    named = connector_settings({"delta"})
    assert "delta-spark" in named["spark.jars"] and "delta-storage" in named["spark.jars"]
    assert "DeltaSparkSessionExtension" in named["spark.sql.extensions"]
    assert not any("delta" in text.lower() for text in connector_settings(()).values())


def test_what_delta_says_is_told() -> None:
    found = FORMAT.explain("x\n[DELTA_PATH_DOES_NOT_EXIST] no Delta table at /x\nmore")
    assert isinstance(found, SourceError)
    assert found.message == "Delta refuses it: no Delta table at /x (DELTA_PATH_DOES_NOT_EXIST)"
    assert FORMAT.explain("something else") is None


if __name__ == "__main__":
    work(Path(sys.argv[1]))
