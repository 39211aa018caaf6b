"""What files of a sink lose, and what they do not: repeated batches, two writers, failures while rows wait."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from millpond import App, Error
from millpond.changes import Position
from millpond.connectors.files.local_storage import LocalStorage
from millpond.connectors.files.manifest import HIDDEN, MERGED
from millpond.connectors.files.sink import FileSink
from millpond.errors import AlreadyExists, BadData, ConfigurationIssue, ConnectionLost, StateCorrupt
from millpond.types import Schema

STREAM = "CREATE STREAM s (id BIGINT, k STRING) WITH ('batch.max.rows' = '20');"
HOUR = {"file.interval": 3600.0}
NAME = "id-q"


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


def at(batch: int) -> Position:
    return Position("q", "", batch, {"s": {"seq": batch}})


def opened(folder: Path, name: str = NAME, **values: Any) -> FileSink:
    sink = FileSink(f"file://{folder}", values, Schema.of(rows(1).schema))
    sink.open(name)
    return sink


def files(folder: Path) -> list[Path]:
    return sorted(p for p in folder.rglob("*") if p.is_file() and HIDDEN not in p.parts)


def ids(folder: Path) -> list[int]:
    return [json.loads(line)["id"] for path in files(folder) for line in path.read_text().splitlines()]


def make_due(sink: FileSink) -> None:
    sink.values["file.interval"] = 1e-9


class Full:
    """A disk that is full for a while."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.now = False
        write = LocalStorage.write

        def tried(storage: LocalStorage, path: str, data: bytes) -> None:
            if self.now:
                raise ConnectionLost(f'"{path}" cannot be written: No space left on device')
            write(storage, path, data)

        monkeypatch.setattr(LocalStorage, "write", tried)


def test_a_repeated_batch_does_not_replace_those_that_shared_its_file(tmp_path: Path) -> None:
    """At least once: the last batch of a file came before the position was committed."""
    values = {"delivery": "at-least-once", **HOUR}
    sink = opened(tmp_path, **values)
    for batch in (1, 2):
        sink.write(rows(batch), at(batch))
    make_due(sink)
    sink.write(rows(3), at(3))
    assert ids(tmp_path) == [1, 2, 3]
    for _ in range(2):  # killed, and killed once more
        again = opened(tmp_path, **values)
        again.write(rows(3), at(3))
        again.close()
    assert sorted(ids(tmp_path)) == [1, 2, 3, 3, 3]


@pytest.mark.parametrize("needed", ["{query}", "{app}"])
def test_names_tell_statements_apart(needed: str, tmp_path: Path) -> None:
    pattern = "{query}-{app}-{batch}-{part}".replace(needed, "x")
    text = f"INSERT INTO file://{tmp_path}/out SELECT * FROM s WITH ('file.name' = '{pattern}');"
    with pytest.raises(Error, match=f"lacks {needed}") as found, App(STREAM + "\n" + text):
        pass
    assert (found.value.line, found.value.column) == (2, text.index("'file.name'") + 1)


def test_a_file_that_came_meanwhile_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = opened(tmp_path)
    sink.write(rows(1), at(1))
    (published,) = files(tmp_path)
    other = tmp_path / published.name.replace("00000001", "00000002")
    exists = LocalStorage.exists

    def seen(storage: LocalStorage, path: str) -> bool:
        found = exists(storage, path)
        other.write_text("not ours")
        return found

    monkeypatch.setattr(LocalStorage, "exists", seen)
    with pytest.raises(AlreadyExists, match="already exists"):
        sink.write(rows(2), at(2))
    assert other.read_text() == "not ours"
    other.unlink()
    sink = opened(tmp_path)  # the manifest counts: its rows get their name when it is free
    assert ids(tmp_path) == [1, 2]


def test_a_kill_between_link_and_unlink(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = opened(tmp_path)
    unlink = os.unlink

    def killed(path: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "unlink", killed)
    with pytest.raises(KeyboardInterrupt):
        sink.write(rows(1), at(1))
    monkeypatch.setattr(os, "unlink", unlink)
    again = FileSink(f"file://{tmp_path}", {}, Schema.of(rows(1).schema))
    found = again.open(NAME)
    assert found is not None and found.batch == 1
    assert ids(tmp_path) == [1] and os.stat(files(tmp_path)[0]).st_nlink == 1


def test_waiting_rows_after_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Full(monkeypatch)
    sink = opened(tmp_path, **HOUR)
    sink.write(rows(1), at(1))
    make_due(sink)
    disk.now = True
    for _ in range(2):
        with pytest.raises(ConnectionLost):
            sink.settle()
        assert sink.waiting == 1
    disk.now = False
    sink.settle()
    assert ids(tmp_path) == [1] and sink.waiting == 0
    sink.write(rows(2), at(2))
    sink.close()
    assert ids(tmp_path) == [1, 2]


def test_what_is_dropped_is_published_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Full(monkeypatch)
    sink = opened(tmp_path, **HOUR)
    sink.write(rows(1), at(1))
    disk.now = True
    with pytest.raises(ConnectionLost):
        sink.close()
    with pytest.raises(ConnectionLost):
        sink.forget(NAME)
    disk.now = False
    sink.forget(NAME)
    assert ids(tmp_path) == [1]
    assert opened(tmp_path).waiting is None


def test_a_query_is_not_dropped_while_its_rows_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Full(monkeypatch)
    text = f"""{STREAM}
        INSERT INTO file://{tmp_path}/out SELECT * FROM s WITH ('file.interval' = '1h', 'query.name' = 'q');"""
    with App(text, state=tmp_path / "state", engine="process", _direct=True) as app:
        app.send("s", [{"id": 1, "k": "a"}])
        app.drain(60)
        disk.now = True
        with pytest.raises(Error, match="No space left"):
            app.sql("DROP QUERY q")
        disk.now = False
        assert [row["name"] for row in app.sql("SHOW QUERIES").rows()] == ["q"]
        app.send("s", [{"id": 2, "k": "a"}])
        app.drain(60)
        app.sql("DROP QUERY q")
        assert app.sql("SHOW QUERIES").rows() == []
        assert ids(tmp_path / "out") == [1, 2]
        # The same query once more: its batches have the same numbers.
        app.sql(f"INSERT INTO file://{tmp_path}/out SELECT * FROM s WITH ('query.name' = 'q')")
        app.drain(60)
        app.sql("DROP QUERY q")
        app.sql(f"INSERT INTO file://{tmp_path}/out SELECT * FROM s WITH ('query.name' = 'q')")
        app.drain(60)
        assert sorted(ids(tmp_path / "out")) == [1, 1, 1, 2, 2, 2]


def test_without_an_interval_waiting_rows_are_published(tmp_path: Path) -> None:
    sink = opened(tmp_path, **HOUR)
    sink.write(rows(1), at(1))
    sink.write(rows(2), at(2))  # killed; the next start has no interval
    again = opened(tmp_path)
    assert again.waiting == 2
    again.settle()
    assert ids(tmp_path) == [1, 2] and again.waiting is None
    sink = opened(tmp_path, **HOUR)
    sink.write(rows(3), at(3))
    again = opened(tmp_path)
    again.write(rows(4), at(4))
    assert sorted(ids(tmp_path)) == [1, 2, 3, 4]


def test_a_folder_that_was_moved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the manifest names gets its name there."""
    move = LocalStorage.move

    def killed(storage: LocalStorage, source: str, target: str, *, replaces: bool) -> bool:
        raise KeyboardInterrupt

    sink = opened(tmp_path / "here")
    monkeypatch.setattr(LocalStorage, "move", killed)
    with pytest.raises(KeyboardInterrupt):
        sink.write(rows(1), at(1))
    monkeypatch.setattr(LocalStorage, "move", move)
    os.rename(tmp_path / "here", tmp_path / "there")
    opened(tmp_path / "there")
    assert ids(tmp_path / "there") == [1]


@pytest.mark.parametrize(
    ("moves", "waiting"),
    [
        ([["{secret}", "public.txt", False]], []),
        ([[".x", "../public.txt", False]], []),
        ([[".x", "{secret}", True]], []),
        ([["../../../secret", "public.txt", False]], []),
        ([], ["../../../secret"]),
        ([[".x"]], []),
    ],
)
def test_a_manifest_of_somebody_else(moves: Any, waiting: Any, tmp_path: Path) -> None:
    """It moves no file from elsewhere, nor to elsewhere."""
    secret = tmp_path / "secret"
    secret.write_text("x")
    folder = tmp_path / "out" / HIDDEN / hashlib.sha256(NAME.encode()).hexdigest()[:24]
    folder.mkdir(parents=True)
    (folder / ".x").write_text("y")
    filled = [[part.format(secret=secret) if isinstance(part, str) else part for part in m] for m in moves]
    noted = {"owner": "", "position": None, "moves": filled, "waiting": waiting, "since": 0, "size": 0}
    (folder / ".manifest.json").write_text(json.dumps(noted | {"batches": 0, "first": None, "run": 0}))
    with pytest.raises(StateCorrupt, match="is damaged"):
        opened(tmp_path / "out")
    assert secret.read_text() == "x" and files(tmp_path / "out") == []


def test_waiting_rows_that_are_gone_are_an_error(tmp_path: Path) -> None:
    sink = opened(tmp_path, **HOUR)
    sink.write(rows(1), at(1))
    sink.write(rows(2), at(2))
    next((tmp_path / HIDDEN).rglob(".rows-0-*-1")).unlink()
    with pytest.raises(StateCorrupt, match="is gone"):
        sink.close()
    assert files(tmp_path) == []


def test_two_processes_do_not_take_turns(tmp_path: Path) -> None:
    one = opened(tmp_path)
    one.write(rows(1), at(1))
    two = opened(tmp_path)
    two.write(rows(2), at(2))
    with pytest.raises(ConfigurationIssue, match="another process") as found:
        one.write(rows(3), at(3))
    assert not found.value.retryable
    two.write(rows(3), at(3))
    found_at = one.open(NAME)  # the first try after it: START QUERY
    assert found_at is not None and found_at.batch == 3
    with pytest.raises(ConfigurationIssue):
        two.write(rows(4), at(4))
    assert ids(tmp_path) == [1, 2, 3]


def test_one_that_fails_does_not_take_it_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Full(monkeypatch)
    one = opened(tmp_path)
    disk.now = True
    with pytest.raises(ConnectionLost):
        one.write(rows(1), at(1))
    disk.now = False
    two = opened(tmp_path)
    with pytest.raises(ConfigurationIssue):
        one.open(NAME)
    two.write(rows(1), at(1))
    assert ids(tmp_path) == [1]


def test_one_that_opens_between_the_reading_and_the_writing_of_the_manifest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = opened(tmp_path)
    one.write(rows(1), at(1))
    write, opens = LocalStorage.write, []

    def late(storage: LocalStorage, path: str, data: bytes) -> None:
        write(storage, path, data)
        if path.endswith("manifest.json") and not opens:
            opens.append(path)
            opens.append(opened(tmp_path))

    monkeypatch.setattr(LocalStorage, "write", late)
    with pytest.raises(ConfigurationIssue):
        one.write(rows(2), at(2))
    assert ids(tmp_path) == [1, 2]  # the other one has completed it


def test_an_empty_result_replaces_a_file(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("old\n")
    with App("CREATE TABLE t (id BIGINT)", _direct=True) as app:
        app.sql(f"INSERT INTO file://{tmp_path}/x.csv SELECT * FROM t WITH ('overwrite' = 'true')")
        app.sql(f"INSERT INTO file://{tmp_path}/y.jsonl SELECT * FROM t")
        app.sql(f"INSERT INTO file://{tmp_path}/z SELECT * FROM t")
    assert (tmp_path / "x.csv").read_text() == '"id"\n'
    assert [path.name for path in files(tmp_path)] == ["x.csv", "y.jsonl"]


def test_folders_are_synced_with_their_parents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced = set()
    sync = os.fsync

    def noted(number: int) -> None:
        synced.add(os.readlink(f"/proc/self/fd/{number}"))
        sync(number)

    monkeypatch.setattr(os, "fsync", noted)
    LocalStorage().write(str(tmp_path / "a" / "b" / "c.txt"), b"x")
    assert {str(tmp_path), str(tmp_path / "a"), str(tmp_path / "a" / "b")} <= synced


def test_the_umask_is_kept_and_never_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = os.umask(0o027)
    try:
        with monkeypatch.context() as patched:
            patched.setattr(os, "umask", lambda mask: pytest.fail("other threads create files meanwhile"))
            LocalStorage().write(str(tmp_path / "x"), b"x")
        assert os.stat(tmp_path / "x").st_mode & 0o777 == 0o640
    finally:
        os.umask(before)


def test_a_value_that_is_too_long_for_a_folder_goes_to_the_error_table(tmp_path: Path) -> None:
    text = f"""{STREAM}
        INSERT INTO file://{tmp_path}/out SELECT * FROM s WITH ('partition.by' = 'k', 'query.name' = 'q');"""
    with App(text, state=tmp_path / "state", engine="process", _direct=True) as app:
        app.send("s", [{"id": 1, "k": "a"}, {"id": 2, "k": "ä" * 60}, {"id": 3, "k": "b"}])
        app.drain(60)
        (error,) = app.sql("SELECT seq, reason FROM `q$errors`").rows()
        assert error["seq"] == 1 and "too long" in error["reason"]
    assert ids(tmp_path / "out") == [1, 3]


def test_a_clock_that_is_set_back(tmp_path: Path) -> None:
    sink = opened(tmp_path, **HOUR)
    publisher = sink._publisher
    assert publisher is not None
    sink.write(rows(1), at(1))
    publisher.now = replace(publisher.now, since=publisher.now.since + 10 * 3600)
    sink.settle()
    assert ids(tmp_path) == [1]


def test_many_batches_wait_in_few_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda number: None)
    sink = opened(tmp_path, **HOUR)
    count = MERGED * MERGED + 3 * MERGED + 5
    for batch in range(count):
        sink.write(rows(batch), at(batch))
    assert sink.waiting == count
    assert len(list((tmp_path / HIDDEN).rglob(".rows-*"))) == 1 + 3 + 5
    sink = opened(tmp_path, **HOUR)
    sink.close()
    assert ids(tmp_path) == list(range(count))


@pytest.mark.parametrize("query", ["_q", ".q", "a/b", ".."])
def test_names_of_queries_are_names_of_files_that_readers_see(query: str, tmp_path: Path) -> None:
    sink = opened(tmp_path, f"id-{query}")
    sink.write(rows(1), at(1))
    (path,) = files(tmp_path)
    assert path.parent == tmp_path and path.name[0] not in "._"


def test_too_long_values_are_data_errors(tmp_path: Path) -> None:
    sink = FileSink(f"file://{tmp_path}", {"partition.by": "k"}, Schema.of(pa.schema({"k": pa.string()})))
    with pytest.raises(BadData):
        sink.check(pa.table({"k": ["a", "x" * 300]}))
