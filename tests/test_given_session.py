"""An app on a Spark session that the program has made: right answers, and the session stays as it was."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from millpond import App
from millpond.errors import InvalidOption, NotSupported

PROGRAM = """
import json, sys
from pyspark.sql import SparkSession
from millpond import App, Error
from millpond.engine.session import given_session

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.sql.ansi.enabled": "false",
    "spark.sql.session.timeZone": "America/New_York",
    "spark.sql.caseSensitive": "true",
    "spark.sql.timestampType": "TIMESTAMP_NTZ",
    "spark.sql.legacy.sizeOfNull": "true",
    "spark.sql.shuffle.partitions": "7",
}
builder = SparkSession.builder.master("local[2]").appName("mine")
for name, value in SETTINGS.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
spark.range(3).createOrReplaceTempView("mine")
before = dict(spark.conf.getAll), sorted(spark.sparkContext.getConf().getAll())
found = {}
ASK = "SELECT CAST(TIMESTAMP '2026-07-01 00:00:00' AS STRING) AS at, xpath_string('<a>b</a>', 'a') AS x"

SQL = '''
CREATE STREAM picks (id BIGINT, at TIMESTAMP, qty INT, tags ARRAY<INT>);
CREATE TABLE done (PRIMARY KEY (id)) WITH ('engine' = 'spark') AS
  SELECT id, ID + 1 AS next, CAST(at AS STRING) AS at, 100 DIV qty AS share, size(tags) AS tags FROM picks;
CREATE TABLE totals WITH ('engine' = 'spark') AS SELECT qty, COUNT(*) AS n FROM picks GROUP BY qty;
'''
rows = [
    {"id": 1, "at": "2026-01-01 12:00:00", "qty": 5, "tags": None},
    {"id": 2, "at": "2026-07-01 00:30:00", "qty": 0, "tags": [1, 2]},
    {"id": 3, "at": "2026-07-01 00:30:00", "qty": 5, "tags": [1]},
]
for turn in range(2):
    with App(SQL, spark=spark) as app:
        app.send("picks", rows)
        app.drain(120)
        found["done"] = app.sql("SELECT * FROM done ORDER BY id").rows()
        found["totals"] = app.sql("SELECT * FROM totals ORDER BY qty").rows()
        found["errors"] = len(app.table("done$errors"))
        found["by spark"] = [q["spark_rows"] > 0 and q["process_rows"] == 0 for q in app.sql("SHOW QUERIES").rows()]
        found["asked"] = app.sql(ASK).rows()
        found["active"] = SparkSession.getActiveSession() is spark and SparkSession.builder.getOrCreate() is spark
with App("CREATE TABLE t (id INT)") as app:
    found["implicit"] = app.sql(ASK).rows() == found["asked"]
found["same"] = (dict(spark.conf.getAll), sorted(spark.sparkContext.getConf().getAll())) == before
found["alive"] = spark.sql("SELECT COUNT(*) AS n, 1 / 0 AS x FROM mine").collect()[0].asDict()

class Other(SparkSession):
    version = "3.5.1"

def refused(**settings):
    try:
        App("CREATE TABLE t (id INT)", **settings).close()
    except Error as error:
        return f"{error.code}: {error}"

found["version"] = refused(spark=Other(spark.sparkContext, spark._jsparkSession))
try:
    given_session(spark, ["kafka"])
except Error as error:
    found["kafka"] = f"{error.code}: {error}"
spark.stop()
found["stopped"] = refused(spark=spark)
print(json.dumps(found, default=str))
"""


@pytest.mark.slow
def test_an_app_uses_it_and_leaves_it_as_it_is(tmp_path: Path) -> None:
    env = os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, cwd=tmp_path, env=env, timeout=300
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "SQLQueryContextLogger" not in done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert found.pop("done") == [
        {"id": 1, "next": 2, "at": "2026-01-01 12:00:00", "share": 20, "tags": None},
        {"id": 3, "next": 4, "at": "2026-07-01 00:30:00", "share": 20, "tags": 1},
    ]
    assert found.pop("version") == (
        "not_supported: the given session is Spark 3.5.1; Millpond supports Spark 4.2"
        "\nhint: choose a platform, or a version of PySpark, with Spark 4.2"
    )
    assert found.pop("stopped") == (
        "engine: the Spark session of the app was stopped\nhint: make another one, and open the app again with it"
    )
    assert "started without org.apache.spark:spark-sql-kafka" in found.pop("kafka")
    assert found == {
        "totals": [{"qty": 0, "n": 1}, {"qty": 5, "n": 2}],
        "errors": 1,
        "by spark": [True, True],
        "asked": [{"at": "2026-07-01 00:00:00", "x": "b"}],
        "implicit": True,
        "active": True,
        "same": True,
        "alive": {"n": 3, "x": None},
    }


def test_a_session_of_spark_connect_is_refused_by_name() -> None:
    connected = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()
    with pytest.raises(NotSupported, match="Spark Connect"):
        App(spark=connected)


def test_something_else_is_refused() -> None:
    with pytest.raises(InvalidOption, match="spark is a str"):
        App(spark="local[2]")
    with pytest.raises(InvalidOption, match="spark and master are both given"):
        App(master="local[2]", spark=object())
