"""SIGKILL at each named point of loaders and followers: after the next start everything is as in an app that nobody
disturbed.

This file is also the program that is killed.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from millpond import App, Error, faults
from millpond.engine_rule import Engine
from millpond.formats import parquet
from millpond.loading import chunks, large_reads
from millpond.testing.faults import failing, killing
from tests.servers import Servers
from tests.test_kill import run_to_the_end, running
from tests.test_kill_capture import InMariaDb, InPostgres

pytestmark = pytest.mark.slow

FILES = """
CREATE TABLE appended AS SELECT * FROM file://{0}/*.jsonl;
CREATE TABLE keyed (PRIMARY KEY (id)) AS SELECT id, v FROM file://{0}/*.jsonl;
CREATE TABLE grouped AS SELECT v, COUNT(*) AS n FROM file://{0}/*.jsonl GROUP BY v;
"""
CAPTURED = """
CREATE STREAM c WITH ('connector' = '{0}&cdc.format=debezium');
CREATE TABLE copied AS SELECT * FROM '{0}';
CREATE TABLE logged AS SELECT op, before.id AS old, after.id AS id, after.note AS note FROM c;
"""
CHUNK = 40
"""Rows of a chunk in the program that is killed."""
Kill = tuple[str, int]
"""A point, and at which visit of it."""


def work(text: str, state: str, engine: Engine, point: str, visit: str) -> None:
    chunks.CHUNK = large_reads.GROUP_ROWS = parquet.ROWS_PER_PIECE = CHUNK
    with (
        killing(point, visit=int(visit)) if point else nullcontext(),
        App(text, state=state, engine=engine, _direct=True) as app,
    ):
        app.drain(timeout=120)
        tables = [r["name"] for r in app.sql("SHOW TABLES").rows() if "$" not in r["name"]]
        found = {name: app.sql(f"SELECT * FROM {name}").rows() for name in tables}
        print(json.dumps(found, default=str, sort_keys=True), flush=True)


class Apps:
    """Two apps over the same sources: one that is killed, and one that is not. The engine is that of the first."""

    def __init__(self, text: str, directory: Path, engine: Engine = "process"):
        self._text = text
        self._engine = engine
        self._directory = directory

    def _command(self, state: str, kill: Kill = ("", 0)) -> tuple[str, ...]:
        where = str(self._directory / state)
        engine = self._engine if state == "killed" else "process"
        return (sys.executable, "-m", __name__, self._text, where, engine, kill[0], str(kill[1]))

    def kill(self, *kills: Kill, must: bool = True) -> None:
        """Runs the first app until each of the points; with ``must`` none of them may be missed."""
        for kill in kills:
            with running(*self._command("killed", kill)) as process:
                _, err = process.communicate(timeout=120)
                assert process.returncode == -9 or (not must and process.returncode == 0), (kill, err)

    def compare(self) -> dict[str, list[dict[str, Any]]]:
        """Runs both to the end: they hold the same. Answers what."""
        killed, plain = (self._end(state) for state in ("killed", "plain"))
        for name, rows in plain.items():
            assert _sorted(killed[name]) == _sorted(rows), name
        return plain

    def _end(self, state: str) -> dict[str, list[dict[str, Any]]]:
        found: dict[str, list[dict[str, Any]]] = json.loads(
            run_to_the_end(*self._command(state)).splitlines()[-1]
        )
        return found


def _sorted(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(json.dumps(r, sort_keys=True) for r in rows)


# files


def write(path: Path, numbers: range, by: int = 7) -> None:
    with path.open("a") as file:
        file.writelines(json.dumps({"id": i, "v": i % by}) + "\n" for i in numbers)


def check_files(apps: Apps, rows: int) -> None:
    found = apps.compare()
    assert len(found["appended"]) == len(found["keyed"]) == rows
    assert sum(r["n"] for r in found["grouped"]) == rows


@pytest.mark.slow
def test_kills_of_tables_over_files(tmp_path: Path) -> None:
    files = tmp_path / "files"
    files.mkdir()
    write(files / "a.jsonl", range(100))
    write(files / "b.jsonl", range(100, 300))
    apps = Apps(FILES.format(files), tmp_path)
    apps.kill(
        ("load: begun", 1),
        ("load: chunk read", 3),
        ("load: chunk committed", 2),
        ("load: all chunks committed", 1),
    )
    check_files(apps, 300)
    write(files / "b.jsonl", range(300, 400))
    write(files / "c.jsonl", range(400, 500))
    apps.kill(("load: chunk committed", 1), ("load: compared", 1))
    check_files(apps, 500)
    (files / "a.jsonl").unlink()
    write(files / "a.jsonl", range(50, 100), by=5)
    write(files / "a.jsonl", range(500, 560))
    apps.kill(("load: compared", 2), ("load: difference committed", 1))
    check_files(apps, 510)


def kills_while_executors_read(directory: Path, *kills: Kill) -> tuple[Apps, Path]:
    files = directory / "files"
    files.mkdir()
    for number in range(6):
        write(files / f"{number}.jsonl", range(100 * number, 100 * number + 100))
    with (files / "2.jsonl").open("a") as file:
        file.write("{bad\n")
    apps = Apps(FILES.format(files), directory, engine="spark")
    apps.kill(*kills)
    check_files(apps, 600)
    return apps, files


@pytest.mark.slow
def test_a_kill_while_executors_read_files(tmp_path: Path) -> None:
    kills_while_executors_read(tmp_path, ("load: chunk committed", 2))


@pytest.mark.chaos
def test_kills_of_tables_over_files_that_executors_read(tmp_path: Path) -> None:
    apps, files = kills_while_executors_read(tmp_path, ("load: chunk committed", 2), ("load: chunk read", 4))
    write(files / "7.jsonl", range(600, 700))
    (files / "1.jsonl").unlink()
    write(files / "1.jsonl", range(100, 150), by=5)
    apps.kill(("load: compared", 2))
    check_files(apps, 650)


def write_rows(path: Path, numbers: range, by: int = 7) -> None:
    rows = pa.table({"id": numbers, "v": [i % by for i in numbers]})
    pq.write_table(rows, path, row_group_size=CHUNK)


def kills_while_spark_reads(directory: Path, *kills: Kill) -> tuple[Apps, Path]:
    files = directory / "files"
    files.mkdir()
    write_rows(files / "a.parquet", range(450))
    write_rows(files / "b.parquet", range(450, 600))
    apps = Apps(FILES.format(files).replace("*.jsonl", "*.parquet"), directory, engine="spark")
    apps.kill(*kills)
    check_files(apps, 600)
    return apps, files


@pytest.mark.slow
def test_a_kill_while_spark_s_own_reader_reads(tmp_path: Path) -> None:
    kills_while_spark_reads(tmp_path, ("load: chunk committed", 3))


@pytest.mark.chaos
def test_kills_of_tables_over_files_that_spark_s_own_reader_reads(tmp_path: Path) -> None:
    """Chunks are some row groups of a file: those before a kill are not read again, and all others are."""
    apps, files = kills_while_spark_reads(
        tmp_path, ("load: chunk committed", 3), ("load: chunk read", 5), ("load: chunk committed", 4)
    )
    write_rows(files / "c.parquet", range(600, 700))
    write_rows(files / "a.parquet", range(50, 450), by=5)
    apps.kill(("load: compared", 2))
    check_files(apps, 650)


@pytest.mark.parametrize("point", [p for p in faults.POINTS if p.startswith("load:")])
def test_a_failure_while_files_are_followed_is_made_good(
    tmp_path: Path, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is told, nothing is lost or doubled, and the next try takes in what is there."""
    monkeypatch.setattr(chunks, "CHUNK", CHUNK)
    write(tmp_path / "a.jsonl", range(100))
    with App(FILES.format(tmp_path), _direct=True) as app:
        write(tmp_path / "b.jsonl", range(100, 200))
        (tmp_path / "a.jsonl").unlink()
        write(tmp_path / "a.jsonl", range(50))
        if point.partition(": ")[2] not in ("compared", "difference committed"):
            app.drain()
            write(tmp_path / "b.jsonl", range(200, 300))
        with failing(point), pytest.raises(Error):
            app.drain()
        app.drain()
        ids = [*range(50), *range(100, 300 if (tmp_path / "b.jsonl").read_text().count("\n") > 100 else 200)]
        for name in ("appended", "keyed"):
            assert sorted(r["id"] for r in app.sql(f"SELECT id FROM {name}").rows()) == ids
        assert app.sql("SELECT SUM(n) AS n FROM grouped").rows() == [{"n": len(ids)}]


# databases


def rows_of(world: Any, query: str) -> list[Any]:
    connection = world.connect()
    cursor = connection.cursor()
    cursor.execute(query)
    found = list(cursor.fetchall())
    connection.close()
    return found


def run(world: Any, *statements: str) -> None:
    connection = world.connect()
    cursor = connection.cursor()
    for statement in statements:
        cursor.execute(statement)
    connection.commit()
    connection.close()


def fill(world: Any, numbers: range) -> None:
    some = ", ".join(f"({i}, 'g{i % 3}', {i}.5, 'n{i}')" for i in numbers)
    run(world, f"INSERT INTO items VALUES {some}")


def captured(world: Any, directory: Path) -> Apps:
    return Apps(CAPTURED.format(world.uri + f"&batch.size={CHUNK}&fetch.size={CHUNK}"), directory)


def check_captured(apps: Apps, world: Any) -> list[dict[str, Any]]:
    """Both hold what the database holds, and the streams the same changes; answers these."""
    found = apps.compare()
    there = rows_of(world, "SELECT id, note FROM items ORDER BY id")
    assert sorted((r["id"], r["note"]) for r in found["copied"]) == there
    return found["logged"]


LOADING: list[Kill] = [
    ("tap: begun", 1),
    ("tap: part of the rows sent", 1),
    ("tap: part of the rows sent", 3),
    ("tap: read", 1),
    ("tap: sent", 1),
    ("capture: begun", 1),
    ("load: chunk committed", 2),
]
FOLLOWING: list[Kill] = [("tap: read", 1), ("tap: sent", 1), ("capture: read", 1), ("capture: applied", 1)]


def check_kills_beside(world: Any, directory: Path) -> None:
    fill(world, range(200))
    apps = captured(world, directory)
    apps.kill(*LOADING)
    assert len(check_captured(apps, world)) == 200
    fill(world, range(200, 230))
    run(world, "UPDATE items SET note = 'x' WHERE id < 10", "DELETE FROM items WHERE id > 220")
    apps.kill(*FOLLOWING)
    ops = [r["op"] for r in check_captured(apps, world)]
    assert {op: ops.count(op) for op in set(ops)} == {"r": 200, "c": 30, "u": 10, "d": 9}
    world.end()


@pytest.mark.slow
def test_kills_of_a_copy_and_a_stream_of_changes(tmp_path: Path, servers: Servers) -> None:
    check_kills_beside(InPostgres(servers.own_postgresql), tmp_path)


def _any_kills(chance: random.Random, count: int) -> Iterator[Kill]:
    points = [p for p in faults.POINTS if p.partition(":")[0] in ("capture", "load", "tap")]
    for _ in range(count):
        yield chance.choice(points), chance.choice((1, 1, 1, 2, 3, 5))


@pytest.mark.chaos
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
def test_many_kills_of_copies_and_streams(tmp_path: Path, servers: Servers, kind: str, seed: int) -> None:
    world = InPostgres(servers.own_postgresql) if kind == "postgresql" else InMariaDb(servers.mariadb)
    chance = random.Random(seed)
    fill(world, range(500))
    apps = captured(world, tmp_path)
    for step in range(6):
        apps.kill(*_any_kills(chance, 6), must=False)
        check_captured(apps, world)
        fill(world, range(500 + 100 * step, 600 + 100 * step))
        run(
            world,
            f"UPDATE items SET note = 's{step}' WHERE id % 7 = {step}",
            f"DELETE FROM items WHERE id % 11 = {step}",
        )
    check_captured(apps, world)
    world.end()


@pytest.mark.chaos
@pytest.mark.parametrize("seed", range(3))
def test_many_kills_of_tables_over_files(tmp_path: Path, seed: int) -> None:
    chance, files, lines = random.Random(seed), tmp_path / "files", {"a": range(0, 300)}
    files.mkdir()
    write(files / "a.jsonl", lines["a"])
    apps = Apps(FILES.format(files), tmp_path)
    for step in range(8):
        apps.kill(*_any_kills(chance, 5), must=False)
        check_files(apps, sum(map(len, lines.values())))
        name, begin = chance.choice("abcd"), 1000 * (step + 1)
        lines[name] = range(begin, begin + chance.randint(1, 300))
        (files / f"{name}.jsonl").unlink(missing_ok=True)
        write(files / f"{name}.jsonl", lines[name], by=chance.randint(2, 9))
    check_files(apps, sum(map(len, lines.values())))


if __name__ == "__main__":
    work(*sys.argv[1:])  # type: ignore[arg-type]
