"""kill -9 in the middle of commits, and damaged files."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

from millpond import App
from millpond.changes import Changes
from millpond.errors import StateCorrupt
from millpond.journal import Journal, StateDirectory
from millpond.journal.damage_report import survey
from millpond.journal.segments import parts, read_part

pytestmark = pytest.mark.slow

# Commits batch after batch from three threads, each batch to two tables and a stream in one commit, and says
# what has been acknowledged. Every seventh batch is large enough for a file.
WRITER = """
import sys, threading
import pyarrow as pa
from millpond.changes import Changes, Position
from millpond.journal import Journal, StateDirectory

state = StateDirectory(sys.argv[1])
journal = Journal(state.path, durable=True)
lock = threading.Lock()

def work(me):
    pipeline = f"p{me}"
    known = journal.position(pipeline)
    batch = known.batch + 1 if known else 0
    while True:
        size = 60_000 if batch % 7 == 3 else 3
        columns = {"who": [me] * size, "batch": [batch] * size, "i": range(size), "pad": ["x" * 10] * size}
        rows = pa.table(columns)
        two = rows.slice(0, 2)
        position = Position(pipeline, "c", batch)
        number = journal.commit({"t": Changes(rows), "u": Changes(two)}, position, {"s": two})
        assert number is not None
        with lock:
            print(me, batch, flush=True)
        batch += 1

threads = [threading.Thread(target=work, args=(i,)) for i in range(3)]
for t in threads: t.start()
for t in threads: t.join()
"""


def size_of(batch: int) -> int:
    return 60_000 if batch % 7 == 3 else 3


def test_killed_in_the_middle_of_commits(tmp_path: Path) -> None:
    chance = random.Random(11)
    acknowledged: dict[int, int] = {}
    for _ in range(5):
        with subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path / "s")],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout is not None
            line = process.stdout.readline()
            time.sleep(chance.uniform(0.05, 0.6))
            os.kill(process.pid, signal.SIGKILL)
            for said in [line, *process.stdout]:
                if said.endswith("\n") and said.strip():
                    who, batch = map(int, said.split())
                    acknowledged[who] = max(batch, acknowledged.get(who, -1))
            assert process.stderr is not None
            assert "Error" not in process.stderr.read()
        with StateDirectory(tmp_path / "s") as state:
            journal = Journal(state.path, durable=True)
            check_whole(journal, state.path, acknowledged)
            journal.close()
    assert sum(acknowledged.values()) > 20


def check_whole(journal: Journal, path: Path, acknowledged: dict[int, int]) -> None:
    """Every acknowledged batch is there, and each that is there is whole, once, in all three places."""
    expected = {w: p.batch for w in range(3) if (p := journal.position(f"p{w}"))}
    for who, batch in acknowledged.items():
        assert expected[who] >= batch
    batches = {(who, batch) for who, last in expected.items() for batch in range(last + 1)}
    t = pa.concat_tables([c.rows for c in journal.restore("t")])
    groups = t.group_by(["who", "batch"]).aggregate([("i", "count"), ("i", "sum")]).to_pylist()
    assert {(g["who"], g["batch"]) for g in groups} == batches
    for g in groups:
        size = size_of(g["batch"])
        assert (g["i_count"], g["i_sum"]) == (size, size * (size - 1) // 2)
    u = pa.concat_tables([c.rows for c in journal.restore("u")])
    assert Counter(zip(u["who"].to_pylist(), u["batch"].to_pylist(), strict=True)) == dict.fromkeys(
        batches, 2
    )
    end = journal.stream_end("s")
    sent = pa.Table.from_batches([b for p in parts(path, "s", 0, end) for b in read_part(p)])
    assert sent["_seq"].to_pylist() == list(range(end))
    assert Counter(zip(sent["who"].to_pylist(), sent["batch"].to_pylist(), strict=True)) == dict.fromkeys(
        batches, 2
    )
    assert journal.last_commit() == len(batches)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A state that was closed in order, and one whose process was killed with all of it in the log."""
    made = {}
    for kind in ("closed", "killed"):
        path = tmp_path_factory.mktemp("state") / kind
        script = f"""
import os, signal, sys
import pyarrow as pa
from millpond.changes import Changes, Position
from millpond.journal import Entry, Journal, StateDirectory
state = StateDirectory({str(path)!r})
journal = Journal(state.path, durable=True)
for i in range(40):
    rows = pa.table({{"id": [i], "name": ["name of %d" % i * 20]}})
    journal.commit({{"t": Changes(rows)}}, Position("p", "c", i), {{"s": rows}}, ["d%d" % i])
journal.commit({{"big": Changes(pa.table({{"v": list(range(200_000))}}))}})
journal.put_entry(Entry("t", "table", "CREATE TABLE t (id BIGINT, name STRING)"))
journal.close() if {kind!r} == "closed" else os.kill(os.getpid(), signal.SIGKILL)
"""
        subprocess.run([sys.executable, "-c", script], check=kind == "closed")
        made[kind] = path
    return made


def content(path: Path) -> object:
    """All that can be read, or StateCorrupt."""
    with StateDirectory(path) as state:
        journal = Journal(state.path, durable=True)
        try:
            end = journal.stream_end("s")
            return (
                [c.rows.to_pylist() for c in journal.restore("t")],
                [c.rows["v"].to_pylist() for c in journal.restore("big")],
                [b.to_pylist() for p in parts(path, "s", 0, end) for b in read_part(p)],
                journal.positions(),
                journal.last_commit(),
                [journal.done(f"d{i}") for i in range(40)],
                journal.entries(),
            )
        finally:
            journal.close()


def copied(source: Path, to: Path) -> Path:
    shutil.rmtree(to, ignore_errors=True)
    return Path(shutil.copytree(source, to))


@pytest.mark.parametrize("kind", ["closed", "killed"])
def test_a_flipped_byte_is_told_or_did_no_harm(tmp_path: Path, filled: dict[str, Path], kind: str) -> None:
    good = content(copied(filled[kind], tmp_path / "copy"))
    chance = random.Random(5)
    told = 0
    for _ in range(60):
        path = copied(filled[kind], tmp_path / "copy")
        files = [
            f
            for f in path.rglob("*")
            if f.is_file() and f.stat().st_size and f.name[-4:] not in ("lock", "-shm")
        ]
        file = chance.choice([f for f in files if f.name != "format"])
        data = bytearray(file.read_bytes())
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        file.write_bytes(data)
        try:
            assert content(path) == good, f"damage in {file.name} was read as data"
        except StateCorrupt as e:
            told += 1
            assert str(path) in e.message or "journal" in e.message
    assert told > 10


@pytest.mark.parametrize("kind", ["closed", "killed"])
def test_a_truncated_file_is_told(tmp_path: Path, filled: dict[str, Path], kind: str) -> None:
    names = {"closed": ["journal.db", "data"], "killed": ["journal.db-wal", "data"]}[kind]
    for name in names:
        for keep in (0.999, 0.5, 0.0):
            path = copied(filled[kind], tmp_path / "copy")
            file = next((path / name).iterdir()) if name == "data" else path / name
            os.truncate(file, int(file.stat().st_size * keep))
            with pytest.raises(StateCorrupt):
                content(path)


def files_of(path: Path) -> dict[str, bytes]:
    """What is in the directory; the lock is written by whoever looks."""
    return {
        str(f.relative_to(path)): f.read_bytes() for f in path.rglob("*") if f.is_file() and f.name != "lock"
    }


@pytest.mark.parametrize("read_only", [False, True])
def test_opening_a_damaged_log_changes_nothing(
    tmp_path: Path, filled: dict[str, Path], read_only: bool
) -> None:
    """Whoever repairs it has all that is left of it."""
    chance = random.Random(6)
    for damage in ("truncated", "flipped", "flipped", "removed", "emptied"):
        path = copied(filled["killed"], tmp_path / "copy")
        log = path / "journal.db-wal"
        data = bytearray(log.read_bytes())
        if damage == "removed":
            log.unlink()
        else:
            data[chance.randrange(len(data) // 2)] ^= 255
            log.write_bytes({"flipped": data, "truncated": data[: len(data) // 2], "emptied": b""}[damage])
        before = files_of(path)
        for _ in range(2):
            with pytest.raises(StateCorrupt), StateDirectory(path, read_only=read_only) as state:
                Journal(state.path, durable=True, read_only=read_only)
            survey(path)
            assert files_of(path) == before, damage


def test_an_app_tells_what_is_left_and_changes_nothing(tmp_path: Path) -> None:
    script = f"""
import os, signal
from millpond import App
app = App("CREATE TABLE t (id INT PRIMARY KEY, name STRING)", state={str(tmp_path / "s")!r})
for i in range(50):
    app.table("t").insert({{"id": i, "name": "x" * i}})
os.kill(os.getpid(), signal.SIGKILL)
"""
    subprocess.run([sys.executable, "-c", script])
    log = tmp_path / "s" / "journal.rows"
    log.write_bytes(log.read_bytes()[:-1_000])
    before = files_of(tmp_path / "s")
    with pytest.raises(StateCorrupt, match="lost its last") as told:
        App(state=tmp_path / "s")
    assert 'table "t": whole, ' in str(told.value.hint)
    assert "small commits after that are in journal.rows" in str(told.value.hint)
    assert files_of(tmp_path / "s") == before


@pytest.mark.parametrize("first", [True, False], ids=["in its first run", "in a later run"])
def test_a_log_that_is_gone_with_its_mark_is_missed(tmp_path: Path, first: bool) -> None:
    path = tmp_path / "s"
    if not first:
        with StateDirectory(path) as state:
            journal = Journal(state.path, durable=True)
            journal.commit({"t": Changes(pa.table({"id": [0]}))})
            journal.close()
    script = f"""
import os, signal
import pyarrow as pa
from millpond.changes import Changes
from millpond.journal import Journal, StateDirectory
state = StateDirectory({str(path)!r})
journal = Journal(state.path, durable=True)
journal.commit({{"t": Changes(pa.table({{"id": [1]}}))}})
os.kill(os.getpid(), signal.SIGKILL)
"""
    subprocess.run([sys.executable, "-c", script])
    for name in ("journal.db-wal", "journal.mark"):
        (path / name).unlink()
    before = files_of(path)
    with pytest.raises(StateCorrupt, match="missing"), StateDirectory(path) as state:
        Journal(state.path, durable=True)
    assert files_of(path) == before


def test_a_journal_that_is_gone_is_missed(tmp_path: Path, filled: dict[str, Path]) -> None:
    path = copied(filled["closed"], tmp_path / "copy")
    (path / "journal.db").unlink()
    with pytest.raises(StateCorrupt, match=r"journal\.db"):
        content(path)


def test_a_missing_file_is_told_by_name(tmp_path: Path, filled: dict[str, Path]) -> None:
    path = copied(filled["closed"], tmp_path / "copy")
    file = next((path / "data").iterdir())
    file.unlink()
    with pytest.raises(StateCorrupt, match=file.name):
        content(path)
