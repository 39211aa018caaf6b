"""Faults at every named point of what leaves the app: an exception, and SIGKILL, in sinks and in commits to
databases. After the next start everything is as in an app that nobody disturbed.

This file is also the program that is killed.
"""

from __future__ import annotations

import json
import random
import re
import sqlite3
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from millpond import App, Error, faults
from millpond.engine_rule import Engine
from millpond.testing.faults import Injected, failing, killing, recorded
from tests.servers import S3, Kafka, Servers
from tests.test_kafka import new_topic, uri
from tests.test_kill import run_to_the_end, running

ROWS, BATCH = 60, 20
STREAM = f"CREATE STREAM s (id BIGINT, k STRING) WITH ('batch.max.rows' = '{BATCH}');"
KAFKA = """
INSERT INTO {target} SELECT k AS _key, id, CAST(k AS INT) AS n FROM s
WITH ('delivery' = '{delivery}', 'query.name' = 'out');
"""
FILES = """
INSERT INTO {target} SELECT id, CAST(k AS INT) AS n FROM s
WITH ('format' = 'csv', 'partition.by' = 'n', 'query.name' = 'out'{more});
"""
INTO_DATABASE = """
INSERT INTO {target} SELECT id, CAST(k AS INT) AS n FROM s WITH ('table' = 'sunk', 'query.name' = 'out');
"""
DATABASE = """
CREATE TABLE log (id BIGINT) WITH ({options});
CREATE TABLE last (k STRING PRIMARY KEY, id BIGINT) WITH ({options});
INSERT INTO log SELECT id FROM s WHERE k <> 'no';
INSERT INTO last SELECT k, id FROM s;
CREATE TABLE sums WITH ({options}) AS SELECT k, COUNT(*) AS n, SUM(id) AS total FROM s GROUP BY k;
"""
IN_KAFKA = [p for p in faults.POINTS if p.startswith("sink: ")]
IN_FILES = [*(p for p in IN_KAFKA if p != "sink: positioned"), "files: named"]
IN_ROWS = [p for p in IN_KAFKA if p != "sink: produced"]
IN_DATABASES = [p for p in faults.POINTS if p.startswith("database: ")]
IN_DOCUMENTS = [p for p in faults.POINTS if p.startswith("documents: ")]
STORES = ("sqlite", "postgresql", "mysql", "redis", "mongodb")
DELIVERIES = {
    "kafka": "exactly-once",
    "kafka, at least once": "at-least-once",
    "kafka, by executors": "at-least-once",
}
WAITING = "file, rows wait"
BY_TASKS = "file, by executors"
ON_SPARK = ("WHERE k <> 'no' WITH ('engine' = 'spark', ", "WITH (")
"""With error records in a batch the driver would write it."""
Found = dict[str, list[str]]


def prepare(state: Path) -> None:
    """A stream whose rows are there, three batches of them, some of which cannot be written."""
    with App(STREAM, state=state) as app:
        for first in range(0, ROWS, 6):
            app.send(
                "s", [{"id": i, "k": "no" if i % 25 == 7 else str(i % 5)} for i in range(first, first + 6)]
            )


def contents(app: App) -> Found:
    """The rows of tables and of error tables, without times."""
    found = {}
    for name in app._runtime.catalog.names("table"):
        rows = app.sql(f"SELECT * FROM `{name}`").rows()
        kept = [{k: v for k, v in row.items() if k != "time"} for row in rows]
        found[name] = sorted(json.dumps(row, default=str) for row in kept)
    return found


def run(text: str, state: Path | str, engine: Engine = "auto") -> Found:
    with App(STREAM + text, state=state, engine=engine, _direct=True) as app:
        app.drain(120)
        return contents(app)


def work(text: str, state: str, point: str, visit: str) -> None:
    with killing(point, visit=int(visit)) if point else nullcontext():
        print(json.dumps(run(text, state)), flush=True)


class Place:
    """What is written to, anew for each app."""

    def __init__(
        self,
        text: str,
        topic: str | None = None,
        kafka: Kafka | None = None,
        *,
        once: bool = True,
        files: Callable[[], list[str]] | None = None,
    ):
        self.text = text
        self._topic, self._kafka, self._once, self._files = topic, kafka, once, files

    def contents(self, found: Found) -> Found:
        if self._files is not None:
            return found | {"files": self._files()}
        if self._kafka is None or self._topic is None:
            return found
        messages = [[(k or b"").decode(), (v or b"").decode()] for k, v in self._kafka.consume(self._topic)]
        told = map(json.dumps, messages)
        return found | {"topic": sorted(told if self._once else set(told))}


class Places:
    """Topics, or schemas and prefixes of databases, that nothing has used yet."""

    def __init__(self, kind: str, servers: Servers, directory: Path):
        self._kind, self._servers, self._directory = kind, servers, directory

    def new(self) -> Place:
        name = f"p{random.randrange(10**9)}"
        if self._kind.startswith("into "):
            return self._into(name)
        if self._kind in ("file", BY_TASKS, WAITING):
            folder = Path(tempfile.mkdtemp(dir=self._directory))
            more = ", 'file.interval' = '1h'" if self._kind == WAITING else ""
            text = FILES.format(target=f"file://{folder}", more=more)
            text = text.replace(*reversed(ON_SPARK)) if self._kind == BY_TASKS else text
            return Place(text, files=lambda: files_in(folder))
        if self._kind == "s3":
            s3 = self._servers.s3
            s3.client().create_bucket(Bucket=name)
            more = "".join(f", '{k}' = '{v}'" for k, v in s3.options.items())
            text = FILES.format(target=f"s3://{name}/out", more=more)
            return Place(text, files=lambda: objects_in(s3, name))
        if self._kind in DELIVERIES:
            kafka, delivery = self._servers.kafka, DELIVERIES[self._kind]
            topic = new_topic(kafka)
            text = KAFKA.format(target=uri(kafka, topic), delivery=delivery)
            if self._kind == "kafka, by executors":
                text = text.replace(*reversed(ON_SPARK))
            return Place(text, topic, kafka, once=delivery == "exactly-once")
        return Place(DATABASE.format(options=self._options(name)))

    def _into(self, name: str) -> Place:
        """A table of a database, as a sink."""
        if self._kind == "into postgresql":
            url, server = self._servers.postgresql.new_schema(name), self._servers.postgresql
            return Place(INTO_DATABASE.format(target=url), files=lambda: rows_in(server.execute, url))
        if self._kind == "into sqlite":
            file = Path(tempfile.mkdtemp(dir=self._directory)) / "out.db"

            def execute(sql: str, _: str) -> list[Any]:
                with closing(sqlite3.connect(file)) as connection:
                    return connection.execute(sql).fetchall()

            text = INTO_DATABASE.format(target=f"sql://sqlite:///{file}")
            return Place(text, files=lambda: rows_in(execute, ""))
        if self._kind == "into delta":
            table = tempfile.mkdtemp(dir=self._directory) + "/table"
            text = INTO_DATABASE.format(target=f"delta://{table}").replace("'table' = 'sunk', ", "")
            return Place(text, files=lambda: sorted(f"{r['id']} {r['n']}" for r in delta_rows(table)))
        maria = self._servers.mariadb
        url = maria.new_database(name)
        return Place(INTO_DATABASE.format(target=url), files=lambda: rows_in(maria.execute, name))

    def _options(self, name: str) -> str:
        return {
            "sqlite": lambda: "'extension' = 'sqlite'",
            "postgresql": lambda: (
                f"'extension' = 'postgresql', 'url' = '{self._servers.postgresql.new_schema(name)}'"
            ),
            "mysql": lambda: f"'extension' = 'mysql', 'url' = '{self._servers.mariadb.new_database(name)}'",
            "redis": lambda: (
                f"'extension' = 'redis', 'url' = '{self._servers.redis.url()}', 'prefix' = '{name}:'"
            ),
            "mongodb": lambda: f"'extension' = 'mongodb', 'url' = '{self._servers.mongodb.url(name)}'",
        }[self._kind]()


def delta_rows(table: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = DeltaTable(table).to_pyarrow_table().to_pylist()
    return rows


def rows_in(execute: Callable[..., list[Any]], where: str) -> list[str]:
    return [f"{row[0]} {row[1]}" for row in execute("SELECT id, n FROM sunk ORDER BY 1", where)]


def files_in(folder: Path) -> list[str]:
    """The files that readers see, with what they contain."""
    found = (path for path in folder.rglob("*.csv") if ".millpond" not in path.parts)
    return sorted(f"{_named(str(path.relative_to(folder)))} {path.read_text()}" for path in found)


def _named(path: str) -> str:
    """A path without the part that identifies the state directory."""
    return re.sub(r"-[0-9a-f]{8}-(?=[^/]*$)", "-", path, count=1)


def objects_in(s3: S3, bucket: str) -> list[str]:
    client = s3.client()
    keys = [o["Key"] for o in client.list_objects_v2(Bucket=bucket).get("Contents", ())]
    seen = [key for key in keys if ".millpond/" not in key]
    return [
        f"{_named(key)} {client.get_object(Bucket=bucket, Key=key)['Body'].read().decode()}" for key in seen
    ]


KINDS = [
    "file",
    BY_TASKS,
    "s3",
    "into postgresql",
    "into mysql",
    "into sqlite",
    "into delta",
    "sqlite",
    "kafka",
    "kafka, at least once",
    "kafka, by executors",
    "postgresql",
    "mysql",
    "redis",
    "mongodb",
]


def points_of(kind: str) -> list[str]:
    """Without a transaction of the sink there are none in it, and nothing is put aside before it."""
    if DELIVERIES.get(kind) == "at-least-once":
        return ["sink: written", "sink: noted"]
    if kind.startswith("into "):
        return IN_ROWS
    if kind in ("file", "s3"):
        return IN_FILES
    if kind == BY_TASKS:
        return [p for p in IN_FILES if p not in ("sink: begun", "sink: put aside")]
    if kind == "mongodb":
        return [*IN_DATABASES, *IN_DOCUMENTS]
    return IN_KAFKA if kind == "kafka" else IN_DATABASES


def undisturbed(places: Places, directory: Path) -> tuple[Found, Counter[str]]:
    """What an app that nobody disturbs leaves, and how often it reaches each point."""
    place = places.new()
    prepare(directory / "plain")
    with recorded() as visits:
        found = run(place.text, directory / "plain")
    return place.contents(found), visits


@pytest.mark.parametrize("kind", KINDS)
def test_an_exception_at_every_point(kind: str, servers: Servers, tmp_path: Path) -> None:
    places = Places(kind, servers, tmp_path)
    expected, visits = undisturbed(places, tmp_path)
    assert expected["topic" if kind in DELIVERIES else "log" if kind in STORES else "files"]
    for point in points_of(kind):
        assert visits[point], point
        place, state = places.new(), tmp_path / point.replace(" ", "-").replace(":", "")
        prepare(state)
        try:
            with failing(point, visit=max(1, visits[point] // 2)):
                run(place.text, state)
        except Error as error:
            assert Injected.__name__ in repr(error) or point in str(error), error
        assert place.contents(run(place.text, state)) == expected, point


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(
    ("kind", "point", "first", "second"),
    [("file", "sink: produced", "process", "spark"), ("kafka", "sink: put aside", "spark", "process")],
)
def test_the_other_engine_repeats_a_batch(
    kind: str, point: str, first: Engine, second: Engine, servers: Servers, tmp_path: Path
) -> None:
    """What was written before a fault does not depend on the engine: after the start another one goes on."""
    places = Places(kind, servers, tmp_path)
    expected, _ = undisturbed(places, tmp_path)
    place, state = places.new(), tmp_path / first
    prepare(state)
    with pytest.raises(Error), failing(point, visit=1):
        run(place.text, state, first)
    found = place.contents(run(place.text, state, second))
    assert without_reasons(found) == without_reasons(expected)


def without_reasons(found: Found) -> Found:
    """Error records say in the words of the engine what is wrong."""
    records = [json.loads(record) for record in found["out$errors"]]
    return found | {"out$errors": [json.dumps(r | {"reason": None}) for r in records]}


def kill(place: Place, state: Path, point: str, visit: int) -> None:
    with running(sys.executable, "-m", __name__, place.text, str(state), point, str(visit)) as process:
        _, err = process.communicate(timeout=200)
        assert process.returncode == -9, (point, visit, err)


def killed(places: Places, state: Path, kills: list[tuple[str, int]]) -> Found:
    place = places.new()
    prepare(state)
    for point, visit in kills:
        kill(place, state, point, visit)
    out = run_to_the_end(sys.executable, "-m", __name__, place.text, str(state), "", "0")
    found: dict[str, Any] = json.loads(out.splitlines()[-1])
    return place.contents(found)


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", [kind for kind in KINDS if kind not in ("mysql", "s3", "into mysql", "into sqlite", "sqlite")]
)  # tests/test_kill_databases.py has MySQL and SQLite; objects are written as files are, the long form has all
def test_kills(kind: str, servers: Servers, tmp_path: Path) -> None:
    """One start after the other is killed, each at another point."""
    places = Places(kind, servers, tmp_path)
    expected, _ = undisturbed(places, tmp_path)
    kills = [(point, 1) for point in points_of(kind)]
    random.Random(kind).shuffle(kills)
    assert killed(places, tmp_path / "killed", kills[:2]) == expected


@pytest.mark.slow
def test_kills_while_rows_wait_for_a_file(servers: Servers, tmp_path: Path) -> None:
    """After a batch, and while the app ends, which publishes them: in one file for all batches."""
    places = Places(WAITING, servers, tmp_path)
    expected, visits = undisturbed(places, tmp_path)
    assert expected["files"] and visits["files: named"] == 1
    kills = [("sink: noted", 1), ("sink: produced", 1), ("files: named", 1)]
    assert killed(places, tmp_path / "killed", kills) == expected


@pytest.mark.chaos
@pytest.mark.parametrize("kind", KINDS)
def test_a_kill_at_every_visit_of_every_point(kind: str, servers: Servers, tmp_path: Path) -> None:
    places = Places(kind, servers, tmp_path)
    expected, visits = undisturbed(places, tmp_path)
    for point in points_of(kind):
        for visit in range(1, visits[point] + 1):
            state = tmp_path / f"{point.replace(': ', '-').replace(' ', '-')}-{visit}"
            assert killed(places, state, [(point, visit)]) == expected, (point, visit)


if __name__ == "__main__":
    work(*sys.argv[1:])
