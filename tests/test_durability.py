"""What a restart finds of tables that keep their rows well, soon, or not at all; and of a damaged state."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

from millpond import App, Error
from millpond.errors import InvalidOption, NotSupported, StateCorrupt
from millpond.journal.late import LATEST
from millpond.testing.crash import crash

SQL = """
CREATE TABLE kept (id INT PRIMARY KEY, name STRING);
CREATE TABLE soon (id INT PRIMARY KEY, name STRING) WITH ('durability' = 'batch');
CREATE TABLE gone (id INT PRIMARY KEY, name STRING) WITH ('durability' = 'none');
"""


def ids(app: App, table: str) -> list[int]:
    return sorted(r["id"] for r in app.table(table).all_rows())


def fill(app: App) -> None:
    for table in ("kept", "soon", "gone"):
        app.table(table).insert({"id": 1, "name": "one"})
        app.sql(f"INSERT INTO {table} VALUES (2, 'two'), (3, 'three')")
    with app.begin_transaction() as tx:
        for table in ("kept", "soon", "gone"):
            tx.table(table).delete(id=3)


@pytest.mark.parametrize("how", ["close", "crash"])
def test_what_a_restart_finds(tmp_path: Path, how: str) -> None:
    app = App(SQL, state=tmp_path / "state")
    fill(app)
    assert [ids(app, t) for t in ("kept", "soon", "gone")] == [[1, 2]] * 3
    app.close() if how == "close" else crash(app)
    with App(SQL, state=tmp_path / "state") as again:
        assert [ids(again, t) for t in ("kept", "soon", "gone")] == [[1, 2], [1, 2], []]
        again.table("gone").insert({"id": 7})
        assert ids(again, "gone") == [7]


def test_describe_says_what_can_be_lost(tmp_path: Path) -> None:
    def durability(app: App, table: str) -> str:
        rows = app.sql(f"DESCRIBE EXTENDED {table}").rows()
        return str(next(r["value"] for r in rows if r["property"] == "durability"))

    with App(SQL, state=tmp_path / "state") as app:
        assert durability(app, "kept").startswith("commit: ")
        assert durability(app, "soon") == "batch: a commit is on the disk 100 ms later at the most"
        assert durability(app, "gone") == "none: the table is empty after a restart"
    with App(SQL) as app:
        assert durability(app, "kept") == "none: the app has no state directory"
        with pytest.raises(InvalidOption):
            app.sql("CREATE TABLE t (id INT) WITH ('durability' = 'often')")


def lose_power(state: Path, before: Path) -> None:
    """Puts back what was on the disk then: the journal and its mark."""
    for file in state.glob("journal*"):
        file.unlink()
    for file in before.glob("journal*"):
        shutil.copy(file, state / file.name)


def copy_journal(state: Path, to: Path) -> Path:
    to.mkdir()
    for file in state.glob("journal*"):
        shutil.copy(file, to / file.name)
    return to


def test_commits_of_a_batch_table_reach_the_mark_only_with_the_disk(tmp_path: Path) -> None:
    """The mark says which commits must be there: it must not name one that a loss of power may take."""
    state = tmp_path / "state"
    with App(SQL, state=state) as app:
        app.table("soon").insert({"id": 1})
        app.drain()
        synced = (state / "journal.mark").read_bytes()
        app._runtime.journal._writer._late.end()
        time.sleep(LATEST)
        app.table("soon").insert({"id": 2})
        assert (state / "journal.mark").read_bytes() == synced
        app.drain()
        assert (state / "journal.mark").read_bytes() != synced
        app.table("soon").insert({"id": 3})
        synced = (state / "journal.mark").read_bytes()
        app.table("kept").insert({"id": 3})
        assert (state / "journal.mark").read_bytes() != synced


def test_the_disk_follows_by_itself(tmp_path: Path) -> None:
    with App(SQL, state=tmp_path / "state") as app:
        before = (tmp_path / "state" / "journal.mark").read_bytes()
        app.table("soon").insert({"id": 1})
        deadline = time.monotonic() + 20
        while (tmp_path / "state" / "journal.mark").read_bytes() == before:
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_statements_of_a_file_fill_a_table_that_is_not_kept_again(tmp_path: Path) -> None:
    sql = (
        SQL
        + "INSERT INTO kept VALUES (1, 'a'); INSERT INTO gone VALUES (1, 'a'); DELETE FROM gone WHERE id = 9;"
    )
    for run in range(3):
        with App(sql, state=tmp_path / "state") as app:
            assert (ids(app, "kept"), ids(app, "gone")) == ([1, *range(10, 10 + run)], [1])
            for table in ("kept", "gone"):
                app.table(table).insert({"id": 10 + run})


def test_a_load_is_done_again(tmp_path: Path) -> None:
    (tmp_path / "f.csv").write_text("id,name\n1,a\n2,b\n")
    sql = f"""
    CREATE TABLE loaded (PRIMARY KEY (id)) AS SELECT * FROM file://{tmp_path}/f.csv WITH ('durability' = 'none');
    CREATE TABLE copied (PRIMARY KEY (id)) AS SELECT * FROM file://{tmp_path}/f.csv
    WITH ('durability' = 'none', 'refresh' = 'once');
    """
    for _ in range(2):
        with App(sql, state=tmp_path / "state") as app:
            assert (ids(app, "loaded"), ids(app, "copied")) == ([1, 2], [1, 2])
            app.table("loaded").delete(id=1)


STREAM = """
CREATE STREAM events (id INT, name STRING);
CREATE TABLE gone (id INT PRIMARY KEY, name STRING) WITH ('durability' = 'none');
INSERT INTO gone SELECT id, name FROM events;
CREATE TABLE counted WITH ('durability' = 'none') AS SELECT name, COUNT(*) AS n FROM events GROUP BY name;
CREATE TABLE summed WITH ('durability' = 'batch') AS SELECT name, SUM(id) AS n FROM events GROUP BY name;
"""


@pytest.mark.usefixtures("spark")
def test_positions_go_with_the_rows(tmp_path: Path) -> None:
    """A table that is not kept is filled again from the beginning of its stream; what the journal has lost is read
    again, though Spark's checkpoint says that it was done."""
    state = tmp_path / "state"

    def content(app: App) -> tuple[object, ...]:
        tables = [sorted((r["name"], r["n"]) for r in app.table(t)) for t in ("counted", "summed")]
        return ids(app, "gone"), *tables

    with App(STREAM, state=state) as app:
        app.send("events", [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}])
        app.drain()
        assert content(app) == ([1, 2], [("a", 1), ("b", 1)], [("a", 1), ("b", 2)])
        # What a loss of power would leave: the row that was sent, and none of the commits that follow it.
        app._runtime.runner.close()
        app.send("events", {"id": 3, "name": "a"})
        before = copy_journal(state, tmp_path / "before")
    with App(STREAM, state=state) as app:
        app.drain()
        expected = ([1, 2, 3], [("a", 2), ("b", 1)], [("a", 4), ("b", 2)])
        assert content(app) == expected
    lose_power(state, before)
    with App(STREAM, state=state) as app:
        app.drain()
        assert content(app) == expected


@pytest.mark.parametrize("damage", ["missing", "flipped", "truncated"])
def test_damage_is_told_with_what_is_left(tmp_path: Path, damage: str) -> None:
    state = tmp_path / "state"
    with App(SQL + "CREATE TABLE big (id INT, name STRING);", state=state) as app:
        app.table("kept").insert({"id": 1, "name": "one"})
        app.table("big").insert({"id": 0})
        app.table("big").bulk_insert([{"id": i, "name": f"name {i}"} for i in range(100_000)])
    (file,) = (state / "data").iterdir()
    content = bytearray(file.read_bytes())
    if damage == "missing":
        file.unlink()
    elif damage == "flipped":
        content[len(content) // 2] ^= 4
        file.write_bytes(content)
    else:
        file.write_bytes(content[:-100])
    with pytest.raises(StateCorrupt, match='table "big", commit 3') as e:
        App(state=state)
    assert file.name in e.value.message
    assert e.value.hint is not None
    assert 'table "big": damaged after commit 2, 1 changes before that' in e.value.hint
    assert 'table "kept": whole, 1 changes up to commit 1' in e.value.hint


def test_a_journal_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with App(SQL, state=state) as app:
        app.table("kept").insert({"id": 1, "name": "one"})
    journal = state / "journal.db"
    journal.write_bytes(b"x" * 100 + journal.read_bytes()[100:])
    with pytest.raises(StateCorrupt) as e:
        App(state=state)
    assert e.value.hint is not None and "nothing of it can be read" in e.value.hint
    assert isinstance(e.value, Error)


def test_a_block_over_tables_that_survive_and_one_that_does_not_is_refused(tmp_path: Path) -> None:
    with (
        pytest.raises(NotSupported, match='"scratch", which is empty after a restart'),
        App(
            "CREATE TABLE kept (n INT PRIMARY KEY);"
            "CREATE TABLE scratch (n INT PRIMARY KEY) WITH ('durability' = 'none');"
            "CREATE STREAM s (n INT);"
            "BEGIN; INSERT INTO kept SELECT n FROM s; INSERT INTO scratch SELECT n FROM s; COMMIT",
            state=tmp_path / "state",
        ),
    ):
        pass
