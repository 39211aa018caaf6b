"""Tables over files that live: what comes, grows, is written anew, moves and goes."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from millpond import App, Error
from millpond.connectors.files import watch
from millpond.connectors.files.source import FileSource
from millpond.errors import FileMissing, SourceError
from millpond.loading import chunks
from millpond.loading.bulk_load import LoadedTable
from millpond.testing.crash import crash

pytestmark = pytest.mark.slow

DEBOUNCE = "'watch.debounce' = '50ms'"


@pytest.fixture
def app() -> Iterator[App]:
    with App() as made:
        yield made


def until(holds: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def follow(app: App, uri: object, query: str = "SELECT * FROM", key: str = "", more: str = "") -> None:
    app.sql(f"CREATE TABLE t {key} AS {query} 'file://{uri}' WITH ({DEBOUNCE}{more})")


def rows(app: App, table: str = "t") -> list[tuple[Any, ...]]:
    return sorted((tuple(r.values()) for r in app.table(table).all_rows()), key=repr)


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def test_new_bytes_come_by_themselves(app: App, tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("id,name\n1,a\n")
    follow(app, file)
    append(file, "2,b\n")
    until(lambda: rows(app) == [(1, "a"), (2, "b")])
    assert app.table("t").health_check().status == "healthy"


def test_where_the_file_system_tells_nothing_there_is_a_look(
    app: App, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(*_: object) -> Iterator[None]:
        raise OSError("no events here")
        yield

    monkeypatch.setattr(watch, "_notified", silent)
    file = tmp_path / "a.csv"
    file.write_text("id\n1\n")
    follow(app, file, more=", 'watch.interval' = '20ms'")
    append(file, "2\n")
    until(lambda: rows(app) == [(1,), (2,)])


def test_only_new_bytes_are_read(app: App, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text('{"id": 1}\n' * 1000)
    follow(app, file)
    read: list[tuple[int, int | None]] = []
    plain = FileSource.receive

    def noted(self: FileSource, split: Any) -> Any:
        read.append((split.piece.begin, split.piece.end))
        return plain(self, split)

    monkeypatch.setattr(FileSource, "receive", noted)
    append(file, '{"id": 2}\n')
    app.drain()
    assert len(rows(app)) == 1001 and read == [(10_000, 10_010)]


def test_half_a_line_waits_for_the_rest(app: App, tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text('{"id": 1}\n{"id"')
    follow(app, file)
    assert rows(app) == [(1,)]
    time.sleep(0.2)
    app.drain()
    assert rows(app) == [(1,)]
    append(file, ": 2}\n")
    app.drain()
    assert rows(app) == [(1,), (2,)]


def test_a_last_line_without_an_end_counts_and_may_change(app: App, tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("id,name\n1,a\n2,b")
    follow(app, file)
    assert rows(app) == [(1, "a"), (2, "b")]
    append(file, "cd\n3,e")
    app.drain()
    assert rows(app) == [(1, "a"), (2, "bcd"), (3, "e")]
    append(file, "\n4,f\n")
    app.drain()
    assert rows(app) == [(1, "a"), (2, "bcd"), (3, "e"), (4, "f")]


def test_a_file_written_anew_gives_the_difference(app: App, tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("id,name\n1,a\n2,b\n3,c\n")
    follow(app, file, key="(PRIMARY KEY (id))")
    app.sql("CREATE TABLE n AS SELECT COUNT(*) AS n FROM t")
    seen = app.sql("SELECT * FROM t EMIT CHANGES")
    app.drain()
    file.write_text("id,name\n1,a\n3,C\n4,d\n")
    app.drain()
    assert rows(app) == [(1, "a"), (3, "C"), (4, "d")]
    assert sorted(r["id"] for r in seen.rows()) == [3, 4]
    assert app.table("n").all_rows() == [{"n": 3}]


def test_rows_without_a_key_are_counted(app: App, tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("id\n1\n1\n2\n")
    follow(app, file)
    file.write_text("id\n2\n1\n2\n2\n")
    app.drain()
    assert rows(app) == [(1,), (2,), (2,), (2,)]


def test_the_last_row_of_a_key_counts(app: App, tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("id,name\n1,a\n1,b\n")
    follow(app, file, key="(PRIMARY KEY (id))")
    assert rows(app) == [(1, "b")]
    file.write_text("id,name\n2,a\n1,c\n1,d\n2,z\n")
    app.drain()
    assert rows(app) == [(1, "d"), (2, "z")]


@pytest.mark.parametrize("suffix", ["parquet", "csv.gz", "json"])
def test_files_that_cannot_grow_are_read_whole(app: App, tmp_path: Path, suffix: str) -> None:
    def write(ids: list[int]) -> None:
        made = tmp_path / "next"
        match suffix:
            case "parquet":
                parquet.write_table(pa.table({"id": ids}), made)
            case "json":
                made.write_text(json.dumps([{"id": i} for i in ids]))
            case _:
                made.write_bytes(gzip.compress(("id\n" + "".join(f"{i}\n" for i in ids)).encode()))
        made.rename(tmp_path / f"a.{suffix}")

    write([1, 2])
    follow(app, tmp_path / f"a.{suffix}")
    write([2, 3, 4])
    app.drain()
    assert rows(app) == [(2,), (3,), (4,)]


def test_an_aggregate_and_a_join_follow(app: App, tmp_path: Path) -> None:
    (tmp_path / "v.csv").write_text("k,v\na,1\nb,2\na,3\n")
    (tmp_path / "k.csv").write_text("k,name\na,A\n")
    app.sql(
        f"CREATE TABLE t AS SELECT k, SUM(v) AS s FROM 'file://{tmp_path}/v.csv' GROUP BY k WITH ({DEBOUNCE})"
    )
    app.sql(
        f"CREATE TABLE j AS SELECT v.k, v.v, k.name FROM 'file://{tmp_path}/v.csv' v "
        f"JOIN 'file://{tmp_path}/k.csv' k ON k.k = v.k WITH ('v.watch.debounce' = '50ms', 'k.watch.debounce' = '50ms')"
    )
    assert app.sql("DESCRIBE t").rows()[0]["key"]
    assert rows(app) == [("a", 4), ("b", 2)] and rows(app, "j") == [("a", 1, "A"), ("a", 3, "A")]
    append(tmp_path / "v.csv", "c,5\nb,1\n")
    (tmp_path / "k.csv").write_text("k,name\nb,B\n")
    app.drain()
    assert rows(app) == [("a", 4), ("b", 3), ("c", 5)] and rows(app, "j") == [("b", 1, "B"), ("b", 2, "B")]


def test_a_view_over_tables_follows_a_file_beside_them(app: App, tmp_path: Path) -> None:
    (tmp_path / "k.csv").write_text("k,name\n1,A\n")
    app.sql("CREATE TABLE x (k BIGINT PRIMARY KEY); INSERT INTO x VALUES (1), (2)")
    app.sql(
        f"CREATE TABLE t AS SELECT x.k, f.name FROM x LEFT JOIN 'file://{tmp_path}/k.csv' f ON f.k = x.k "
        f"WITH ({DEBOUNCE})"
    )
    app.drain()
    assert rows(app) == [(1, "A"), (2, None)]
    append(tmp_path / "k.csv", "2,B\n")
    app.drain()
    assert rows(app) == [(1, "A"), (2, "B")]
    (tmp_path / "k.csv").write_text("k,name\n1,Z\n")
    app.sql("INSERT INTO x VALUES (3)")
    app.drain()
    assert rows(app) == [(1, "Z"), (2, None), (3, None)]


def test_files_come_and_go(app: App, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id\n1\n")
    follow(app, tmp_path / "*.csv", more=", 'on.remove' = 'delete'")
    (tmp_path / "b.csv").write_text("id\n2\n3\n")
    app.drain()
    assert rows(app) == [(1,), (2,), (3,)]
    (tmp_path / "a.csv").unlink()
    app.drain()
    assert rows(app) == [(2,), (3,)]
    (tmp_path / "b.csv").rename(tmp_path / "c.csv")
    app.drain()
    assert rows(app) == [(2,), (3,)]


def test_rows_of_a_removed_file_stay(app: App, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id\n1\n")
    (tmp_path / "b.csv").write_text("id\n2\n")
    follow(app, tmp_path / "*.csv")
    (tmp_path / "a.csv").unlink()
    app.drain()
    assert rows(app) == [(1,), (2,)]
    (tmp_path / "b.csv").write_text("id\n3\n")
    app.drain()
    assert rows(app) == [(1,), (3,)]


@pytest.mark.parametrize("how", ["rename", "copy and truncate"])
def test_a_rotated_log_goes_on(app: App, tmp_path: Path, how: str) -> None:
    log = tmp_path / "app.log"
    log.write_text('{"id": 1}\n')
    follow(app, log, more=", 'format' = 'jsonl'")
    append(log, '{"id": 2}\n')
    if how == "rename":
        log.rename(tmp_path / "app.log.1")
        append(tmp_path / "app.log.1", '{"id": 3}\n')
    else:
        app.drain()
        append(log, '{"id": 3}\n')
        shutil.copy(log, tmp_path / "app.log.1")
        os.truncate(log, 0)
    append(log, '{"id": 4}\n')
    app.drain()
    assert rows(app) == [(1,), (2,), (3,), (4,)]
    (tmp_path / "app.log.1").rename(tmp_path / "app.log.2")
    log.rename(tmp_path / "app.log.1")
    log.write_text('{"id": 5}\n')
    app.drain()
    assert rows(app) == [(1,), (2,), (3,), (4,), (5,)]


def test_a_failure_leaves_the_table_stale_until_it_passes(app: App, tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    parquet.write_table(pa.table({"id": [1]}), file)
    follow(app, file, more=", 'on.error' = 'fail'")
    file.write_bytes(b"PAR1 this is no Parquet PAR1")
    until(lambda: app.table("t").health_check().status == "stale")
    assert rows(app) == [(1,)]
    with pytest.raises(Error):
        app.drain()
    assert app.ready().state == "degraded"
    parquet.write_table(pa.table({"id": [2]}), file)
    until(lambda: app.table("t").health_check().status == "healthy")
    assert rows(app) == [(2,)] and app.ready()


def test_records_that_cannot_be_read_are_those_of_the_files_now(app: App, tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("id\n1\nx\n")
    app.sql(f"CREATE TABLE t (id BIGINT) AS SELECT id FROM 'file://{file}' WITH ({DEBOUNCE})")
    append(file, "2\ny\n")
    app.drain()
    assert rows(app) == [(1,), (2,)]
    assert len(app.sql("SELECT * FROM `t$errors`").rows()) == 2
    file.write_text("id\n3\nz\n")
    app.drain()
    (bad,) = app.sql("SELECT * FROM `t$errors`").rows()
    assert rows(app) == [(3,)] and "z" in json.dumps(bad, default=str)


def test_a_restart_goes_on_where_it_was(tmp_path: Path) -> None:
    file, state = tmp_path / "a.csv", tmp_path / "state"
    file.write_text("id\n1\n")
    sql = f"CREATE TABLE t AS SELECT * FROM 'file://{file}' WITH ({DEBOUNCE})"
    with App(sql, state=state) as app:
        assert rows(app) == [(1,)]
    append(file, "2\n")
    with App(sql, state=state) as app:
        app.drain()
        assert rows(app) == [(1,), (2,)]
    file.write_text("id\n2\n3\n")
    with App(sql, state=state) as app:
        app.drain()
        assert rows(app) == [(2,), (3,)]
    file.unlink()
    with App(state=state) as app:
        assert rows(app) == [(2,), (3,)] and app.table("t").health_check().status == "stale"
        file.write_text("id\n3\n4\n")
        until(lambda: rows(app) == [(3,), (4,)])
        assert app.table("t").health_check().status == "healthy"


def test_watch_false_and_refresh_once_read_once(app: App, tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("id\n1\n")
    app.sql(f"CREATE TABLE a AS SELECT * FROM 'file://{file}' WITH ('watch' = 'false')")
    app.sql(f"CREATE TABLE b AS SELECT * FROM 'file://{file}' WITH ('refresh' = 'once')")
    append(file, "2\n")
    app.drain()
    assert rows(app, "a") == rows(app, "b") == [(1,)]
    assert app.table("a").health_check().status == app.table("b").health_check().status == "static"


def test_a_dropped_table_follows_no_more(app: App, tmp_path: Path) -> None:
    others = set(threading.enumerate())  # tests that crash an app leave its threads
    (tmp_path / "a.csv").write_text("id\n1\n")
    follow(app, tmp_path / "a.csv")
    assert [t for t in set(threading.enumerate()) - others if t.name == "millpond-follow-t"]
    app.sql("DROP TABLE t")
    append(tmp_path / "a.csv", "2\n")
    app.drain()
    assert not [t for t in set(threading.enumerate()) - others if t.name == "millpond-follow-t"]
    follow(app, tmp_path / "a.csv")
    assert rows(app) == [(1,), (2,)]


def test_a_file_that_is_not_there_may_be_made(app: App, tmp_path: Path) -> None:
    file = tmp_path / "in" / "a.csv"
    with pytest.raises(FileMissing):
        follow(app, file)
    with pytest.raises(SourceError, match="declare the columns"):
        follow(app, file, more=", 'file.create.empty' = 'true'")
    app.sql(
        f"CREATE TABLE t (id BIGINT, name STRING) AS SELECT * FROM 'file://{file}' "
        f"WITH ({DEBOUNCE}, 'file.create.empty' = 'true')"
    )
    assert file.exists() and rows(app) == []
    file.write_text("id,name\n1,a\n")
    app.drain()
    assert rows(app) == [(1, "a")]


def test_a_pattern_is_waited_for(app: App, tmp_path: Path) -> None:
    late = threading.Timer(0.3, lambda: (tmp_path / "x.csv").write_text("id\n7\n"))
    late.start()
    follow(app, tmp_path / "*.csv", more=", 'file.wait.timeout' = '30s', 'file.retry.interval' = '50ms'")
    assert rows(app) == [(7,)]


def test_a_query_with_other_options_changes_nothing(app: App, tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("id;name\n1;a\n")
    follow(app, file, more=", 'delimiter' = ';'")
    assert len(app.sql(f"SELECT * FROM 'file://{file}' WITH ('watch' = 'false')").columns) == 1
    append(file, "2;b\n")
    app.drain()
    assert rows(app) == [(1, "a"), (2, "b")]


def test_empty_files_are_no_matter(app: App, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"id": 1}\n')
    (tmp_path / "b.jsonl").write_text("")
    follow(app, tmp_path / "*.jsonl")
    (tmp_path / "c.jsonl").write_text("")
    append(tmp_path / "b.jsonl", '{"id": 2}\n')
    app.drain()
    assert rows(app) == [(1,), (2,)]


def test_a_rotated_file_keeps_its_format(app: App, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id\n1\n")
    follow(app, tmp_path / "a.csv")
    (tmp_path / "a.csv").rename(tmp_path / "a.csv.1")
    append(tmp_path / "a.csv.1", "2\n")
    (tmp_path / "a.csv").write_text("id\n3\n")
    app.drain()
    assert rows(app) == [(1,), (2,), (3,)]
    (tmp_path / "a.csv.1").unlink()
    (tmp_path / "a.csv").rename(tmp_path / "a.csv.1")
    (tmp_path / "a.csv").write_text("id\n4\n")
    app.drain()
    assert rows(app) == [(1,), (2,), (3,), (4,)]


def test_half_a_record_in_quotes_is_read_again(app: App, tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text('id,v\n0,zero\n1,"one\n')
    follow(app, file)
    time.sleep(0.2)
    app.drain()
    append(file, 'two"\n2,b\n')
    app.drain()
    assert rows(app) == [(0, "zero"), (1, "one\ntwo"), (2, "b")]
    assert app.sql("SELECT * FROM t$errors").rows() == []


def test_a_file_that_comes_back_takes_its_place_again(app: App, tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("id\n1\n2\n")
    follow(app, file)
    file.unlink()
    app.drain()
    assert rows(app) == [(1,), (2,)]
    file.write_text("id\n2\n3\n")
    app.drain()
    assert rows(app) == [(2,), (3,)]


def test_an_aggregate_is_of_the_files_that_are_there(app: App, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id\n1\n2\n")
    (tmp_path / "b.csv").write_text("id\n3\n")
    app.sql(f"CREATE TABLE n AS SELECT COUNT(*) AS n FROM 'file://{tmp_path}/*.csv' WITH ({DEBOUNCE})")
    (tmp_path / "a.csv").unlink()
    app.drain()
    assert app.table("n").all_rows() == [{"n": 1}]


def test_rows_without_a_key_are_put_aside(app: App, tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("id,v\n1,a\n,b\n")
    follow(app, file, key="(PRIMARY KEY (id))")
    append(file, "2,c\n,d\n")
    app.drain()
    assert rows(app) == [(1, "a"), (2, "c")]
    reasons = app.sql("SELECT reason, row FROM t$errors").rows()
    assert len(reasons) == 2 and all("id is NULL" in r["reason"] for r in reasons)


def test_a_statement_that_fails_leaves_no_table(app: App, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id\nx\n")
    sql = f"CREATE TABLE t (id BIGINT) AS SELECT id FROM 'file://{tmp_path}/a.csv' WITH ('on.error' = 'fail')"
    with pytest.raises(Error):
        app.sql(sql)
    (tmp_path / "a.csv").write_text("id\n1\n")
    app.sql(sql)
    assert rows(app) == [(1,)]


def test_a_file_from_the_future_is_believed(app: App, tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("id\n1\n")
    follow(app, file)
    file.write_text("id\n2\n")
    os.utime(file, (time.time() + 3600, time.time() + 3600))
    app.drain(timeout=30)
    assert rows(app) == [(2,)]


def test_a_file_that_goes_while_it_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was taken of it stays, the others go on."""
    with App(engine="process") as app:
        check_that_it_goes(app, tmp_path, monkeypatch)


def check_that_it_goes(app: App, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "CHUNK", 1000)
    (tmp_path / "a.csv").write_text("id\n" + "".join(f"{i}\n" for i in range(300_000)))
    (tmp_path / "b.csv").write_text("id\n-1\n")
    commits = []
    plain = LoadedTable._commit

    def commit(self: LoadedTable, *given: Any, **more: Any) -> None:
        plain(self, *given, **more)
        commits.append(1)
        if len(commits) == 2:
            (tmp_path / "a.csv").unlink()

    monkeypatch.setattr(LoadedTable, "_commit", commit)
    follow(app, tmp_path / "*.csv")
    app.drain()
    assert app.sql("SELECT COUNT(*) AS n FROM t WHERE id = -1").rows() == [{"n": 1}]
    found = app.sql("SELECT COUNT(*) AS n, COUNT(DISTINCT id) AS d FROM t").rows()[0]
    assert found["n"] == found["d"] > 1000


def test_a_table_that_waits_for_its_file_can_be_dropped(tmp_path: Path) -> None:
    file, state = tmp_path / "a.csv", tmp_path / "state"
    file.write_text("id\n1\n")
    with App(f"CREATE TABLE t AS SELECT * FROM 'file://{file}'", state=state):
        pass
    file.unlink()
    with App(state=state) as app:
        with app._runtime.lock:
            time.sleep(0.8)  # the thread that tries again wants the lock
            app.sql("DROP TABLE t")
        assert app.tables() == []


# random lives of files


names = st.sampled_from(["a", "b", "c"])
ids = st.lists(st.integers(0, 9), max_size=4)
life = st.one_of(
    st.tuples(st.just("append"), names, ids),
    st.tuples(st.just("rewrite"), names, ids),
    st.tuples(st.just("rotate"), names, ids),
    st.tuples(st.just("delete"), names, ids),
    st.tuples(st.just("create"), names, ids),
    st.tuples(st.just("look"), names, ids),
)


def live(directory: Path, what: str, name: str, numbers: list[int], step: int) -> None:
    path = directory / f"{name}.csv"
    lines = "".join(f"{i},{step}\n" for i in numbers)
    match what:
        case "append" if path.exists():
            append(path, lines)
        case "rewrite" | "create":
            made = directory / "next"
            made.write_text("id,step\n" + lines)
            if what == "rewrite" and path.exists():
                path.write_text(made.read_text())
            else:
                made.rename(path)
        case "rotate" if path.exists():
            path.rename(directory / f"{name}-{step}.csv")
            path.write_text("id,step\n" + lines)
        case "delete" if path.exists() and len(list(directory.glob("*.csv"))) > 1:
            path.unlink()


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=st.lists(life, min_size=1, max_size=10), keyed=st.booleans())
def test_whatever_happens_the_table_is_as_if_loaded_now(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, str, list[int]]], keyed: bool
) -> None:
    directory = tmp_path_factory.mktemp("life")
    (directory / "a.csv").write_text("id,step\n1,0\n")
    key = "(PRIMARY KEY (id, step))" if keyed else ""
    options = "WITH ('watch.debounce' = '0s', 'on.remove' = 'delete')"
    with App(_direct=True) as app:
        sql = f"CREATE TABLE t {key} AS SELECT * FROM 'file://{directory}/*.csv' {options}"
        app.sql(sql)
        for number, (what, name, numbers) in enumerate(steps, 1):
            if what == "look":
                app.drain()
            live(directory, what, name, numbers, number)
        app.drain()
        app.sql(sql.replace("TABLE t", "TABLE fresh"))
        assert rows(app) == rows(app, "fresh")


class Remembered:
    """What a table over files should hold that keeps the rows of files that are gone: of each file what it was when it
    was last looked at, unless it was written anew, or is back."""

    def __init__(self, directory: Path):
        self.directory = directory
        self.here: dict[str, str] = {}
        self.gone: dict[str, str] = {}
        self.look()

    def look(self) -> None:
        now = {p.name: p.read_text() for p in self.directory.glob("*.csv")}
        still = {name for name, text in self.here.items() if now.get(name, "").startswith(text)}
        moved: set[str] = set()
        for name, text in self.here.items():
            stem = name.removesuffix(".csv")
            others = [n for n in now if n.startswith(f"{stem}-") and n not in still | moved]
            to = next((n for n in others if now[n].startswith(text)), None)
            if name in still:
                continue
            if to is not None:
                moved.add(to)
            elif name not in now:
                self.gone[name] = text
        for name in set(now) - moved:
            self.gone.pop(name, None)
        self.here = now

    def rows(self) -> list[tuple[int, int]]:
        lines = [
            line for text in (*self.here.values(), *self.gone.values()) for line in text.splitlines()[1:]
        ]
        return sorted((tuple(map(int, line.split(","))) for line in lines), key=repr)  # type: ignore[arg-type]


QUERIES = ("SELECT * FROM", "SELECT id + 0 AS id, step FROM {} WHERE step >= 0")
GONE_WITHOUT_ROWS: list[tuple[str, str, list[int]]] = [
    ("create", "b", []), ("look", "a", []), ("rewrite", "a", []), ("delete", "b", [])
]  # fmt: skip


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=st.lists(life, min_size=1, max_size=12), keyed=st.booleans(), query=st.sampled_from(QUERIES))
@example(GONE_WITHOUT_ROWS, False, QUERIES[0])
@example(GONE_WITHOUT_ROWS, True, QUERIES[1])
def test_whatever_happens_rows_of_files_that_are_gone_are_told_from_others(
    tmp_path_factory: pytest.TempPathFactory,
    steps: list[tuple[str, str, list[int]]],
    keyed: bool,
    query: str,
) -> None:
    """A table that keeps them is as if loaded now, with these rows beside; so is a source beside a table."""
    directory = tmp_path_factory.mktemp("life")
    state = tmp_path_factory.mktemp("state")
    (directory / "a.csv").write_text("id,step\n1,0\n")
    source, options = f"'file://{directory}/*.csv'", "WITH ('watch.debounce' = '0s')"
    select = query.format(source) if "{}" in query else f"{query} {source}"
    sql = f"""
        CREATE TABLE t {"(PRIMARY KEY (id, step))" if keyed else ""} AS {select} {options};
        CREATE TABLE one (n BIGINT);
        INSERT INTO one VALUES (1);
        CREATE TABLE beside AS SELECT f.id, f.step FROM one JOIN {source} f ON one.n = 1 {options};
    """
    app = App(sql, state=state, _direct=True)
    remembered = Remembered(directory)
    beside = Remembered(directory)
    for number, (what, name, numbers) in enumerate(steps, 1):
        if what == "look":
            app.drain()
            remembered.look()
            beside.look()
            if len(numbers) == 4:  # now and then the app is cut off: what it holds beside is read anew
                crash(app)
                app = App(sql, state=state, _direct=True)
                beside = Remembered(directory)
        live(directory, what, name, list(dict.fromkeys(numbers)) if keyed else numbers, number)
    app.drain()
    remembered.look()
    beside.look()
    assert rows(app) == remembered.rows()
    assert rows(app, "beside") == beside.rows()
    app.close()
