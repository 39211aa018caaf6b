"""kill -9 of an app, again and again, for each pair whose delivery is exactly once: a stream into every sink and into
tables of every database, and the changes of a table into databases and a topic. At the end the rows that are there, and
a checksum of them, are those that were sent.

This file is also the program that is killed.
"""

from __future__ import annotations

import io
import json
import os
import random
import sqlite3
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from millpond import App
from millpond.engine_rule import Engine
from tests.servers import Servers
from tests.test_chaos import digest
from tests.test_kafka import new_topic, uri
from tests.test_kill import kill_after, run_to_the_end, running, say

CHUNK = 500
"""Rows that are sent at once."""
AHEAD = 10
"""Chunks by which the sender is ahead of the slowest query, at the most: kills meet all of them at work."""
STREAM = """
CREATE STREAM s (id BIGINT, k INT, amount DECIMAL(12, 2), name STRING) WITH ('batch.max.rows' = '2000');
"""
COLUMNS = "id, k, amount, name"
SINK = f"INSERT INTO {{target}} SELECT {COLUMNS} FROM s WITH ({{options}}, 'query.name' = 'out');"
TABLES = """
CREATE TABLE log (id BIGINT, k INT, amount DECIMAL(12, 2), name STRING) WITH ({options}'table' = 'log{suffix}');
CREATE TABLE last (k INT PRIMARY KEY, id BIGINT) WITH ({options}'table' = 'last{suffix}');
CREATE TABLE sums WITH ({options}'table' = 'sums{suffix}')
  AS SELECT k, COUNT(*) AS n, SUM(amount) AS total FROM s GROUP BY k;
INSERT INTO log SELECT id, k, amount, name FROM s;
INSERT INTO last SELECT k, id FROM s;
"""
CHANGES = """
CREATE TABLE seen (id BIGINT PRIMARY KEY, k INT, amount DECIMAL(12, 2), name STRING);
CREATE TABLE newest (k INT PRIMARY KEY, id BIGINT);
INSERT INTO seen SELECT id, k, amount, name FROM s;
INSERT INTO newest SELECT k, id FROM s;
INSERT INTO {log} SELECT id, k, amount, name FROM seen EMIT CHANGES WITH ({options}'query.name' = 'log');
INSERT INTO {last} SELECT k, id FROM newest EMIT CHANGES WITH ({options}'query.name' = 'last');
"""
SENT = {
    "log": f"SELECT {COLUMNS} FROM sent",
    "last": "SELECT k, MAX(id) FROM sent GROUP BY k",
    "sums": "SELECT k, COUNT(*), SUM(amount) FROM sent GROUP BY k",
}
"""What is to be in each relation."""


def events(start: int, end: int) -> pa.Table:
    """Rows start … end-1; the same each time."""
    return duckdb.sql(
        f"""
        SELECT n::BIGINT AS id, (hash(n) % 1000)::INT AS k, ((hash(n * 17) % 100000) / 100.0)::DECIMAL(12, 2) AS amount,
               'name ' || hash(n * 31) % 5000 AS name
        FROM range({start}, {end}) t(n)
        """
    ).to_arrow_table()


# the program that is killed


def work(sql: str, state: str, rows: str, engine: Engine, inside: str) -> None:
    """Sends the rows. With names of tables ``inside`` it ends, and prints their checksums."""
    say("start")
    with App(sql, state=state, engine=engine) as app:
        say("ready")
        for start in range(app._runtime.journal.stream_end("s"), int(rows), CHUNK):
            app.send("s", events(start, min(start + CHUNK, int(rows))))
            while any((q["lag"] or 0) > AHEAD * CHUNK for q in app.sql("SHOW QUERIES").rows()):
                time.sleep(0.01)
            say("sent")
        while not inside:
            time.sleep(0.05)
            say("sent")
        app.drain(timeout=1_200)
        while any(q["lag"] for q in app.sql("SHOW QUERIES").rows()):  # changes of tables
            time.sleep(0.05)
        names = [name for name in inside.split(",") if name != "-"]
        print(json.dumps({n: digest(app.sql(f"SELECT * FROM {n}").to_arrow()) for n in names}), flush=True)


# the pairs


@dataclass
class Pair:
    text: str
    outside: dict[str, Callable[[], pa.Table]] = field(default_factory=dict)
    """Reads each relation that is not the app's, without the app."""
    inside: tuple[str, ...] = ()
    """Tables of the app."""
    engine: Engine = "process"


def _log(rows: list[Any]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [()] * 4
    amounts = [Decimal(f"{amount:.2f}") for amount in columns[2]]  # SQLite has them as REAL
    types = (pa.int64(), pa.int32(), pa.decimal128(12, 2), pa.string())
    values = (columns[0], columns[1], amounts, columns[3])
    return pa.table([pa.array(v, t) for v, t in zip(values, types, strict=True)], COLUMNS.split(", "))


def _last(rows: list[Any]) -> pa.Table:
    return pa.Table.from_pylist([{"k": row[0], "id": row[1]} for row in rows])


def _read(execute: Callable[[str], list[Any]]) -> dict[str, Callable[[], pa.Table]]:
    """Reads the tables of a database."""
    return {
        "log": lambda: _log(execute(f"SELECT {COLUMNS} FROM log")),
        "last": lambda: _last(execute("SELECT k, id FROM last")),
    }


Made = tuple[str, Callable[[str], list[Any]]]


def _database(kind: str, servers: Servers, directory: Path) -> Made:
    """The URI of a new database, and what executes SQL there."""
    name = f"pair{uuid.uuid4().hex[:8]}"
    if kind == "postgresql":
        url, server = servers.postgresql.new_schema(name), servers.postgresql
        return url, lambda sql: server.execute(sql, url)
    if kind == "mysql":
        maria = servers.mariadb
        return maria.new_database(name), lambda sql: maria.execute(sql, name)

    def execute(sql: str) -> list[Any]:
        with closing(sqlite3.connect(directory / "out.db")) as connection:
            return connection.execute(sql).fetchall()

    return f"sql://sqlite:///{directory}/out.db", execute


def into_database(kind: str, servers: Servers, directory: Path) -> Pair:
    url, execute = _database(kind, servers, directory)
    text = STREAM + SINK.format(target=url, options="'table' = 'log'")
    return Pair(text, {"log": _read(execute)["log"]})


def into_files(kind: str, servers: Servers, directory: Path) -> Pair:
    """Written by the driver, or by executors."""
    out, by_tasks = directory / "out", kind == "executors"
    more = "'engine' = 'spark', " if by_tasks else ""
    text = STREAM + SINK.format(target=f"file://{out}", options=f"{more}'format' = 'parquet'")
    engine: Engine = "auto" if by_tasks else "process"

    def found() -> pa.Table:
        files = [f for f in sorted(out.rglob("*.parquet")) if ".millpond" not in f.parts]
        return pa.concat_tables(pq.read_table(f, partitioning=None) for f in files)

    return Pair(text, {"log": found}, engine=engine)


def into_objects(kind: str, servers: Servers, directory: Path) -> Pair:
    s3, bucket = servers.s3, f"pair{uuid.uuid4().hex[:8]}"
    client = s3.client()
    client.create_bucket(Bucket=bucket)
    options = "".join(f"'{k}' = '{v}', " for k, v in s3.options.items()) + "'format' = 'parquet'"

    def found() -> pa.Table:
        pages = client.get_paginator("list_objects_v2").paginate(Bucket=bucket)
        keys = [o["Key"] for page in pages for o in page.get("Contents", ()) if ".millpond" not in o["Key"]]
        objects = (io.BytesIO(client.get_object(Bucket=bucket, Key=key)["Body"].read()) for key in keys)
        return pa.concat_tables(map(pq.read_table, objects))

    return Pair(STREAM + SINK.format(target=f"s3://{bucket}/out", options=options), {"log": found})


def into_delta(kind: str, servers: Servers, directory: Path) -> Pair:
    out = f"{directory}/out"
    text = STREAM + SINK.format(target=f"delta://{out}", options="'mode' = 'append'")
    return Pair(text, {"log": lambda: DeltaTable(out).to_pyarrow_table()})


def tables_in(kind: str, servers: Servers, directory: Path) -> Pair:
    name = f"pair{uuid.uuid4().hex[:8]}"
    options = {
        "sqlite": lambda: "",
        "postgresql": lambda: f"'url' = '{servers.postgresql.new_schema(name)}', ",
        "mysql": lambda: f"'url' = '{servers.mariadb.new_database(name)}', ",
        "mongodb": lambda: f"'url' = '{servers.mongodb.url(name)}', ",
        "redis": lambda: f"'url' = '{servers.redis.url(3)}', 'prefix' = '{name}:', ",
        "delta": lambda: f"'path' = '{directory}/lake/', 'flush.interval' = '200ms', ",
    }[kind]()
    text = TABLES.format(options=f"'extension' = '{kind}', {options}", suffix="")
    if kind in ("delta", "redis"):  # they have no option of that name
        for table in ("log", "last", "sums"):
            text = text.replace(f", 'table' = '{table}'", "")
            text = text.replace("/lake/'", f"/lake/{table}'", 1)
    return Pair(STREAM + text, inside=("log", "last", "sums"))


def changes_into(kind: str, servers: Servers, directory: Path) -> Pair:
    url, execute = _database(kind, servers, directory)
    joined = "&" if "?" in url else "?"
    log, last = (f"{url}{joined}table={name}" for name in ("log", "last"))
    return Pair(STREAM + CHANGES.format(log=log, last=last, options=""), _read(execute))


def changes_into_a_topic(kind: str, servers: Servers, directory: Path) -> Pair:
    """Each row is inserted once, and so is its message; of keys that change the last message counts."""
    kafka = servers.kafka
    log, last = new_topic(kafka), new_topic(kafka)

    def messages(topic: str) -> list[dict[str, Any]]:
        return [json.loads(v or b"", parse_float=Decimal) for _, v in kafka.consume(topic)]

    def newest() -> list[tuple[int, int]]:
        return list({m["k"]: m["id"] for m in messages(last)}.items())

    outside = {
        "log": lambda: _log([(m["id"], m["k"], m["amount"], m["name"]) for m in messages(log)]),
        "last": lambda: _last(newest()),
    }
    text = CHANGES.format(log=uri(kafka, log), last=uri(kafka, last), options="'delivery' = 'exactly-once', ")
    return Pair(STREAM + text, outside)


PAIRS: dict[str, tuple[Callable[[str, Servers, Path], Pair], str]] = {
    "stream into files": (into_files, "driver"),
    "stream into files, by executors": (into_files, "executors"),
    "stream into s3": (into_objects, "s3"),
    "stream into postgresql": (into_database, "postgresql"),
    "stream into mysql": (into_database, "mysql"),
    "stream into sqlite": (into_database, "sqlite"),
    "stream into delta": (into_delta, "delta"),
    **{
        f"tables in {kind}": (tables_in, kind)
        for kind in ("postgresql", "mysql", "sqlite", "mongodb", "redis", "delta")
    },
    "changes into postgresql": (changes_into, "postgresql"),
    "changes into mysql": (changes_into, "mysql"),
    "changes into sqlite": (changes_into, "sqlite"),
    "changes into a topic": (changes_into_a_topic, "kafka"),
}


# the killer


def moments(kills: int, sends: int, chance: random.Random) -> Iterator[tuple[str, int, float]]:
    """Word, times and delay of each kill: mostly while rows come, now and then while it starts or catches up."""
    for number in range(kills):
        if number % 5 == 4:
            yield "start", 1, chance.uniform(0.3, 2)
        elif number % 5 == 3:
            yield "ready", 1, chance.uniform(0, 0.5)
        else:
            yield "sent", chance.randint(1, max(1, 2 * sends // kills)), chance.uniform(0, 0.2)


def check(name: str, servers: Servers, directory: Path, *, rows: int, kills: int, seed: int) -> None:
    make, kind = PAIRS[name]
    pair = make(kind, servers, directory)
    command = (sys.executable, "-m", __name__, pair.text, str(directory / "state"), str(rows), pair.engine)
    for moment in moments(kills, rows // CHUNK, random.Random(seed)):
        with running(*command, "") as process:
            kill_after(process, *moment)
            assert process.returncode == -9, process.stderr.read() if process.stderr else ""
    inside = ",".join(pair.inside) or "-"
    found = json.loads(run_to_the_end(*command, inside, timeout=1_800).splitlines()[-1])
    found |= {relation: digest(read()) for relation, read in pair.outside.items()}
    sent = duckdb.connect()
    sent.register("sent", events(0, rows))
    assert found == {relation: digest(sent.sql(SENT[relation]).to_arrow_table()) for relation in found}


SHORT = ("stream into s3", "stream into mysql", "stream into sqlite", "changes into mysql")
"""Others have short tests: test_sink_faults.py, test_kill_databases.py, test_kill_delta_tables.py and
test_kill_changes.py."""


@pytest.mark.slow
@pytest.mark.parametrize("name", SHORT)
def test_a_few_kills(name: str, servers: Servers, tmp_path: Path) -> None:
    check(name, servers, tmp_path, rows=4_000, kills=2, seed=1)


@pytest.mark.chaos
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("name", PAIRS)
def test_fifty_kills(name: str, servers: Servers, tmp_path: Path) -> None:
    """MILLPOND_KILLS and MILLPOND_ROWS choose another number of kills and rows."""
    kills, rows = (int(os.environ.get(f"MILLPOND_{n}", v)) for n, v in (("KILLS", 50), ("ROWS", 500_000)))
    check(name, servers, tmp_path, rows=rows, kills=kills, seed=0)


if __name__ == "__main__":
    work(*sys.argv[1:])
