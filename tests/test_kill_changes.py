"""kill -9 of an app that writes the changes of a table to a database, or to a topic: the outside has what an app that
nobody disturbs leaves there.

This file is also the program that is killed.
"""

from __future__ import annotations

import json
import random
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any

import pytest

from millpond import App
from millpond.testing.faults import killing
from tests.servers import Servers
from tests.test_kafka import new_topic, uri
from tests.test_kill import run_to_the_end, running

STEPS = 24
TABLES = """
CREATE TABLE items (id BIGINT PRIMARY KEY, n BIGINT);
CREATE TABLE done (step BIGINT PRIMARY KEY);
"""
DATABASE = (
    "INSERT INTO {url} SELECT id, n FROM items WHERE n % 5 <> 0 EMIT CHANGES WITH ('table' = 'copied');"
)
TOPIC = "INSERT INTO {url} SELECT id, n FROM items EMIT CHANGES WITH ('delivery' = 'exactly-once');"


def change(step: int) -> str:
    """What a step does: one commit with the note that it is done."""
    some = random.Random(step)
    match step % 4:
        case 0:
            rows = ", ".join(f"({some.randrange(12)}, {step * 10 + i})" for i in range(3))
            what = f"INSERT INTO items VALUES {rows}"
        case 1:
            what = f"UPDATE items SET n = n + {step} WHERE id < {some.randrange(12)}"
        case 2:
            what = f"DELETE FROM items WHERE id = {some.randrange(12)}"
        case _:
            what = "UPDATE items SET n = n + 1"
    return f"BEGIN; {what}; INSERT INTO done VALUES ({step}); COMMIT"


def work(text: str, state: str, point: str, visit: str) -> None:
    begun = Path(f"{state}.begun")
    if not begun.exists():
        with App(TABLES, state=state, _direct=True) as app:
            for step in range(4):
                app.sql(change(step))
        begun.touch()
    with (
        killing(point, visit=int(visit)) if point else nullcontext(),
        App(TABLES + text, state=state, _direct=True) as app,
    ):
        for step in range(len(app.table("done")), STEPS):
            app.sql(change(step))
            if step % 4 == 3:
                app.drain(120)
        app.drain(120)
        print(json.dumps([list(r.values()) for r in app.sql("SELECT * FROM items ORDER BY id").rows()]))


def ended(text: str, state: Path, kills: list[tuple[str, int]]) -> Any:
    for point, visit in kills:
        with running(sys.executable, "-m", __name__, text, str(state), point, str(visit)) as process:
            _, err = process.communicate(timeout=200)
            assert process.returncode == -9, (point, visit, err)
    out = run_to_the_end(sys.executable, "-m", __name__, text, str(state), "", "0")
    return json.loads(out.splitlines()[-1])


def rows_of(execute: Callable[[str], list[Any]]) -> list[list[Any]]:
    return [list(row) for row in execute("SELECT id, n FROM copied ORDER BY id")]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "kills"),
    [
        ("sqlite", [("changelog: filled", 1), ("sink: positioned", 2), ("journal: written", 9)]),
        ("postgresql", [("sink: written", 2), ("sink: noted", 3)]),
    ],
)
def test_kills_of_changes_into_a_database(
    kind: str, kills: list[tuple[str, int]], servers: Servers, tmp_path: Path
) -> None:
    url = f"sql://sqlite:///{tmp_path}/out.db"

    def execute(sql: str) -> list[Any]:
        with closing(sqlite3.connect(tmp_path / "out.db")) as connection:
            return connection.execute(sql).fetchall()

    if kind == "postgresql":
        url = servers.postgresql.new_schema("changes_kill")

        def execute(sql: str) -> list[Any]:
            return servers.postgresql.execute(sql, url)

    found = ended(DATABASE.format(url=url), tmp_path / "state", kills)
    assert len(found) > 3
    assert rows_of(execute) == [row for row in found if row[1] % 5]


@pytest.mark.slow
def test_kills_of_changes_into_a_topic(servers: Servers, tmp_path: Path) -> None:
    """Every change is there once, in order: the messages are those of an app that was not killed."""
    told = []
    kills = [("sink: positioned", 1), ("sink: written", 3)]
    for state, disturbed in ((tmp_path / "plain", []), (tmp_path / "killed", kills)):
        topic = new_topic(servers.kafka)
        rows = ended(TOPIC.format(url=uri(servers.kafka, topic)), state, disturbed)
        told.append(list(servers.kafka.consume(topic)))
        last = {key: value for key, value in told[-1]}
        assert sorted(json.loads(v)["id"] for v in last.values() if v) == [row[0] for row in rows]
    assert told[0] == told[1] and len(told[0]) > 20


if __name__ == "__main__":
    work(*sys.argv[1:])
