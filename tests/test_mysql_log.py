"""The log of changes of a table in MariaDB: what comes, in which order, and what survives what."""

from __future__ import annotations

import random
import threading
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from millpond.connectors.mysql import transactions
from millpond.connectors.mysql.cdc import BinLog
from millpond.errors import (
    BadData,
    CaptureLost,
    CaptureRefused,
    ConnectionLost,
    InvalidOption,
    SourceChanged,
)
from millpond.retry import for_connections
from millpond.types import Column, Schema
from tests.mysql_tables import changes, following, next_changes, source
from tests.servers import MariaDb, Servers


@pytest.fixture(scope="module")
def server(servers: Servers) -> MariaDb:
    return servers.mariadb


@pytest.fixture
def home(server: MariaDb) -> Iterator[str]:
    name = f"d{uuid.uuid4().hex[:8]}"
    server.new_database(name)
    server.execute("CREATE TABLE t (id int PRIMARY KEY, a varchar(20), n decimal(10, 2))", name)
    yield name
    server.execute(f"DROP DATABASE IF EXISTS {name}")


def row(key: Any, a: Any = None, n: Any = None) -> dict[str, Any]:
    return {"id": key, "a": a, "n": n}


def run(server: MariaDb, home: str, *statements: str) -> None:
    with server.connect(home) as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def test_what_is_done_comes_in_its_order(server: MariaDb, home: str) -> None:
    with following(server, home) as log:
        start, moment = log.begin()
        assert moment
        log.begun()
        assert log.latest(start, 10) == start
        run(
            server,
            home,
            "INSERT INTO t VALUES (1, 'a', NULL), (2, '', 1.5), (3, NULL, NULL)",
            "UPDATE t SET a = 'b' WHERE id = 1",
            "UPDATE t SET id = 9 WHERE id = 2",
            "DELETE FROM t WHERE id = 3",
            "TRUNCATE t",
            "INSERT INTO t VALUES (4, 'c', 2)",
        )
        end, found = next_changes(log, start)
        assert [(what, r["id"], r["a"]) for what, r in found] == [
            ("put", 1, "a"),
            ("put", 2, ""),
            ("put", 3, None),
            ("put", 1, "b"),
            ("moved", 2, None),
            ("put", 9, ""),
            ("ended", 3, None),
            ("emptied", None, None),
            ("put", 4, "c"),
        ]
        assert log.latest(end, 10) == end
        assert changes(log, start, end) == found


def test_transactions_are_whole_and_those_rolled_back_are_not_there(server: MariaDb, home: str) -> None:
    server.execute("CREATE TABLE u (id int)", home)
    with following(server, home) as log:
        start, _ = log.begin()
        log.begun()
        run(
            server,
            home,
            "BEGIN",
            *(f"INSERT INTO t (id) VALUES ({i})" for i in range(20)),
            "INSERT INTO u VALUES (1)",
            "SAVEPOINT s",
            "INSERT INTO t (id) VALUES (100)",
            "ROLLBACK TO s",
            "COMMIT",
            "BEGIN",
            "INSERT INTO t (id) VALUES (200)",
            "ROLLBACK",
            "INSERT INTO u VALUES (2)",
            "INSERT INTO t (id) VALUES (300)",
        )
        end, found = next_changes(log, start, 1)
        assert [r["id"] for _, r in found] == list(range(20))
        end, found = next_changes(log, end, 1)
        assert [r["id"] for _, r in found] == [300]


def test_what_a_table_without_transactions_did_stays_when_one_rolls_back(server: MariaDb, home: str) -> None:
    server.execute("CREATE TABLE m (id int PRIMARY KEY) ENGINE = MyISAM", home)
    statements = ["BEGIN", "INSERT INTO t (id) VALUES (1)", "SAVEPOINT s", "INSERT INTO m VALUES (1)"]
    statements += ["INSERT INTO t (id) VALUES (2)", "ROLLBACK TO s", "INSERT INTO m VALUES (2)"]
    with following(server, home) as log, following(server, home, "m") as other:
        start, _ = log.begin()
        log.begun()
        run(server, home, *statements, "ROLLBACK", "TRUNCATE m", *statements, "COMMIT")
        _, found = next_changes(log, start)
        assert [r["id"] for _, r in found] == [1]
        assert [r["id"] for _, r in next_changes(other, start)[1]][:2] == [1, 2]


def test_a_large_transaction_waits_in_a_file(
    server: MariaDb, home: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactions, "IN_MEMORY", 10_000)
    with following(server, home) as log:
        start, _ = log.begin()
        log.begun()
        server.execute("INSERT INTO t SELECT seq, REPEAT('x', 20), 0 FROM seq_1_to_5000", home)
        server.execute("UPDATE t SET id = -id", home)
        end, found = next_changes(log, start, 1)
        assert [r["id"] for _, r in found] == list(range(1, 5001))
        found = next_changes(log, end)[1]
        assert [(w, r["id"]) for w, r in found[:4]] == [("moved", 1), ("put", -1), ("moved", 2), ("put", -2)]
        assert len(found) == 10_000


def test_a_table_without_a_key_has_its_rows_told_in_full(server: MariaDb, home: str) -> None:
    server.execute("CREATE TABLE k (a int, b varchar(5))", home)
    with following(server, home, "k") as log:
        start, _ = log.begin()
        log.begun()
        run(server, home, "INSERT INTO k VALUES (1, 'x')", "UPDATE k SET b = 'y'", "DELETE FROM k")
        _, found = next_changes(log, start)
        assert found == [
            ("put", {"a": 1, "b": "x"}),
            ("ended", {"a": 1, "b": "x"}),
            ("put", {"a": 1, "b": "y"}),
            ("ended", {"a": 1, "b": "y"}),
        ]


def test_log_files_rotate_and_an_offset_moves_on(server: MariaDb, home: str) -> None:
    with following(server, home) as log:
        start, _ = log.begin()
        log.begun()
        run(
            server,
            home,
            "INSERT INTO t (id) VALUES (1)",
            "FLUSH BINARY LOGS",
            "INSERT INTO t (id) VALUES (2)",
        )
        end, found = next_changes(log, start)
        assert [r["id"] for _, r in found] == [1, 2] and end["file"] != start["file"]
        server.execute("FLUSH BINARY LOGS")
        moved = log.latest(end, 10)
        assert moved["file"] > end["file"] and changes(log, end, moved) == []
        server.execute("INSERT INTO t (id) VALUES (3)", home)
        assert [r["id"] for _, r in next_changes(log, moved)[1]] == [3]


def test_another_log_reads_the_same_from_any_place(server: MariaDb, home: str) -> None:
    with following(server, home) as log, following(server, home) as other:
        at, _ = log.begin()
        log.begun()
        places, all_found = [at], []
        for i in range(5):
            server.execute(f"INSERT INTO t (id) VALUES ({i}), ({i + 10})", home)
            at, found = next_changes(log, at)
            places.append(at)
            all_found.append(found)
        assert changes(other, places[0], places[-1]) == [c for found in all_found for c in found]
        assert changes(other, places[2], places[3]) == all_found[2]
        assert changes(other, places[1], places[2]) == all_found[1]


def test_compressed_events_and_events_without_checksums_are_read(server: MariaDb, home: str) -> None:
    try:
        with following(server, home) as log:
            start, _ = log.begin()
            log.begun()
            server.execute("SET GLOBAL log_bin_compress = ON", user="root")
            server.execute("SET GLOBAL log_bin_compress_min_len = 10", user="root")
            server.execute("INSERT INTO t VALUES (1, REPEAT('x', 20), 1)", home)
            server.execute("UPDATE t SET a = REPEAT('y', 20)", home)
            server.execute("SET GLOBAL binlog_checksum = NONE", user="root")
            server.execute("DELETE FROM t", home)
            server.execute(
                "TRUNCATE TABLE /* comments are passed over, also long ones, so that it is packed */ t", home
            )
            found = next_changes(log, start)[1]
            assert [what for what, _ in found] == ["put", "put", "ended", "emptied"]
            assert found[1][1]["a"] == "y" * 20
    finally:
        server.execute("SET GLOBAL log_bin_compress = OFF", user="root")
        server.execute("SET GLOBAL binlog_checksum = CRC32", user="root")


# where it begins


def test_it_begins_at_the_earliest_the_latest_or_a_named_place(server: MariaDb, home: str) -> None:
    server.execute("INSERT INTO t (id) VALUES (1)", home)
    file, position = server.execute("SHOW MASTER STATUS")[0][:2]
    server.execute("INSERT INTO t (id) VALUES (2)", home)
    with following(server, home) as log:
        assert [r["id"] for _, r in next_changes(log, log.start("earliest"))[1]] == [1, 2]
        assert next_changes(log, log.start("latest"))[1] == []
        assert [r["id"] for _, r in next_changes(log, log.start(f"{file}:{position}"))[1]] == [2]
        with pytest.raises(InvalidOption, match='cannot be "yesterday"'):
            log.start("yesterday")
        with pytest.raises(CaptureLost, match=r'does not have its log from "binlog\.999999:4" on'):
            log.start("binlog.999999:4")
    options = {"cdc": "true", "initial_load": "none", "binlog_file": file, "binlog_position": str(position)}
    with following(server, home, **options) as log:
        assert [r["id"] for _, r in next_changes(log, log.start("latest"))[1]] == [2]
    auto = {"cdc": "true", "initial_load": "none", "binlog_file": file, "binlog_position": "auto"}
    with following(server, home, **auto) as log:  # from the beginning of the file
        assert [r["id"] for _, r in next_changes(log, log.start("latest"))[1]][-2:] == [1, 2]
    with following(server, home, **(auto | {"binlog_file": "auto", "initial_load": "full"})) as log:
        assert next_changes(log, log.start("latest"))[1] == []
    with pytest.raises(InvalidOption, match="cannot be") as wrong:
        source(server, home, "t", cdc="true", binlog_position="soon")
    assert wrong.value.hint == "it is a whole number, or 'auto'"
    with pytest.raises(InvalidOption, match=r'"binlog\.position" needs "binlog\.file"'):
        source(server, home, "t", cdc="true", binlog_position="99")
    with pytest.raises(InvalidOption, match=r'"binlog\.file" is for changes without'):
        source(server, home, "t", cdc="true", binlog_file=file)


def test_a_place_within_a_transaction_is_refused(server: MariaDb, home: str) -> None:
    file = server.execute("SHOW MASTER STATUS")[0][0]
    server.execute("INSERT INTO t (id) VALUES (1)", home)
    events = server.execute(f"SHOW BINLOG EVENTS IN '{file}'")
    place = max(e[1] for e in events if e[2] == "Write_rows_v1")
    with following(server, home) as log, pytest.raises(BadData, match="in the middle of a transaction"):
        log.latest(log.start(f"{file}:{place}"), 10)


# the table changes


def test_an_added_column_is_told_and_a_dropped_one_is_null(server: MariaDb, home: str) -> None:
    with following(server, home) as log:
        start, _ = log.begin()
        log.begun()
        run(
            server,
            home,
            "INSERT INTO t VALUES (1, 'a', 1)",
            "ALTER TABLE t ADD COLUMN b bigint unsigned FIRST, DROP COLUMN n",
            "INSERT INTO t (id, a, b) VALUES (2, 'b', 7)",
            "ALTER TABLE t RENAME COLUMN a TO c",
            "INSERT INTO t (id, c, b) VALUES (3, 'd', 8)",
        )
        end = log.latest(start, 1000)
        fresh = log.fresh(start, end)
        assert [(c.name, c.type) for c in fresh] == [("b", pa.decimal128(20, 0)), ("c", pa.string())]
        log.schema = Schema((*log.schema, *fresh), log.schema.key)
        rows = [tuple(r.values()) for _, r in changes(log, start, end)]
        assert rows == [(1, "a", 1, None, None), (2, "b", None, 7, None), (3, None, None, 8, "d")]


def test_a_column_of_another_type_is_told_unless_its_values_fit(server: MariaDb, home: str) -> None:
    with following(server, home) as log:
        start, _ = log.begin()
        log.begun()
        log.schema = Schema((Column("id", pa.int64()), Column("a", pa.string())), ("id",))
        run(
            server,
            home,
            "ALTER TABLE t MODIFY id bigint, MODIFY a varchar(90)",
            "INSERT INTO t (id) VALUES (1)",
        )
        end = log.latest(start, 10)
        assert log.fresh(start, end).names == ("n",) and len(changes(log, start, end)) == 1
        run(server, home, "ALTER TABLE t MODIFY a varbinary(90)", "INSERT INTO t (id, a) VALUES (2, 'x')")
        later = log.latest(end, 10)
        with pytest.raises(SourceChanged, match=r'column "a" of .* has become BINARY; here it is STRING'):
            log.fresh(end, later)


def test_another_key_is_told(server: MariaDb, home: str) -> None:
    with following(server, home) as log:
        start, _ = log.begin()
        log.begun()
        run(server, home, "INSERT INTO t VALUES (1, 'a', 1)")
        end = log.latest(start, 10)
        assert log.fresh(start, end).columns == () and end["key"] == ["id"]
        for change, key in (
            ("DROP PRIMARY KEY, ADD PRIMARY KEY (n, a(2))", "n, a"),
            ("DROP PRIMARY KEY", "none"),
        ):
            run(server, home, f"ALTER TABLE t {change}", f"INSERT INTO t VALUES (1, 'a', {len(key) + 10})")
            start, end = end, log.latest(end, 10)
            with pytest.raises(SourceChanged, match=rf"is \({key}\) now, and was \(id\)"):
                log.fresh(start, end)


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("DROP TABLE t", "was dropped"),
        ("RENAME TABLE t TO gone", "was renamed"),
        ("ALTER TABLE t RENAME TO gone", "was renamed"),
        ("CREATE OR REPLACE TABLE t (id int)", "was replaced"),
        ("SET STATEMENT binlog_format = 'STATEMENT' FOR DELETE FROM t", "logged as text"),
    ],
)
def test_what_the_log_cannot_follow_is_told(server: MariaDb, home: str, statement: str, said: str) -> None:
    with following(server, home) as log:
        start, _ = log.begin()
        log.begun()
        run(server, home, "INSERT INTO t (id) VALUES (1)", "CREATE TABLE t2 LIKE t", "RENAME TABLE t2 TO t3")
        run(server, home, "DROP TABLE t3", statement)
        end, found = next_changes(log, start)
        assert len(found) == 1  # what was before it is there
        for _ in range(2):
            with pytest.raises(CaptureLost, match=said):
                log.latest(end, 10)


def test_transactions_in_two_phases_are_told_only_if_they_touch_the_table(server: MariaDb, home: str) -> None:
    server.execute("CREATE TABLE u (id int)", home)
    two = ("XA END 'x'", "XA PREPARE 'x'", "XA COMMIT 'x'")
    with following(server, home) as log:
        start, _ = log.begin()
        log.begun()
        run(server, home, "XA START 'x'", "INSERT INTO u VALUES (1)", *two)
        run(
            server,
            home,
            "XA START 'x'",
            "INSERT INTO t (id) VALUES (1)",
            "XA END 'x'",
            "XA COMMIT 'x' ONE PHASE",
        )
        end, found = next_changes(log, start)
        assert [r["id"] for _, r in found] == [1]
        run(server, home, "XA START 'x'", "INSERT INTO t (id) VALUES (2)", *two)
        with pytest.raises(CaptureLost, match="in an XA transaction"):
            log.latest(end, 10)


def test_rows_logged_in_parts_or_without_names_are_refused(server: MariaDb, home: str) -> None:
    with following(server, home) as log:
        start, _ = log.begin()
        log.begun()
        run(
            server,
            home,
            "SET binlog_row_image = 'MINIMAL'",
            "INSERT INTO t (id) VALUES (1)",
            "UPDATE t SET a = 'x'",
        )
        end = log.latest(start, 10)
        with pytest.raises(CaptureRefused, match="are logged in parts") as refused:
            changes(log, start, end)
        assert "SET GLOBAL binlog_row_image = 'FULL'" in str(refused.value.hint)
        server.execute("SET GLOBAL binlog_row_metadata = 'NO_LOG'", user="root")
        try:
            server.execute("INSERT INTO t (id) VALUES (2)", home)
            later = log.latest(end, 10)
            with pytest.raises(CaptureRefused, match="without the names of columns"):
                log.fresh(end, later)
            with pytest.raises(CaptureRefused, match=r"binlog_row_metadata .* is NO_LOG, and must be FULL"):
                log.check()
        finally:
            server.execute("SET GLOBAL binlog_row_metadata = 'FULL'", user="root")


# what must be set up


def test_privileges_that_are_missing_are_named(server: MariaDb, home: str) -> None:
    for user in ("reader", "monitor"):
        server.execute(f"CREATE OR REPLACE USER {user}@'localhost' IDENTIFIED BY 'x'")
        server.execute(f"GRANT SELECT ON {home}.* TO {user}@'localhost'")
    server.execute("GRANT BINLOG MONITOR ON *.* TO monitor@'localhost'")
    for user, hint in (("reader", "REPLICATION CLIENT"), ("monitor", "GRANT REPLICATION SLAVE ON")):
        with (
            following(server, home, user=user, password="x") as log,
            pytest.raises(CaptureRefused, match=r"Access denied; you need") as refused,
        ):
            log.check()
        assert hint in str(refused.value.hint) and f"'{user}'" in str(refused.value.hint)
    server.execute("GRANT REPLICATION SLAVE ON *.* TO monitor@'localhost'")
    with following(server, home, user="monitor", password="x", parallel_readers="3") as log:
        log.check()
        log.begin()
        log.begun()


def test_a_privilege_that_is_taken_away_is_named(server: MariaDb, home: str) -> None:
    server.execute("CREATE OR REPLACE USER former@'localhost' IDENTIFIED BY 'x'")
    server.execute(f"GRANT SELECT ON {home}.* TO former@'localhost'")
    server.execute("GRANT BINLOG MONITOR, REPLICATION SLAVE ON *.* TO former@'localhost'")
    with following(server, home, user="former", password="x") as log:
        start, _ = log.begin()
        log.begun()
        log.latest(start, 1)
        server.execute("REVOKE REPLICATION SLAVE ON *.* FROM former@'localhost'")
        for (one,) in server.execute("SELECT id FROM information_schema.processlist WHERE user = 'former'"):
            server.execute(f"KILL {one}")
        server.execute("INSERT INTO t (id) VALUES (1)", home)
        with pytest.raises(CaptureRefused, match="Access denied") as refused:
            for_connections(10).wait_for(lambda: log.latest(start, 1))
        assert "GRANT REPLICATION SLAVE" in str(refused.value.hint)


def test_views_and_tables_without_a_moment_are_refused(server: MariaDb, home: str) -> None:
    run(server, home, "CREATE VIEW v AS SELECT * FROM t", "CREATE TABLE m (a int) ENGINE = Aria")
    server.execute("CREATE TABLE c (id int PRIMARY KEY, a blob COMPRESSED)", home)
    with (
        following(server, home, "c") as log,
        pytest.raises(CaptureRefused, match=r'column "a" of .* COMPRESSED'),
    ):
        log.check()
    run(server, home, "CREATE TABLE s (id int PRIMARY KEY) WITH SYSTEM VERSIONING")
    run(server, home, "CREATE TABLE f (id int PRIMARY KEY, p int REFERENCES t (id) ON DELETE CASCADE)")
    for table, said in (
        ("v", r"\(view\) is no table that is logged"),
        ("s", "has its history in the log as well"),
        ("f", "is ON DELETE CASCADE: what it changes is not logged"),
    ):
        with following(server, home, table) as log, pytest.raises(CaptureRefused, match=said):
            log.check()
    with (
        following(server, home, "m") as log,
        pytest.raises(CaptureRefused, match="has no primary key, and Aria"),
    ):
        log.check()


@pytest.mark.slow
def test_settings_that_are_missing_are_named_and_a_log_that_is_gone_is_told(
    servers: Servers, home: str
) -> None:
    server = servers.mariadb
    for setting, said, hint in (
        ("--skip-log-bin", "has no binary log", "log_bin=ON"),
        ("--binlog-format=MIXED", "binlog_format of .* is MIXED", "SET GLOBAL binlog_format = 'ROW'"),
        (f"--binlog-ignore-db={home}", "is left out of the log", "binlog_ignore_db"),
        ("--binlog-row-image=NOBLOB", "binlog_row_image of .* is NOBLOB", "SET GLOBAL binlog_row_image"),
    ):
        server.stop()
        server.start(setting)
        with following(server, home) as log, pytest.raises(CaptureRefused, match=said) as refused:
            log.check()
        assert hint in str(refused.value.hint)
    server.stop()
    server.start()
    with following(server, home) as log:
        start, _ = log.begin()
        log.begun()
        server.execute("FLUSH BINARY LOGS")
        server.execute("INSERT INTO t (id) VALUES (1)", home)
        end = server.execute("SHOW MASTER STATUS")[0][0]
        server.execute(f"PURGE BINARY LOGS TO '{end}'")
        with pytest.raises(CaptureLost, match="does not have its log"):
            log.latest(start, 10)
        start = log.start("latest")
        time.sleep(1.1)  # files of a log are told apart by the second in which they were begun
        server.execute("RESET MASTER")
        server.execute("INSERT INTO t (id) VALUES (2)", home)
        with pytest.raises(CaptureLost):
            log.latest({**start, "file": "binlog.000001", "position": 4}, 10)


# under load


def test_nothing_is_lost_or_doubled_between_the_rows_and_their_changes(servers: Servers, home: str) -> None:
    """Rows that change all the time are loaded by three readers, then followed; the server is killed meanwhile."""
    server = servers.mariadb
    server.execute("INSERT INTO t SELECT seq * 10, 'x', seq FROM seq_1_to_5000", home)
    stop, counts = threading.Event(), [0]

    def write(seed: int) -> None:
        dice = random.Random(seed)
        while not stop.is_set():
            try:
                with server.connect(home) as connection, connection.cursor() as cursor:
                    while not stop.is_set():
                        cursor.execute("BEGIN")
                        for _ in range(dice.randint(1, 5)):
                            key, other = dice.randrange(60_000), dice.randrange(60_000)
                            cursor.execute(
                                dice.choice(
                                    [
                                        f"REPLACE INTO t VALUES ({key}, 'y{key}', {other})",
                                        f"UPDATE t SET n = n + 1 WHERE id BETWEEN {key} AND {key + 100}",
                                        f"UPDATE IGNORE t SET id = {other} WHERE id = {key - key % 10}",
                                        f"DELETE FROM t WHERE id BETWEEN {key} AND {key + 20}",
                                    ]
                                )
                            )
                        cursor.execute("ROLLBACK" if dice.random() < 0.1 else "COMMIT")
                        counts[0] += 1
            except Exception:
                time.sleep(0.05)

    writers = [threading.Thread(target=write, args=(seed,)) for seed in range(2)]
    for writer in writers:
        writer.start()
    shared = source(server, home, "t", cdc="true", parallel_readers="3")
    read = shared.claimed("a test")
    try:
        time.sleep(0.3)
        place = read.begin_capture()
        found: dict[int, Any] = {}
        for split in read.splits(None, place):
            for batch in read.read(split):
                for r in batch.to_pylist():
                    assert r["id"] not in found
                    found[r["id"]] = (r["a"], r["n"])
        read.begun()
        assert isinstance(read._log, BinLog)
        log, at = read._log, place["log"]

        def follow() -> bool:
            nonlocal at

            def once() -> list[Any]:
                return next_changes(log, at)

            end, came = for_connections(30).wait_for(once)
            for what, r in came:
                if what == "put":
                    found[r["id"]] = (r["a"], r["n"])
                else:
                    del found[r["id"]]
            done = end == at
            at = end
            return done

        for round_ in range(20):
            follow()
            if round_ == 10:
                server.stop()
                with pytest.raises(ConnectionLost):
                    log.latest(at, 10)
                server.start()
            time.sleep(0.02)
        stop.set()
        for writer in writers:
            writer.join()
        while not follow():
            pass
    finally:
        stop.set()
        read.close()
        shared.close()
    assert counts[0] > 50
    assert found == {r[0]: r[1:] for r in server.execute("SELECT * FROM t", home)}


def test_news_come_when_the_log_grows(server: MariaDb, home: str) -> None:
    with following(server, home) as log:
        stop = threading.Event()
        news = log.news(stop)
        next(news)
        timer = threading.Timer(0.1, lambda: server.execute("INSERT INTO t (id) VALUES (1)", home))
        timer.start()
        next(news)
        timer.join()
        assert server.execute("SELECT COUNT(*) FROM t", home) == [(1,)]
        stop.set()
        assert list(news) == []
