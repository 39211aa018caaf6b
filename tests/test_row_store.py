"""The folder, or the place that Hadoop's file systems reach, through which executors of a cluster get rows."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from millpond.engine.row_store import PARQUET, SETTING, FolderStore, HadoopStore, open_store, store_of
from millpond.engine.session import new_session
from millpond.errors import EngineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_store_belongs_to_one_app(spark: SparkSession, tmp_path: Path) -> None:
    """What is left of a run that was killed is removed later, and what is another run's or another app's is not."""
    mine = tmp_path / "shared rows" / "millpond-mine"
    other = tmp_path / "shared rows" / "millpond-other"
    for left in (mine / "dead/7/rows.parquet", mine / "alive/7/rows.parquet", other / "dead/7/rows.parquet"):
        left.parent.mkdir(parents=True, exist_ok=True)
        left.write_text("left")
    for dead in (mine / "dead", other / "dead"):
        os.utime(dead, times=(time.time() - 2 * 24 * 3600,) * 2)
    session = spark.newSession()
    store = open_store(session, str(mine))
    (own,) = {p.name for p in mine.iterdir()} - {"alive"}
    assert [p.name for p in (mine / own).iterdir()] == ["check"]
    assert (other / "dead/7/rows.parquet").exists() and (mine / "alive/7/rows.parquet").exists()
    of_statement = store_of(new_session(session))
    assert of_statement is not None and of_statement.uri == store.uri
    assert session.read.parquet(store.put("8", pa.table({"x": [1, 2]}))).count() == 2
    store.remove("8")
    assert not (mine / own / "8").exists()
    store.clear()
    assert [p.name for p in mine.iterdir()] == ["alive"] and spark.conf.get(SETTING, None) is None


def test_a_store_by_way_of_spark(spark: SparkSession, tmp_path: Path) -> None:
    """As for s3a://: Hadoop's file systems write, here its own one for files."""
    store = HadoopStore(spark, f"file://{tmp_path}/mine")
    assert spark.read.parquet(store.put("1", pa.table({"x": [1, 2]}))).count() == 2
    files = tmp_path / "with [some] {signs} %20" / "first=7"
    files.mkdir(parents=True)
    pq.write_table(pa.table({"x": [1, 2]}), files / "a.parquet")
    for kind in (store, FolderStore(tmp_path / "[mine] *")):
        read = spark.read.options(**PARQUET).schema("x BIGINT, first BIGINT")
        assert read.parquet(kind.copy("2", files.parent)).first() == (1, 7)
        kind.remove("2")
    store.remove("1")
    assert not (tmp_path / "mine" / "1").exists() and (tmp_path / "mine").exists()
    store.clear()
    assert not (tmp_path / "mine").exists()


def test_a_store_that_cannot_be_written(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EngineError, match="cannot be written: Not a directory") as told:
        open_store(spark.newSession(), f"{tmp_path}/file/store")
    assert told.value.hint and "a folder that the driver and all workers have" in told.value.hint
    with pytest.raises(EngineError, match=r'the store "s3b://x/y" cannot be written: .*No FileSystem.*s3b'):
        open_store(spark.newSession(), "s3b://x/y")
