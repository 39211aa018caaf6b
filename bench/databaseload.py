"""One load of a table of a database, alone in its process, so that what it takes of memory is its own.

``python -m bench.databaseload WHO DATABASE HOST PORT USER PASSWORD``: prints seconds and megabytes at the most.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

TABLE = "rows_of_bench"
ROWS = 1_000_000
JARS = ("org.postgresql:postgresql:42.7.4", "org.mariadb.jdbc:mariadb-java-client:3.4.1")
_CLASSES = {"postgresql": "org.postgresql.Driver", "mysql": "org.mariadb.jdbc.Driver"}
_MORE = {"postgresql": "", "mysql": "?permitMysqlScheme"}
"""By the scheme mysql Spark quotes names as MySQL does; MariaDB's driver has to be told that it is meant."""
Load = Callable[[], int]
"""Loads the table, and answers how many rows there were."""


def millpond(kind: str, host: str, port: str, user: str, password: str) -> Load:
    from millpond import App

    app = App()

    def load() -> int:
        uri = f"{kind}://{user}:{password}@{host}:{port}/bench/{TABLE}"
        app.sql(f"CREATE TABLE t AS SELECT * FROM '{uri}'")
        return len(app.table("t"))

    return load


def spark(kind: str, host: str, port: str, user: str, password: str) -> Load:
    """Its JDBC reader, with the options that its documentation advises, to Arrow in this process."""
    from pyspark.sql import SparkSession

    from millpond.engine.jars import fetch, folder
    from millpond.engine.java import find_java, prepare_java

    names = [f"{name}-{version}.jar" for _, name, version in (jar.split(":") for jar in JARS)]
    if not all((folder() / name).is_file() for name in names):
        fetch(JARS, folder(), alone=True)
    os.environ.update(prepare_java(find_java(), Path(tempfile.mkdtemp())))
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", ",".join(str(folder() / name) for name in names))
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "2g")
        .config("spark.sql.execution.arrow.pyspark.enabled", "true")
        .getOrCreate()
    )
    session.range(10).toArrow()  # it is warm
    settings = {
        "url": f"jdbc:{kind}://{host}:{port}/bench{_MORE[kind]}",
        "driver": _CLASSES[kind],
        "user": user,
        "password": password,
        "dbtable": TABLE,
        "fetchsize": "10000",
        "partitionColumn": "id",
        "lowerBound": "0",
        "upperBound": str(ROWS),
        "numPartitions": "2",
    }
    return lambda: int(session.read.format("jdbc").options(**settings).load().toArrow().num_rows)


def connectorx(kind: str, host: str, port: str, user: str, password: str) -> Load:
    import connectorx

    url = f"{kind}://{user}:{password}@{host}:{port}/bench"
    return lambda: int(
        connectorx.read_sql(
            url,
            f"SELECT * FROM {TABLE}",
            return_type="arrow",
            partition_on="id",
            partition_range=(0, ROWS),
            partition_num=2,
        ).num_rows
    )


def driver(kind: str, host: str, port: str, user: str, password: str) -> Load:
    """psycopg, PyMySQL: rows as tuples."""

    def load() -> int:
        connection: Any
        if kind == "postgresql":
            import psycopg

            connection = psycopg.connect(host=host, port=port, user=user, password=password, dbname="bench")
        else:
            import pymysql

            connection = pymysql.connect(
                host=host, port=int(port), user=user, password=password, database="bench"
            )
        with connection, connection.cursor() as cursor:
            cursor.execute(f"SELECT * FROM {TABLE}")
            return len(cursor.fetchall())

    return load


LOADERS = {"millpond": millpond, "spark": spark, "connectorx": connectorx, "driver": driver}


def peak() -> int:
    """Megabytes that this process and those that it started have had at the most. ru_maxrss would begin with what the
    parent had."""
    parents = {}
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            text = status.read_text()
        except OSError:
            continue
        most = re.search(r"VmHWM:\s+(\d+)", text)
        parent = re.search(r"PPid:\s+(\d+)", text)
        if most and parent:
            parents[int(status.parent.name)] = int(parent[1]), int(most[1])
    mine = {int(Path("/proc/self").resolve().name)}
    while more := {pid for pid, (parent, _) in parents.items() if parent in mine} - mine:
        mine |= more
    return sum(parents[pid][1] for pid in mine if pid in parents) >> 10


def main(who: str, *where: str) -> None:
    load = LOADERS[who](*where)
    began = time.perf_counter()
    rows = load()
    seconds = time.perf_counter() - began
    assert rows == ROWS, f"{who} has loaded {rows} rows"
    print(json.dumps({"seconds": seconds, "megabytes": peak()}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
