"""The folder, or the place that Hadoop's file systems reach, through which executors of a cluster get rows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from millpond.engine.row_store import SETTING, HadoopStore, open_store, store_of
from millpond.engine.session import new_session
from millpond.errors import EngineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_store_belongs_to_one_app(spark: SparkSession, tmp_path: Path) -> None:
    """What is left of a life of the app that was killed is removed, and what is others' is not."""
    for left in ("millpond-mine/7/rows.parquet", "millpond-other/7/rows.parquet", "notes.txt"):
        (tmp_path / left).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / left).write_text("left")
    session = spark.newSession()
    store = open_store(session, f"{tmp_path}/millpond-mine")
    assert sorted(p.name for p in (tmp_path / "millpond-mine").iterdir()) == ["check"]
    assert (tmp_path / "millpond-other/7/rows.parquet").exists() and (tmp_path / "notes.txt").exists()
    of_statement = store_of(new_session(session))
    assert of_statement is not None and of_statement.uri == store.uri
    assert session.read.parquet(store.put("8", pa.table({"x": [1, 2]}))).count() == 2
    store.remove("8")
    assert not (tmp_path / "millpond-mine" / "8").exists()
    store.clear()
    assert not (tmp_path / "millpond-mine").exists() and spark.conf.get(SETTING, None) is None


def test_a_store_by_way_of_spark(spark: SparkSession, tmp_path: Path) -> None:
    """As for s3a://: Hadoop's file systems write, here its own one for files."""
    store = HadoopStore(spark, f"file://{tmp_path}/mine")
    assert spark.read.parquet(store.put("1", pa.table({"x": [1, 2]}))).count() == 2
    store.remove("1")
    assert not (tmp_path / "mine" / "1").exists() and (tmp_path / "mine").exists()
    store.clear()
    assert not (tmp_path / "mine").exists()


def test_a_store_that_cannot_be_written(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EngineError, match="cannot be written: Not a directory"):
        open_store(spark.newSession(), f"{tmp_path}/file/store")
    with pytest.raises(EngineError, match=r'the store "s3b://x/y" cannot be written: .*No FileSystem.*s3b'):
        open_store(spark.newSession(), "s3b://x/y")
