"""Sinks whose server stops in the middle of a write and is started again later: nothing is lost, nothing is there twice
where delivery is exactly once, the rest of the app goes on meanwhile, and the app says what is missing.
"""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pytest

from millpond import App
from millpond.errors import ConnectionLost
from millpond.testing.faults import at, failing
from tests.servers import S3, Servers

TEXT = """
CREATE STREAM s (id BIGINT, k STRING) WITH ('batch.max.rows' = '100');
CREATE TABLE here (id BIGINT PRIMARY KEY, k STRING);
INSERT INTO here SELECT id, k FROM s WITH ('query.name' = 'beside');
INSERT INTO {rows} SELECT id, k FROM s WITH ({options}, 'query.name' = 'out');
INSERT INTO {changes} SELECT id, k FROM here EMIT CHANGES WITH ({options}, 'query.name' = 'changes');
"""
Rows = list[tuple[int, str]]


class Server(Protocol):
    def start(self) -> None: ...
    def stop(self) -> None: ...


@dataclass
class Outside:
    """What the sinks write to, and what readers find there."""

    server: Server
    address: str
    target: str
    """The URI of a name: a table, or a prefix."""
    options: str
    found: Callable[[str], Rows]
    """Returns the rows of a name, each as often as it is there."""
    points: tuple[str, ...] = ("sink: positioned", "sink: written", "sink: begun", "sink: noted")
    """Where the server is stopped, one after the other."""


def postgresql(servers: Servers, directory: Path) -> Outside:
    server = servers.own_postgresql
    url = server.new_schema(f"away{uuid.uuid4().hex[:8]}")
    return Outside(
        server,
        f"127.0.0.1:{server.port}",
        f"{url}&table={{}}",
        "'retry.timeout' = '200ms'",
        lambda name: _pairs(server.execute(f"SELECT id, k FROM {name}", url)),
    )


def mysql(servers: Servers, directory: Path) -> Outside:
    server, schema = servers.mariadb, f"away{uuid.uuid4().hex[:8]}"
    return Outside(
        server,
        f"127.0.0.1:{server.port}",
        f"{server.new_database(schema)}?table={{}}",
        "'retry.timeout' = '200ms'",
        lambda name: _pairs(server.execute(f"SELECT id, k FROM {name}", schema)),
    )


def _pairs(rows: list[tuple[Any, ...]]) -> Rows:
    return [(row[0], row[1]) for row in rows]


def clickhouse(servers: Servers, directory: Path) -> Outside:
    """Delivery is at least once: a batch may be there twice, and FINAL shows each of its rows once."""
    server, schema = servers.clickhouse, f"away{uuid.uuid4().hex[:8]}"

    def found(name: str) -> Rows:
        lines = server.execute(f"SELECT id, k FROM {name} FINAL", schema).splitlines()
        return [(int(id), k) for id, _, k in (line.partition("\t") for line in lines)]

    target = f"{server.new_database(schema)}?table={{}}"
    return Outside(server, server.address, target, "'key' = 'id'", found, ("sink: written", "sink: noted"))


def s3(servers: Servers, directory: Path) -> Outside:
    server = S3(directory / "s3", durable=True)
    server.client().create_bucket(Bucket="away")
    options = "".join(f"'{k}' = '{v}', " for k, v in server.options.items())

    def found(name: str) -> Rows:
        client = server.client()
        pages = client.get_paginator("list_objects_v2").paginate(Bucket="away", Prefix=f"{name}/")
        keys = [o["Key"] for page in pages for o in page.get("Contents", ())]
        bodies = [client.get_object(Bucket="away", Key=k)["Body"] for k in keys if ".millpond" not in k]
        rows = [json.loads(line) for body in bodies for line in body.read().splitlines()]
        return [(row["id"], row["k"]) for row in rows]

    points = ("files: named", "sink: produced", "sink: begun", "sink: written", "sink: noted")
    return Outside(server, server.url, "s3://away/{}", f"{options}'format' = 'jsonl'", found, points)


@contextmanager
def sending(app: App) -> Iterator[list[int]]:
    """Sends rows all the time; the list has their numbers."""
    ended, sent = threading.Event(), list[int]()

    def run() -> None:
        while not ended.wait(0.03):
            numbers = range(len(sent), len(sent) + 10)
            app.send("s", [{"id": n, "k": f"k{n % 7}"} for n in numbers])
            sent.extend(numbers)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield sent
    finally:
        ended.set()
        thread.join(60)


def until(done: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + 60
    while not done():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def query(app: App, name: str) -> dict[str, Any]:
    (found,) = [q for q in app.sql("SHOW QUERIES").rows() if q["name"] == name]
    return found


def away_at(app: App, outside: Outside, point: str, sent: Sequence[int]) -> None:
    """Stops the server at a point, looks at the app, and starts it again."""
    gone, before = threading.Event(), query(app, "out")["rows"]
    until(lambda: query(app, "out")["rows"] > before, "rows arrive")

    def stop() -> None:
        outside.server.stop()
        gone.set()

    with at(point, stop):
        assert gone.wait(60), point
    until(lambda: query(app, "out")["state"] == "retrying", f"it meets the stop at {point}")
    problems = " ".join(app.ready().problems)
    assert app.ready().state == "degraded" and outside.address in problems and '"out"' in problems
    count = len(sent)
    until(lambda: len(app.table("here")) >= count + 30, "the others go on")
    assert query(app, "beside")["state"] == "running"
    outside.server.start()
    until(lambda: app.ready().state == "ready", "all go on")


def check(outside: Outside, directory: Path, points: Sequence[str]) -> None:
    try:
        rows, changes = (outside.target.format(name) for name in ("rows_out", "changes_out"))
        text = TEXT.format(rows=rows, changes=changes, options=outside.options)
        with App(text, state=directory / "state") as app:
            with sending(app) as sent:
                for point in points:
                    away_at(app, outside, point, sent)
            app.drain(300)
            until(lambda: query(app, "changes")["lag"] == 0, "the changes are written")
            expected = Counter((n, f"k{n % 7}") for n in sent)
            assert Counter(outside.found("rows_out")) == expected
            assert Counter(outside.found("changes_out")) == expected
    finally:
        outside.server.stop()
        if not isinstance(outside.server, S3):  # other tests use it too
            outside.server.start()


def test_a_batch_that_is_there_needs_no_other_try(tmp_path: Path) -> None:
    """The connection is lost when the sink has it: the next try finds it, and the query goes on behind it at once."""
    target = f"file://{tmp_path}/out"
    text = f"""CREATE STREAM s (id BIGINT);
        INSERT INTO {target} SELECT id FROM s WITH ('format' = 'jsonl', 'query.name' = 'out');"""
    with App(text, state=tmp_path / "state") as app:
        with failing("files: named", ConnectionLost("gone")):
            app.send("s", [{"id": n} for n in range(5)])
            app.drain(60)
        app.send("s", [{"id": 5}])
        app.drain(60)
        assert query(app, "out")["retries"] == 1 and query(app, "out")["error"] is None
    files = [p for p in (tmp_path / "out").iterdir() if p.suffix == ".jsonl"]
    assert sorted(json.loads(x)["id"] for f in files for x in f.read_text().splitlines()) == list(range(6))


KINDS = [postgresql, mysql, s3, clickhouse]


@pytest.mark.slow
@pytest.mark.parametrize("made", KINDS)
def test_a_server_that_stops_in_the_middle(
    made: Callable[[Servers, Path], Outside], servers: Servers, tmp_path: Path
) -> None:
    outside = made(servers, tmp_path)
    check(outside, tmp_path, outside.points[:1])


@pytest.mark.chaos
@pytest.mark.parametrize("made", KINDS)
def test_a_server_that_stops_again_and_again(
    made: Callable[[Servers, Path], Outside], servers: Servers, tmp_path: Path
) -> None:
    outside = made(servers, tmp_path)
    check(outside, tmp_path, outside.points * 2)
