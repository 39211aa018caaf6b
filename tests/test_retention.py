"""'retention' of streams: old rows go, space comes back, and readers that are behind are told."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from bench import retention
from millpond import App
from millpond.clock import ManualClock
from millpond.connectors.stream.source import StreamSource, stream_uri
from millpond.engine.batch import Batch
from millpond.errors import Error, SourceChanged
from millpond.journal import writer
from millpond.testing.crash import crash

BEGIN = datetime(2024, 1, 1, tzinfo=UTC)
Open = Callable[..., App]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(BEGIN)


@pytest.fixture
def opened(tmp_path: Path, clock: ManualClock) -> Iterator[Open]:
    """Opens an app on one state directory; an earlier one is closed."""
    apps: list[App] = []

    def make(sql: str | None = None, **more: Any) -> App:
        for app in apps:
            app.close()
        apps.append(App(sql, state=tmp_path, engine="process", _clock=clock, _direct=True, **more))
        return apps[-1]

    yield make
    for app in apps:
        app.close()


def rows(first: int, count: int) -> list[dict[str, Any]]:
    return [{"id": i, "v": f"value {i}"} for i in range(first, first + count)]


def many(first: int, count: int) -> pa.Table:
    """Rows that are stored in a file."""
    return pa.table({"id": pa.array(range(first, first + count), pa.int32()), "v": ["x" * 100] * count})


def kept(app: App, stream: str = "s") -> tuple[int, int]:
    """How many rows were sent, and how many are kept."""
    found = {r["name"]: r for r in app.sql("SHOW STREAMS").rows()}
    return found[stream]["rows"], found[stream]["kept"]


def query(app: App, name: str) -> dict[str, Any]:
    return next(q for q in app.sql("SHOW QUERIES").rows() if q["name"] == name)


def ids(app: App, table: str) -> list[int]:
    return sorted(r["id"] for r in app.table(table).all_rows())


def size_of(path: Path) -> int:
    return sum(p.stat().st_size for p in path.rglob("*") if p.is_file())


STREAM = "CREATE STREAM s (id INT, v STRING) WITH ('retention' = '1h');"


def test_rows_go_when_their_time_is_over(opened: Open, clock: ManualClock) -> None:
    app = opened(STREAM)
    for n in range(10):
        app.send("s", rows(n * 10, 10))
        clock.advance(600)
    app.drain()
    assert kept(app) == (100, 60)
    app.sql("CREATE TABLE t AS SELECT id FROM s")
    app.drain()
    assert ids(app, "t") == list(range(40, 100)) and query(app, "table:t")["lost"] == 0
    app = opened()
    assert kept(app) == (100, 60)
    clock.advance(36_000)
    app.drain()
    assert kept(app) == (100, 0) and ids(app, "t") == list(range(40, 100))
    app = opened()
    app.send("s", rows(100, 1))
    app.drain()
    assert kept(app) == (101, 1) and ids(app, "t") == list(range(40, 101))


def test_files_are_removed(opened: Open, clock: ManualClock, tmp_path: Path) -> None:
    app = opened(
        "CREATE STREAM s (id INT, v STRING) WITH ('retention' = '1 day'); CREATE TABLE t AS SELECT id FROM s"
    )
    for n in range(4):
        app.send("s", many(n * 100_000, 100_000))
        clock.advance(30_000)
    app.drain()
    assert kept(app) == (400_000, 200_000) and len(list((tmp_path / "data").glob("*.parquet"))) == 2
    clock.advance(100_000)
    app.drain()
    assert not list((tmp_path / "data").glob("*.parquet")) and kept(app) == (400_000, 0)
    assert len(app.table("t")) == 400_000


def test_rows_in_the_journal_give_their_space_back(opened: Open, clock: ManualClock, tmp_path: Path) -> None:
    app = opened("CREATE STREAM s (id INT, v STRING) WITH ('retention' = '1m')")
    sizes = []
    for _ in range(9):
        for _ in range(20):
            app.send("s", [{"id": 0, "v": "x" * 100_000}])
        clock.advance(61)
        app.drain()
        sizes.append(size_of(tmp_path))
        assert kept(app)[1] == 0
    assert app._runtime.journal._writer.facts.inline["s"] == 0
    assert max(sizes[5:]) <= 1.1 * sizes[5]


def test_a_size_keeps_the_newest_rows(opened: Open) -> None:
    app = opened("CREATE STREAM s (id INT, v STRING) WITH ('retention' = '100KB')")
    for n in range(50):
        app.send("s", [{"id": n, "v": "x" * 10_000}])
    app.drain()
    sent, left = kept(app)
    assert sent == 50 and 8 <= left <= 10
    app.sql("CREATE TABLE t AS SELECT id FROM s")
    app.drain()
    assert ids(app, "t") == list(range(50 - left, 50))


def test_a_size_keeps_at_least_the_newest_send(opened: Open) -> None:
    app = opened("CREATE STREAM s (id INT, v STRING) WITH ('retention' = '100KB')")
    for n in range(2):
        app.send("s", many(n * 20_000, 20_000))
        app.drain()
    assert kept(app) == (40_000, 20_000)


def test_a_reader_that_is_behind_is_told(
    opened: Open, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    app = opened(
        f"{STREAM} CREATE TABLE t AS SELECT id FROM s; CREATE TABLE n AS SELECT COUNT(*) AS n FROM s;"
    )
    app.send("s", rows(0, 5))
    app.drain()
    app.sql("PAUSE QUERY `table:t`")
    for n in range(1, 4):
        app.send("s", rows(n * 5, 5))
        clock.advance(1_700)
    app.drain()
    assert kept(app) == (20, 10)
    app.sql("RESUME QUERY `table:t`")
    app.drain()
    assert ids(app, "t") == [*range(5), *range(10, 20)]
    told = query(app, "table:t")
    assert (told["lost"], told["errors"], told["lag"], told["state"]) == (5, 1, 0, "running")
    (record,) = app.sql("SELECT seq, reason, stream FROM `t$errors`").rows()
    assert record == {"seq": 5, "stream": "s", "reason": "5 rows, 5 to 9, were removed before they were read"}
    assert "5 rows of stream" in caplog.text
    assert app.sql("SELECT n FROM n").rows() == [{"n": 20}], "what was counted stays"
    app.sql("REPLAY `t$errors`")
    app = opened()
    assert query(app, "table:t")["errors"] == 1 and ids(app, "t") == [*range(5), *range(10, 20)]


def test_a_reader_whose_errors_stop_it_continues_and_counts(opened: Open, clock: ManualClock) -> None:
    app = opened(
        f"{STREAM} CREATE TABLE t (id INT);"
        "INSERT INTO t SELECT id FROM s WITH ('on.error' = 'fail', 'query.name' = 'q')"
    )
    app.drain()
    app.sql("PAUSE QUERY q")
    app.send("s", rows(0, 3))
    clock.advance(4_000)
    app.drain()
    app.send("s", rows(3, 1))
    app.sql("RESUME QUERY q")
    app.drain()
    assert query(app, "q")["lost"] == 3 and ids(app, "t") == [3], "counted from the creation of the query on"


def test_only_lost_rows_are_left(opened: Open, clock: ManualClock) -> None:
    app = opened(f"{STREAM} CREATE TABLE t AS SELECT id FROM s")
    app.drain()
    app.sql("STOP QUERY `table:t`")
    app.send("s", rows(0, 3))
    clock.advance(4_000)
    app.drain()
    app = opened()
    app.sql("START QUERY `table:t`")
    app.drain()
    told = query(app, "table:t")
    assert (told["lost"], told["errors"], told["lag"]) == (3, 1, 0) and not ids(app, "t")


def test_a_query_begins_at_the_end(opened: Open, clock: ManualClock) -> None:
    app = opened("CREATE STREAM s (id INT, v STRING); CREATE TABLE i (id INT)")
    app.send("s", rows(0, 5))
    app.sql("CREATE TABLE late WITH ('start' = 'latest') AS SELECT id FROM s")
    app.sql("CREATE TABLE early WITH ('start' = 'earliest') AS SELECT id FROM s")
    app.sql("INSERT INTO i SELECT id FROM s WITH ('start' = 'latest')")
    app.drain()
    app = opened()
    app.send("s", rows(5, 2))
    app.drain()
    assert ids(app, "late") == ids(app, "i") == [5, 6] and ids(app, "early") == list(range(7))


def test_a_query_that_is_paused_at_once_begins_at_the_end(opened: Open) -> None:
    sql = """
        CREATE STREAM s (id INT, v STRING); CREATE TABLE i (id INT);
        INSERT INTO s SELECT 1, 'a';
        INSERT INTO i SELECT id FROM s WITH ('start' = 'latest', 'query.name' = 'q');
        PAUSE QUERY q;
    """
    app = opened(sql)
    app.send("s", rows(5, 2))
    app.drain()
    assert query(app, "q")["spark_batches"] == 0
    app.sql("RESUME QUERY q")
    app.drain()
    assert ids(app, "i") == [5, 6]


def test_a_join_of_streams_begins_at_the_end(opened: Open) -> None:
    app = opened("CREATE STREAM a (id INT, at TIMESTAMP); CREATE STREAM b (id INT, at TIMESTAMP)")
    both = [{"id": i, "at": BEGIN} for i in range(3)]
    app.send("a", both)
    app.send("b", both)
    app.sql(
        "CREATE TABLE t WITH ('start' = 'latest') AS SELECT a.id AS id FROM a JOIN b"
        " ON a.id = b.id AND b.at BETWEEN a.at AND a.at + INTERVAL 1 HOUR"
    )
    app.send("a", [{"id": 2, "at": BEGIN}])
    app.send("b", [{"id": 2, "at": BEGIN}])
    app.drain()
    assert ids(app, "t") == [2]


def test_a_batch_keeps_its_rows_until_it_is_done(opened: Open, clock: ManualClock, tmp_path: Path) -> None:
    app = opened(f"{STREAM} CREATE STREAM d WITH ('retention' = '1h') AS SELECT id FROM s")
    app.send("s", many(0, 60_000))
    app.send("s", rows(60_000, 1))
    app.drain()
    relation = app._runtime.catalog.find("s")
    assert relation is not None
    source = StreamSource(stream_uri(tmp_path, "s"), {"start": "earliest"}, relation.schema)
    batch = Batch(source, {"seq": 10}, {"seq": 60_001}, carrier=None)  # type: ignore[arg-type]
    batch.check()
    splits = source.splits({"seq": 10}, {"seq": 60_001})
    clock.advance(4_000)
    app.drain()
    assert kept(app) == (60_001, 60_001) and kept(app, "d") == (60_001, 0)
    assert batch.read().num_rows == 59_991
    batch.close()
    app.drain()
    assert kept(app) == (60_001, 0)
    with pytest.raises(SourceChanged, match=r"rows 10 to 60000 .* were removed while they were read"):
        list(source.read(splits[0]))


def test_a_stream_of_another_app_tells_its_readers_too(opened: Open, clock: ManualClock) -> None:
    app = opened(STREAM)
    with App("CREATE TABLE t AS SELECT id FROM memory://s", _direct=True) as other:
        app.send("s", rows(0, 2))
        other.drain()
        other.sql("PAUSE QUERY `table:t`")
        app.send("s", rows(2, 2))
        clock.advance(4_000)
        app.drain()
        app.send("s", rows(4, 2))
        other.sql("RESUME QUERY `table:t`")
        other.drain()
        assert ids(other, "t") == [0, 1, 4, 5] and query(other, "table:t")["lost"] == 2


def test_a_live_aggregate_and_its_view_keep_their_totals(opened: Open, clock: ManualClock) -> None:
    app = opened(
        f"{STREAM} CREATE TABLE t AS SELECT id % 2 AS k, COUNT(*) AS n FROM s GROUP BY id % 2;"
        "CREATE MATERIALIZED VIEW total AS SELECT SUM(n) AS n FROM t;"
    )
    for n in range(5):
        app.send("s", rows(n * 10, 10))
        app.drain()
        clock.advance(4_000)
        app.drain()
    assert kept(app) == (50, 0) and app.sql("SELECT n FROM total").rows() == [{"n": 50}]
    app = opened()
    app.send("s", rows(50, 1))
    app.drain()
    assert app.sql("SELECT n FROM total").rows() == [{"n": 51}]


def test_the_app_looks_by_itself(tmp_path: Path) -> None:
    with App("CREATE STREAM s (id INT, v STRING) WITH ('retention' = '200ms')", state=tmp_path) as app:
        app.send("s", rows(0, 10))
        end = time.monotonic() + 30
        while kept(app) != (10, 0) and time.monotonic() < end:
            time.sleep(0.05)
        assert kept(app) == (10, 0)


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("CREATE STREAM s (id INT) WITH ('retention' = 'soon')", 'option "retention" .* cannot be "soon"'),
        ("CREATE STREAM s (id INT) WITH ('retention' = '7')", 'cannot be "7"'),
        ("CREATE STREAM s (id INT) WITH ('retention' = '0s')", 'cannot be "0s"'),
        ("CREATE STREAM s (id INT) WITH ('retention' = '-1d')", 'cannot be "-1d"'),
        ("CREATE STREAM s (id INT) WITH ('retention' = '')", 'cannot be ""'),
        (
            "CREATE STREAM k (id INT) WITH ('connector' = 'kafka://localhost:1/t', 'retention' = '1d')",
            'stream "k" reads "kafka://localhost:1/t", which decides itself how long it keeps rows',
        ),
        (
            "CREATE STREAM s (id INT); CREATE TABLE t WITH ('start' = 'middle') AS SELECT id FROM s",
            "cannot be",
        ),
    ],
)
def test_what_is_wrong_is_refused_at_its_place(sql: str, message: str) -> None:
    with App() as app, pytest.raises(Error, match=message) as raised:
        app.sql(sql)
    assert raised.value.place is not None and raised.value.place.column > 1


# kills

STEPS = 6
KILLED = """
import sys
from datetime import datetime, timedelta, UTC
from bench.retention import live
from millpond import App
from millpond.clock import ManualClock
from millpond.testing.faults import killing

from tests.test_retention import SQL, steps

state, point, visit = sys.argv[1], sys.argv[2], int(sys.argv[3])
with killing(point, visit=visit) if visit else nullcontext():
    steps(state)
"""
SQL = (
    STREAM
    + "CREATE TABLE t AS SELECT id FROM s; CREATE TABLE n AS SELECT COUNT(*) AS n, SUM(id) AS total FROM s;"
)


def steps(state: str) -> dict[str, Any]:
    """Sends and forgets rows, from where an earlier run was killed; returns what is there at the end."""
    clock = ManualClock(BEGIN)
    with App(SQL, state=state, engine="process", _clock=clock, _direct=True) as app:
        done = app._runtime.journal.stream_end("s") // 15_001
        clock.advance(done * 1_500)
        for n in range(done, STEPS):
            app.drain()
            app.send("s", many(n * 15_001, 15_001))
            clock.advance(1_500)
        app.drain()
        assert query(app, "table:t")["lost"] == query(app, "table:n")["lost"] == 0
        files = sorted(p.stat().st_size for p in (Path(state) / "data").iterdir())
        return {
            "kept": kept(app),
            "first": app._runtime.journal.stream_first("s"),
            "files": files,
            "t": app.sql("SELECT COUNT(*), COUNT(DISTINCT id), MAX(id), SUM(id) FROM t").rows(),
            "n": app.table("n").all_rows(),
        }


@pytest.mark.slow
def test_a_kill_while_rows_are_removed_changes_nothing(tmp_path: Path) -> None:
    undisturbed = steps(str(tmp_path / "whole"))
    assert undisturbed["kept"] == (STEPS * 15_001, 2 * 15_001)
    root = Path(__file__).parent.parent
    points = [
        ("old rows: trimmed", 1),
        ("old rows: trimmed", 3),
        *(("journal: written", n) for n in (17, 21)),
    ]
    for point, visit in points:
        state = str(tmp_path / f"killed {point} {visit}")
        command = [sys.executable, "-c", KILLED, state, point, str(visit)]
        run = subprocess.run(
            command, cwd=root, env={**os.environ, "PYTHONPATH": str(root)}, capture_output=True, check=False
        )
        assert run.returncode == -signal.SIGKILL, run.stderr.decode()
        assert steps(state) == undisturbed, (point, visit)


# a model

OPS = some.lists(
    some.one_of(
        some.tuples(some.just("send"), some.integers(1, 4)),
        some.tuples(some.just("advance"), some.sampled_from([1, 20, 50, 100])),
        some.tuples(some.just("drain"), some.just(0)),
        some.tuples(some.just("pause"), some.integers(0, 1)),
        some.tuples(some.just("resume"), some.integers(0, 1)),
        some.tuples(some.just("restart"), some.booleans()),
    ),
    max_size=40,
)
READERS = ("t", "u")
MODEL = """
CREATE STREAM s (id INT) WITH ('retention' = '60s');
CREATE TABLE t AS SELECT id FROM s;
CREATE TABLE u AS SELECT id FROM s;
"""


@pytest.mark.parametrize("rolls", [False, True])
@settings(max_examples=15, deadline=None)
@given(ops=OPS)
def test_every_row_is_read_or_told_of(ops: list[tuple[str, int]], rolls: bool) -> None:
    """Random sends, moves of the clock, slow readers, kills and restarts against a list of what was sent when."""
    with tempfile.TemporaryDirectory() as state, pytest.MonkeyPatch.context() as patch:
        patch.setattr(writer, "ROLL_BYTES", 1_000 if rolls else 1 << 30)
        clock = ManualClock(BEGIN)

        def opened() -> App:
            return App(MODEL, state=state, _clock=clock, _direct=True)

        app, sent, now, sends, paused = opened(), 0, 0, list[tuple[int, int]](), [False, False]
        for op, value in [*ops, ("resume", 0), ("resume", 1), ("drain", 0)]:
            name = f"`table:{READERS[value]}`" if op in ("pause", "resume") else ""
            if op == "send":
                app.send("s", [{"id": i} for i in range(sent, sent + value)])
                sends.append((sent, now))
                sent += value
            elif op == "advance":
                clock.advance(value)
                now += value
            elif op == "drain":
                app.drain()
                first = app._runtime.journal.stream_first("s")
                young = next((seq for seq, at in sends if at >= now - 60), sent)
                long_gone = next((seq for seq, at in sends if at >= now - 120), sent)
                assert first == young if not rolls else long_gone <= first <= young
            elif op in ("pause", "resume"):
                if paused[value] == (op == "resume"):
                    app.sql(f"{op.upper()} QUERY {name}")
                    paused[value] = not paused[value]
            elif op == "restart":
                crash(app) if value else app.close()
                app = opened()
        with closing(app):
            for reader in READERS:
                gaps = [r["reason"] for r in app.table(f"{reader}$errors").all_rows()]
                found = set(ids(app, reader))
                assert len(found) == len(app.table(reader))
                missing = set(range(sent)) - found
                told = set[int]()
                for reason in gaps:
                    numbers = [int(w.strip(",")) for w in reason.split() if w.strip(",").isdigit()]
                    told |= set(range(numbers[-2], numbers[-1] + 1)) if len(numbers) > 1 else {numbers[0]}
                assert missing == told and all(at < now - 60 for seq, at in sends if seq in missing)


# a day


def test_disk_and_memory_are_flat_after_the_first_hour(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The short form of ``bench/retention.py``: 40 rows a second for eight hours, one of which is kept. The log of the
    journal has a bound of its own, which so few rows do not reach.
    """
    monkeypatch.setattr(retention, "KEYS", 20)
    disk, memory = [], []
    for _, used, rows in retention.live(str(tmp_path), rate=40, step=300, hours=8):
        log = (tmp_path / "journal.db-wal").stat().st_size
        disk.append((size_of(tmp_path) - log) / 1e6)
        memory.append(used)
        assert rows == 144_000 and log < 50e6
    assert max(disk[3:]) < 1.5 * disk[2] + 1
    assert max(memory[2:]) < 1.2 * memory[1]
