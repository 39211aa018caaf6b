"""The log of changes of a table in PostgreSQL: what comes, in which order, and what survives what."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Iterator
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from millpond.changes import Offset
from millpond.connectors.cdc.log import Log
from millpond.connectors.postgresql import cdc, replication
from millpond.connectors.postgresql.cdc import PostgresLog
from millpond.errors import CaptureLost, ConnectionLost, InvalidOption, SourceChanged
from millpond.retry import Patience
from millpond.types import Column, Schema
from tests.logs import changes, next_changes
from tests.postgres_tables import following, source, without_slots
from tests.servers import Postgres, Servers


@pytest.fixture(scope="module")
def server(servers: Servers) -> Postgres:
    return without_slots(servers.own_postgresql)


@pytest.fixture
def table(server: Postgres) -> Iterator[str]:
    server.execute(
        "DROP TABLE IF EXISTS t CASCADE; CREATE TABLE t (id int PRIMARY KEY, a text, n numeric(10, 2))"
    )
    yield "t"
    server.execute("DROP TABLE IF EXISTS t CASCADE")


def row(key: Any, a: Any = None, n: Any = None) -> dict[str, Any]:
    return {"id": key, "a": a, "n": n}


def test_what_is_done_comes_in_its_order(server: Postgres, table: str) -> None:
    with following(server, table) as log:
        start, moment = log.begin()
        assert moment
        log.begun()
        assert log.latest(start, 10) == start
        server.execute(
            "INSERT INTO t VALUES (1, 'a'), (2, ''), (3, NULL); UPDATE t SET a = 'b' WHERE id = 1;"
            "UPDATE t SET id = 9 WHERE id = 2; DELETE FROM t WHERE id = 3; TRUNCATE t; INSERT INTO t VALUES (4, 'c')"
        )
        end, found = next_changes(log, start)
        assert found == [
            ("put", row(1, "a")),
            ("put", row(2, "")),
            ("put", row(3)),
            ("put", row(1, "b")),
            ("moved", row(2)),
            ("put", row(9, "")),
            ("ended", row(3)),
            ("emptied", row(None)),
            ("put", row(4, "c")),
        ]
        assert changes(log, start, end) == found
        assert log.latest(end, 10) == end and changes(log, end, end) == []


def test_transactions_are_whole_and_in_the_order_of_their_commits(server: Postgres, table: str) -> None:
    with (
        following(server, table) as log,
        psycopg.connect(server.url()) as one,
        psycopg.connect(server.url()) as two,
        psycopg.connect(server.url()) as undone,
    ):
        start, _ = log.begin()
        log.begun()
        one.execute("INSERT INTO t SELECT i FROM generate_series(1, 3) i")
        two.execute("INSERT INTO t SELECT i FROM generate_series(11, 13) i")
        undone.execute("INSERT INTO t VALUES (99)")
        one.execute("SAVEPOINT s")
        one.execute("INSERT INTO t VALUES (98)")
        one.execute("ROLLBACK TO s")
        assert log.latest(start, 10) == start
        two.commit()
        first, found = next_changes(log, start)
        assert [r["id"] for _, r in found] == [11, 12, 13]
        undone.rollback()
        one.commit()
        second, found = next_changes(log, first)
        assert [r["id"] for _, r in found] == [1, 2, 3]
        for i in range(20, 25):
            server.execute(f"INSERT INTO t VALUES ({i}), ({i + 100})")
        third, found = next_changes(log, second, rows=5)
        assert [r["id"] for _, r in found] == [20, 120, 21, 121]
        third, found = next_changes(log, third, rows=1)
        assert [r["id"] for _, r in found] == [22, 122]


def test_a_large_value_that_did_not_change_is_left_out(server: Postgres, table: str) -> None:
    server.execute(
        "ALTER TABLE t ALTER a SET STORAGE EXTERNAL; INSERT INTO t VALUES (1, repeat('x', 10000), 0)"
    )
    with following(server, table) as log:
        start, _ = log.begin()
        log.begun()
        server.execute("UPDATE t SET n = 1; UPDATE t SET id = 2; UPDATE t SET a = 'y'")
        start, found = next_changes(log, start)
        assert found == [
            ("put", {"id": 1, "a": None, "n": 1, "kept": ["a"]}),
            ("moved", row(1)),
            ("put", {"id": 2, "a": None, "n": 1, "kept": ["a"]}),
            ("put", {"id": 2, "a": "y", "n": 1}),
        ]
        server.execute(
            "UPDATE t SET a = repeat('z', 10000); ALTER TABLE t REPLICA IDENTITY FULL; UPDATE t SET n = 7"
        )
        _, found = next_changes(log, start)
        assert found[-1] == ("put", {"id": 2, "a": "z" * 10000, "n": 7}) and len(found) == 2


def test_a_table_without_a_key_is_followed_by_its_values(server: Postgres) -> None:
    server.execute(
        "DROP TABLE IF EXISTS plain CASCADE; CREATE TABLE plain (a int, b text);"
        "ALTER TABLE plain REPLICA IDENTITY FULL"
    )
    with following(server, "plain") as log:
        start, _ = log.begin()
        log.begun()
        server.execute(
            "INSERT INTO plain VALUES (1, 'x'), (1, 'x'); UPDATE plain SET b = NULL; DELETE FROM plain"
        )
        _, found = next_changes(log, start)
    x, none = {"a": 1, "b": "x"}, {"a": 1, "b": None}
    assert found[:2] == [("put", x)] * 2
    assert found[2:] == [("ended", x), ("put", none)] * 2 + [("ended", none)] * 2


def test_partitions_are_one_table(server: Postgres) -> None:
    server.execute(
        "DROP TABLE IF EXISTS parts; CREATE TABLE parts (id int PRIMARY KEY) PARTITION BY RANGE (id);"
        "CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (0) TO (10)"
    )
    with following(server, "parts") as log:
        start, _ = log.begin()
        log.begun()
        server.execute(
            "INSERT INTO parts VALUES (1); CREATE TABLE parts_2 PARTITION OF parts FOR VALUES FROM (10) TO (20);"
            "UPDATE parts SET id = 11; TRUNCATE parts"
        )
        _, found = next_changes(log, start)
    assert found == [("put", {"id": 1}), ("ended", {"id": 1}), ("put", {"id": 11}), ("emptied", {"id": None})]


@pytest.mark.parametrize(
    ("done", "said"),
    [
        (
            "CREATE TABLE parts_2 (LIKE parts); INSERT INTO parts_2 VALUES (11);"
            "ALTER TABLE parts ATTACH PARTITION parts_2 FOR VALUES FROM (10) TO (20)",
            "was attached",
        ),
        ("ALTER TABLE parts DETACH PARTITION parts_1", "was dropped or detached"),
        ("DROP TABLE parts_1", "was dropped or detached"),
    ],
)
def test_rows_that_come_or_go_with_a_partition_are_told(server: Postgres, done: str, said: str) -> None:
    server.execute(
        "DROP TABLE IF EXISTS parts, parts_1, parts_2; CREATE TABLE parts (id int) PARTITION BY RANGE (id);"
        "CREATE TABLE parts_0 PARTITION OF parts FOR VALUES FROM (20) TO (30)"
    )
    server.execute("ALTER TABLE parts_0 REPLICA IDENTITY FULL")
    with following(server, "parts") as log:
        start, _ = log.begin()
        log.begun()
        server.execute("CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (0) TO (10)")
        server.execute("INSERT INTO parts VALUES (1)")
        end, found = next_changes(log, start)
        assert found == [("put", {"id": 1})]
        server.execute(f"{done}; INSERT INTO parts VALUES (21)")
        with pytest.raises(CaptureLost, match=said):
            log.latest(end, 10)
        log.close()
        with following(server, "parts") as another, pytest.raises(CaptureLost, match=said):
            another.latest(end, 10)


@pytest.mark.parametrize("identity", ["DEFAULT", "FULL"])
def test_another_key_is_told(server: Postgres, table: str, identity: str) -> None:
    server.execute(f"INSERT INTO t VALUES (1, 'a', 1); ALTER TABLE t REPLICA IDENTITY {identity}")
    with following(server, table) as log:
        start, _ = log.begin()
        log.begun()
        server.execute("UPDATE t SET a = 'b'")
        end = log.latest(start, 10)
        assert log.fresh(start, end).columns == ()
        server.execute(
            "ALTER TABLE t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (n); INSERT INTO t VALUES (1, 'x', 2)"
        )
        start, end = end, log.latest(end, 10)
        with pytest.raises(SourceChanged, match=r"the key of public\.t is \(n\) now, and was \(id\)"):
            log.fresh(start, end)


def test_columns_that_come_and_go(server: Postgres, table: str, caplog: pytest.LogCaptureFixture) -> None:
    with following(server, table) as log:
        start, _ = log.begin()
        log.begun()
        server.execute("INSERT INTO t VALUES (1, 'a', 1)")
        server.execute(
            "ALTER TABLE t ADD more timestamptz; INSERT INTO t VALUES (2, 'b', 2, '2024-01-01 00:00:00Z')"
        )
        server.execute("ALTER TABLE t DROP a; INSERT INTO t VALUES (3, 3, NULL)")
        server.execute("ALTER TABLE t RENAME TO renamed; INSERT INTO renamed VALUES (4, 4, NULL)")
        end = log.latest(start, 100)
        fresh = log.fresh(start, end)
        assert fresh.names == ("more",) and fresh.columns[0].type == pa.timestamp("us", "UTC")
        log.schema = Schema((*log.schema, *fresh), log.schema.key)
        found = [(r["id"], r["a"], int(r["n"]), r["more"] is not None) for _, r in changes(log, start, end)]
        assert found == [(1, "a", 1, False), (2, "b", 2, True), (3, None, 3, False), (4, None, 4, False)]
        server.execute(
            "ALTER TABLE renamed ALTER n TYPE numeric(8, 1); INSERT INTO renamed VALUES (5, 5, NULL)"
        )
        start, end = end, log.latest(end, 100)
        assert log.fresh(start, end).columns == ()
        server.execute(
            "ALTER TABLE renamed ALTER n TYPE date USING NULL; INSERT INTO renamed VALUES (6, NULL, NULL)"
        )
        start, end = end, log.latest(end, 100)
        with pytest.raises(SourceChanged, match=r'"n" of public\.renamed is DATE now, and was DECIMAL'):
            log.fresh(start, end)
        server.execute("ALTER TABLE renamed RENAME TO t")


def test_nothing_is_lost_or_doubled_where_the_load_ends(server: Postgres, table: str) -> None:
    """Writers go on all the time: what the moment shows and what comes after is what is there."""
    stop, failed = threading.Event(), []

    def write(writer: int) -> None:
        choice = random.Random(writer)
        try:
            with psycopg.connect(server.url()) as connection:
                while not stop.is_set():
                    key = choice.randrange(500)
                    connection.execute(
                        "INSERT INTO t VALUES (%s, '0') ON CONFLICT (id) DO UPDATE SET a = t.a || '.'", (key,)
                    )
                    connection.execute("DELETE FROM t WHERE id = %s", (choice.randrange(500),))
                    connection.rollback() if choice.random() < 0.2 else connection.commit()
        except psycopg.errors.DeadlockDetected:
            write(writer + 100)
        except Exception as error:
            failed.append(error)

    writers = [threading.Thread(target=write, args=(i,)) for i in range(3)]
    for writer in writers:
        writer.start()
    try:
        for _ in range(3):
            with following(server, table, parallel_readers="2") as log:
                start, moment = log.begin()
                reader = source(server, table)
                with reader.database.connected(moment) as connection:
                    time.sleep(0.05)
                    found = connection.exec_driver_sql("SELECT id, a FROM t").fetchall()
                reader.close()
                here: dict[int, str] = {key: a for key, a in found}
                log.begun()
                time.sleep(0.1)
                if _ == 2:
                    stop.set()
                    for writer in writers:
                        writer.join()
                at = start
                while (end := log.latest(at, 50)) != at and (_ == 2 or at == start):
                    for op, changed in changes(log, at, end):
                        if op == "put":
                            here[changed["id"]] = changed["a"]
                        else:
                            assert here.pop(changed["id"])
                    at = end
        assert sorted(here.items()) == server.execute("SELECT id, a FROM t ORDER BY id")
    finally:
        stop.set()
        for writer in writers:
            writer.join()
    assert not failed


def test_the_server_goes_and_comes_back(server: Postgres, table: str) -> None:
    with following(server, table) as log:
        start, _ = log.begin()
        log.begun()
        server.execute("INSERT INTO t VALUES (1)")
        end = log.latest(start, 10)
        server.stop()
        with pytest.raises(ConnectionLost):
            for _ in range(3):
                log.latest(start, 10)
        server.start()
        server.execute("INSERT INTO t VALUES (2)")
        again = _patient(lambda: log.latest(start, 1))
        assert again == end
        assert changes(log, start, end) == [("put", row(1))]
        end, found = next_changes(log, end)
        assert found == [("put", row(2))]
        server.stop("fast")
        server.start()
        assert _patient(lambda: log.latest(end, 10)) == end


def _patient(work: Any) -> Any:
    deadline = time.monotonic() + 30
    while True:
        try:
            return work()
        except ConnectionLost:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_another_reader_goes_on_where_one_has_ended(
    server: Postgres, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = (source(server, table, slot_name="same") for _ in range(2))
    first = one.database.log("same", one.schema())
    start, _ = first.begin()
    first.begun()
    for i in (1, 2):
        server.execute(f"INSERT INTO t VALUES ({i})")
    middle = first.latest(start, 1)
    first.latest(middle, 1)
    first.close()
    one.close()
    second = other.database.log("same", other.schema())
    assert [r["id"] for _, r in next_changes(second, middle)[1]] == [2]
    with pytest.raises(ConnectionLost, match="is in use"):
        third = other.database.log("same", other.schema())
        monkeypatch.setattr(cdc, "_SHORT", Patience(0.1, 0.05, "fixed"))
        third.latest(middle, 1)
    server.execute("INSERT INTO t VALUES (3)")
    end = second.latest(middle, 10)
    assert second.latest(end, 10) == end
    second.close()
    deadline = time.monotonic() + 10
    while server.execute("SELECT 1 FROM pg_replication_slots WHERE active"):
        assert time.monotonic() < deadline
    assert second.latest(start, 1) == end  # a question from before changes nothing
    late = other.database.log("same", other.schema())
    with pytest.raises(CaptureLost, match="another reader"):
        late.latest(start, 1)
    late.close()
    second.drop()
    second.close()
    other.close()


def test_a_slot_that_is_gone_is_told(server: Postgres, table: str) -> None:
    with following(server, table) as log:
        start, _ = log.begin()
        log.begun()
        assert isinstance(log, PostgresLog)
        server.execute(f"SELECT pg_drop_replication_slot('{start['slot']}')")
        with pytest.raises(CaptureLost, match="has no slot"):
            log.latest(start, 1)
        start, _ = log.begin()
        log.begun()
        server.execute("DROP TABLE t; CREATE TABLE t (id int PRIMARY KEY)")
        with pytest.raises(CaptureLost, match="is not in"):
            log.latest(start, 1)
        start, _ = log.begin()
        log.begun()
        server.execute(f"DROP PUBLICATION {start['slot']}; INSERT INTO t VALUES (1)")
        with pytest.raises(CaptureLost, match="publication"):
            for _ in range(3):
                log.latest(start, 1)
        with pytest.raises(CaptureLost, match="another server"):
            log.latest({**log.begin()[0], "system": "1"}, 1)


def test_a_slot_that_kept_too_much_is_lost(
    server: Postgres, table: str, caplog: pytest.LogCaptureFixture
) -> None:
    with following(server, table, slot_lag_warn="1MB") as log:
        start, _ = log.begin()
        log.begun()
        server.execute("CREATE TABLE IF NOT EXISTS noise (a text)")
        server.execute("INSERT INTO noise SELECT repeat('x', 1000) FROM generate_series(1, 2000)")
        with caplog.at_level(logging.WARNING, "millpond"):
            log.latest(start, 1)
        assert "MB of log for the slot" in caplog.text and "before its disk is full" in caplog.text
        assert (log.lag() or 0) > 1 << 20
        log.close()
        server.execute("ALTER SYSTEM SET max_slot_wal_keep_size = '1MB'")
        server.execute("SELECT pg_reload_conf()")
        for _ in range(3):
            server.execute(
                "INSERT INTO noise SELECT repeat('x', 1000) FROM generate_series(1, 20000); SELECT pg_switch_wal()"
            )
            server.execute("CHECKPOINT")
        server.execute("ALTER SYSTEM RESET max_slot_wal_keep_size")
        server.execute("SELECT pg_reload_conf()")
        with (
            following(server, table) as another,
            pytest.raises(CaptureLost, match="max_slot_wal_keep_size"),
        ):
            another.latest(start, 1)


def test_the_slot_goes_on_while_only_others_write(
    server: Postgres, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PostgresLog, "idle", 100_000)
    with following(server, table) as log:
        start, _ = log.begin()
        log.begun()
        server.execute("CREATE TABLE IF NOT EXISTS noise (a text)")
        server.execute("INSERT INTO noise SELECT repeat('x', 1000) FROM generate_series(1, 1000)")
        end = log.latest(start, 10)
        assert end != start and changes(log, start, end) == []
        server.execute("INSERT INTO t VALUES (1)")
        _, found = next_changes(log, end)
        assert found == [("put", row(1))]


def test_a_large_transaction_waits_in_a_file(
    server: Postgres, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replication, "LARGE", 100_000)
    monkeypatch.setattr(replication, "_PIECE", 20_000)
    with following(server, table) as log:
        start, _ = log.begin()
        log.begun()
        server.execute("INSERT INTO t SELECT i, repeat('x', i % 50), i FROM generate_series(1, 20000) i")
        server.execute("INSERT INTO t VALUES (0)")
        end = log.latest(start, 10)
        for _ in range(2):
            found = pa.Table.from_batches(log.read(start, end))
            assert found["id"].to_pylist() == list(range(1, 20001))
            assert found["a"][49].as_py() == "" and found["a"][48].as_py() == "x" * 49
        assert isinstance(log, PostgresLog) and log._stream is not None
        assert log._stream._in_memory < 400_000
        assert [r["id"] for _, r in next_changes(log, end)[1]] == [0]


def test_it_tells_at_once_that_something_is_new(server: Postgres, table: str) -> None:
    with following(server, table) as log:
        start, _ = log.begin()
        log.begun()
        at, stop = start, threading.Event()
        server.execute("INSERT INTO t VALUES (0)")
        seen = []
        for _ in log.news(stop):
            at, found = next_changes(log, at)
            seen += [r["id"] for _, r in found]
            if found and len(seen) < 20:
                server.execute(f"INSERT INTO t VALUES ({len(seen)})")
            elif len(seen) == 20:
                stop.set()
        assert seen == list(range(20))


def test_where_to_begin(server: Postgres, table: str) -> None:
    with following(server, table) as log:
        server.execute("INSERT INTO t VALUES (1)")
        start = log.start("latest")
        server.execute("INSERT INTO t VALUES (2)")
        middle, found = next_changes(log, start)
        assert [r["id"] for _, r in found] == [2]
        server.execute("INSERT INTO t VALUES (3)")
        assert [r["id"] for _, r in next_changes(log, log.start("earliest"))[1]] == [2, 3]
        assert [r["id"] for _, r in next_changes(log, log.start(middle["lsn"]))[1]] == [3]
        with pytest.raises(CaptureLost, match="has the log from"):
            log.start("0/1")
        for wrong in ("now", "1/2; DROP TABLE t", ""):
            with pytest.raises(InvalidOption, match=r"cdc\.start"):
                log.start(wrong)


def test_columns_that_are_declared_otherwise(server: Postgres, table: str) -> None:
    with following(server, table) as log:
        log.schema = Schema((Column("N", pa.string()), Column("ID", pa.int64())), ("ID",))
        start, _ = log.begin()
        log.begun()
        server.execute("INSERT INTO t VALUES (1, 'a', 'NaN')")
        assert next_changes(log, start)[1] == [("put", {"N": "NaN", "ID": 1})]


def test_a_reader_of_ours_that_was_left_behind_is_ended(server: Postgres, table: str) -> None:
    """As after the machine of one has gone without a word."""
    one = source(server, table)
    left = one.database.log("a test", one.schema())
    start, _ = left.begin()
    left.begun()
    left.latest(start, 1)
    with following(server, table) as log:
        server.execute("INSERT INTO t VALUES (1)")
        assert next_changes(log, start)[1] == [("put", row(1))]
        left.close()
    one.close()


@pytest.mark.parametrize(("seed", "identity"), [(1, "DEFAULT"), (2, "FULL")])
def test_random_transactions_read_with_interruptions(
    server: Postgres, table: str, seed: int, identity: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is done, by two at once, and however often the reader dies: its rows are those of the table."""
    monkeypatch.setattr(replication, "LARGE", 5_000)
    monkeypatch.setattr(replication, "_PIECE", 2_000)
    server.execute(f"ALTER TABLE t ALTER a SET STORAGE EXTERNAL; ALTER TABLE t REPLICA IDENTITY {identity}")
    choice, here = random.Random(seed), Copied()
    read = source(server, table)
    log = read.database.log("random", read.schema())
    at, moment = log.begin()
    with read.database.connected(moment) as connection:
        assert connection.exec_driver_sql("SELECT * FROM t").fetchall() == []
    log.begun()
    with psycopg.connect(server.url()) as one, psycopg.connect(server.url()) as two:
        for _ in range(60):
            for connection, odd in ((one, 0), (two, 1)):  # each has keys of its own, so that none waits
                for _ in range(choice.randrange(4)):
                    _do_something(connection, choice, odd)
                if choice.random() < 0.5:
                    connection.rollback() if choice.random() < 0.2 else connection.commit()
            if choice.random() < 0.02:
                one.commit(), two.commit()
                server.execute("TRUNCATE t")
            if choice.random() < 0.3:
                end = log.latest(at, choice.choice((1, 50, 1000)))
                made = here.after(log, at, end)
                if choice.random() < 0.5:  # else it dies before it has kept them
                    at, here = end, made
                if choice.random() < 0.3:
                    log.close()
                    log = read.database.log("random", read.schema())
        one.commit(), two.commit()
    while (end := log.latest(at, 1000)) != at:
        here, at = here.after(log, at, end), end
    assert sorted(here.rows.values()) == server.execute("SELECT id, a, n FROM t ORDER BY id")
    log.drop()
    log.close()
    read.close()


def _do_something(connection: psycopg.Connection[Any], choice: random.Random, odd: int) -> None:
    key, other = (choice.randrange(0, 60, 2) + odd for _ in range(2))
    long = choice.choice("xyz") * choice.choice((1, 5000))
    match choice.randrange(6):
        case 0 | 1:
            connection.execute(
                "INSERT INTO t VALUES (%s, %s, 0) ON CONFLICT (id) DO UPDATE SET n = 1", (key, long)
            )
        case 2:
            connection.execute(
                "UPDATE t SET n = coalesce(n, 0) + 1 WHERE id %% 2 = %s AND id < %s", (odd, key)
            )
        case 3:
            moved = "UPDATE t SET id = %s WHERE id = %s AND NOT EXISTS (SELECT FROM t WHERE id = %s)"
            connection.execute(moved, (other, key, other))
        case 4:
            connection.execute("UPDATE t SET a = %s WHERE id = %s", (long, key))
        case _:
            connection.execute("DELETE FROM t WHERE id = %s", (key,))


class Copied:
    """Rows by key, and what a log does to them."""

    def __init__(self, rows: dict[int, tuple[Any, ...]] | None = None):
        self.rows = dict(rows or {})

    def after(self, log: Log, start: Offset, end: Offset) -> Copied:
        made, moved = Copied(self.rows), None
        for op, changed in changes(log, start, end):
            if op == "emptied":
                made.rows.clear()
            elif op == "put":
                before = moved or made.rows.get(changed["id"], (None, None, None))
                kept = changed.get("kept", ())
                values = [
                    before[i] if name in kept else changed[name] for i, name in enumerate(("id", "a", "n"))
                ]
                made.rows[changed["id"]], moved = tuple(values), None
            else:
                gone = made.rows.pop(changed["id"])
                moved = gone if op == "moved" else None
        return made


def test_a_record_that_is_on_the_disk_in_part_is_not_waited_for(server: Postgres, table: str) -> None:
    with following(server, table) as log, psycopg.connect(server.url()) as writer:
        at, _ = log.begin()
        log.begun()
        before = server.execute("SELECT pg_current_wal_flush_lsn()")
        count = 0
        while (
            server.execute("SELECT pg_current_wal_flush_lsn()") == before
        ):  # whole pages are written now and then
            writer.execute("INSERT INTO t VALUES (%s, repeat('x', 1500))", (count,))
            count += 1
        assert log.latest(at, 10) == at
        writer.commit()
        assert len(next_changes(log, at)[1]) == count
