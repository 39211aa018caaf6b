"""D4, D5: a table of a database into one of ours, and the delay of changes that are captured.

The load is of 1,000,000 rows, beside Spark's JDBC reader, ConnectorX and the driver used by hand, each in a process of
its own: rows a second, and the memory at the most. The delay is that from the end of COMMIT in the database until
the row is found in the table; beside it stands the log of the database read by hand, without any table.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from bench.databaseload import ROWS, TABLE
from bench.figure import Figure
from millpond import App
from tests.servers import Servers

PEERS = {"spark": "Spark's JDBC reader", "connectorx": "ConnectorX"}
DRIVERS = {"postgresql": "psycopg", "mysql": "PyMySQL"}
NAMES = {"postgresql": "PostgreSQL", "mysql": "MariaDB"}
COMMITS, WARM, PAUSE = 400, 50, 0.02
_COLUMNS = (
    "id BIGINT PRIMARY KEY, k INT, v DOUBLE PRECISION, price DECIMAL(12,2), name VARCHAR(40), made TIMESTAMP"
)
_FILLED = {
    "postgresql": f"""INSERT INTO {TABLE} SELECT i, i % 1000, i * 0.5, i % 100000 / 100.0,
        'name of number ' || i % 5000, TIMESTAMP '2024-01-01 00:00:00' + i * INTERVAL '1 second'
        FROM generate_series(0, {ROWS - 1}) i""",
    "mysql": f"""INSERT INTO {TABLE} SELECT seq, seq % 1000, seq * 0.5, seq % 100000 / 100.0,
        CONCAT('name of number ', seq % 5000), TIMESTAMP '2024-01-01 00:00:00' + INTERVAL seq SECOND
        FROM seq_0_to_{ROWS - 1}""",
}


_SETTLED = {"postgresql": f"VACUUM ANALYZE {TABLE}", "mysql": f"ANALYZE TABLE {TABLE}"}
"""What else the first who reads would wait for."""
ROUNDS = 2
"""Each load counts by the quickest of so many."""


def run() -> Iterator[Figure]:
    servers = Servers()
    try:
        for kind in NAMES:
            base = at_hand(kind, servers)
            base.execute(f"CREATE TABLE {TABLE} ({_COLUMNS})")
            base.execute(_FILLED[kind])
            base.execute(_SETTLED[kind])
            yield from _loads(kind, base)
            yield from _delays(kind, base)
    finally:
        servers.stop()


class PostgresAtHand:
    def __init__(self, servers: Servers):
        self.server = servers.postgresql
        self.server.execute("CREATE DATABASE bench")
        self.where = ("127.0.0.1", str(self.server.port), "millpond", "pond")

    def connect(self) -> Any:
        import psycopg

        return psycopg.connect(self.server.url("bench"), autocommit=True)

    def execute(self, sql: str) -> None:
        with self.connect() as connection:
            connection.execute(sql)

    def heard(self, stop: threading.Event) -> Iterator[int]:
        """The ids of rows that the log tells of, by hand: a slot that is asked all the time."""
        with self.connect() as connection:
            connection.execute("SELECT pg_create_logical_replication_slot('by_hand', 'pgoutput')")
            connection.execute(f"CREATE PUBLICATION by_hand FOR TABLE {TABLE}")
            yield -1
            asked = "SELECT data FROM pg_logical_slot_get_binary_changes('by_hand', NULL, NULL, %s, '1', %s, 'by_hand')"
            while not stop.is_set():
                for (data,) in connection.execute(asked, ("proto_version", "publication_names")).fetchall():
                    if (
                        data[:1] == b"I"
                    ):  # relation, N, number of columns, then t and the length of the id's text
                        size = int.from_bytes(data[9:13], "big")
                        yield int(data[13 : 13 + size])
                time.sleep(0.001)
            connection.execute("SELECT pg_drop_replication_slot('by_hand')")


class MariaDbAtHand:
    def __init__(self, servers: Servers):
        self.server = servers.mariadb
        self.server.new_database("bench")
        self.where = ("127.0.0.1", str(self.server.port), "millpond", "pond")

    def connect(self) -> Any:
        return self.server.connect("bench")

    def execute(self, sql: str) -> None:
        self.server.execute(sql, "bench")

    def heard(self, stop: threading.Event) -> Iterator[int]:
        """The ids of rows that the log tells of, by hand: mysql-replication."""
        from pymysqlreplication import BinLogStreamReader
        from pymysqlreplication.row_event import WriteRowsEvent

        file, position, *_ = self.server.execute("SHOW MASTER STATUS")[0]
        login = dict(zip(("host", "port", "user", "passwd"), self.where, strict=True))
        reader = BinLogStreamReader(
            connection_settings={**login, "port": int(login["port"])},
            server_id=77,
            log_file=file,
            log_pos=position,
            resume_stream=True,
            blocking=True,
            only_events=[WriteRowsEvent],
        )
        yield -1
        for event in reader:
            for row in event.rows:
                yield next(iter(row["values"].values()))
            if stop.is_set():
                break
        reader.close()


DatabaseAtHand = PostgresAtHand | MariaDbAtHand


def at_hand(kind: str, servers: Servers) -> DatabaseAtHand:
    """A database that is empty."""
    return PostgresAtHand(servers) if kind == "postgresql" else MariaDbAtHand(servers)


def uri_of(kind: str, base: DatabaseAtHand, table: str) -> str:
    user, password = base.where[2:]
    return f"{kind}://{user}:{password}@{base.where[0]}:{base.where[1]}/bench/{table}"


def _loads(kind: str, base: DatabaseAtHand) -> Iterator[Figure]:
    took: dict[str, dict[str, float]] = {}
    for who in ("millpond", "spark", "connectorx", "driver") * ROUNDS:
        command = [sys.executable, "-m", "bench.databaseload", who, kind, *base.where]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        if done.returncode:
            raise RuntimeError(f"{who} could not load {NAMES[kind]}: {done.stderr[-2000:]}")
        found = json.loads(done.stdout.splitlines()[-1])
        if who not in took or found["seconds"] < took[who]["seconds"]:
            took[who] = found
    ours = took.pop("millpond")
    peers = {**PEERS, "driver": DRIVERS[kind]}
    for who, theirs in took.items():
        what = f"load {ROWS:,} rows of {NAMES[kind]}"
        yield Figure("D5", what, ROWS / ours["seconds"], ROWS / theirs["seconds"], peers[who])
    for who, theirs in took.items():
        what = f"memory for {ROWS:,} rows of {NAMES[kind]}"
        yield Figure("D5", what, ours["megabytes"], theirs["megabytes"], peers[who], "MB", "peak")


def _delays(kind: str, base: DatabaseAtHand) -> Iterator[Figure]:
    base.execute(f"DELETE FROM {TABLE} WHERE id >= 1000")
    uri = uri_of(kind, base, TABLE)
    with tempfile.TemporaryDirectory() as scratch, App(state=Path(scratch) / "state") as app:
        app.sql(f"CREATE TABLE t AS SELECT * FROM '{uri}' WITH ('cdc' = 'true')")
        table = app.table("t")
        ours = _delay(base, 1_000_000, table.contains)
    stop, seen = threading.Event(), set[int]()
    heard = base.heard(stop)
    assert next(heard) == -1
    listener = threading.Thread(target=lambda: [seen.add(i) for i in heard])
    listener.start()
    by_hand = _delay(base, 2_000_000, seen.__contains__)
    stop.set()
    base.execute(f"INSERT INTO {TABLE} (id) VALUES (-1)")  # wakes who waits for the log
    listener.join(10)
    for p in (50, 99):
        x, y = (float(np.percentile(times, p)) for times in (ours, by_hand))
        what = f"COMMIT in {NAMES[kind]} to visible, 50/s, p{p}"
        yield Figure("D4", what, x, y, "the log by hand", unit="ms", per="commit")


def _delay(base: DatabaseAtHand, first: int, visible: Callable[[int], bool]) -> list[float]:
    """Milliseconds from the end of each commit until its row is there; rows come in the order of commits."""
    committed: list[float] = []

    def write() -> None:
        with base.connect() as connection, connection.cursor() as cursor:
            for i in range(COMMITS):
                cursor.execute(
                    f"INSERT INTO {TABLE} (id, k, name) VALUES (%s, %s, %s)", (first + i, i, f"n{i}")
                )
                committed.append(time.perf_counter())
                time.sleep(PAUSE)

    writer = threading.Thread(target=write)
    writer.start()
    found: list[float] = []
    deadline = time.monotonic() + 60
    while len(found) < COMMITS:
        if visible(first + len(found)):
            found.append(time.perf_counter())
        else:
            time.sleep(0.0005)
            if time.monotonic() > deadline:
                raise RuntimeError(f"only {len(found)} of {COMMITS} commits became visible")
    writer.join()
    return [(seen - done) * 1000 for done, seen in zip(committed, found, strict=True)][WARM:]
