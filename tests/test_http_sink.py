"""Web servers as a sink, against a real one: what is sent, what is refused, and what comes again."""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from millpond import App, Error
from millpond.changes import Position
from millpond.connectors.http.sink import HttpSink
from millpond.errors import BadData, ConfigurationIssue
from millpond.testing.faults import killing
from millpond.types import Schema
from tests.test_kill import run_to_the_end, running
from tests.webserver import Asked, Reply, WebServer

STREAM = "CREATE STREAM s (id BIGINT, k STRING) WITH ('batch.max.rows' = '20');"


class Receiver(WebServer):
    """Keeps the rows of requests, each key once, and refuses rows whose ``k`` is "no"."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[dict[str, Any]] = []
        self.keys: set[str] = set()
        self.refuses = True
        self.answers: list[Reply] = []
        """What it answers first."""
        self.routes["/in"] = self._take

    def _take(self, asked: Asked) -> Reply:
        if self.answers:
            return self.answers.pop(0)
        found = json.loads(asked.body)
        rows = found if isinstance(found, list) else [found]
        if self.refuses and any(row["k"] == "no" for row in rows):
            return 422, {"Content-Type": "text/plain"}, b"no is no k"
        key = asked.headers.get("idempotency-key")
        if key is None or key not in self.keys:
            self.rows += rows
            self.keys |= {key} if key else set()
        return 200, {}, b"{}"


@pytest.fixture
def web() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.close()


def insert(web: Receiver, more: str = "") -> str:
    return f"INSERT INTO {web.url}/in SELECT id, k FROM s WITH ('query.name' = 'out'{more});"


def send(app: App, ids: range) -> None:
    app.send("s", [{"id": i, "k": "no" if i % 10 == 7 else "a"} for i in ids])


def replayed(app: App) -> int | None:
    return app.sql("REPLAY `out$errors`").count


def test_refused_rows_go_to_the_error_table_and_can_be_replayed(web: Receiver, tmp_path: Path) -> None:
    with App(STREAM + insert(web), state=tmp_path / "state") as app:
        send(app, range(40))
        app.drain(60)
        errors = app.sql("SELECT seq, reason FROM `out$errors` ORDER BY seq").rows()
        assert [e["seq"] for e in errors] == [7, 17, 27, 37]
        assert "422" in errors[0]["reason"] and "no is no k" in errors[0]["reason"]
        good = [i for i in range(40) if i % 10 != 7]
        assert sorted(row["id"] for row in web.rows) == good  # each was accepted once
        assert replayed(app) == 0
        web.refuses = False
        assert replayed(app) == 4
        assert sorted(row["id"] for row in web.rows) == list(range(40))
        assert app.sql("SELECT * FROM `out$errors`").rows() == []


def test_requests(web: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are cut into requests, with the headers that are asked for."""
    monkeypatch.setenv("API_TOKEN", "a-very-secret-token")
    more = ", 'method' = 'PUT', 'request.max.rows' = '3', 'bearer.token' = '${API_TOKEN}', 'header.X-App' = 'pond'"
    with App(STREAM + insert(web, more)) as app:
        app.send("s", [{"id": i, "k": "a"} for i in range(8)])
        app.drain(60)
        statement = app.sql("SHOW QUERIES").rows()[0]["statement"]
    assert [len(json.loads(asked.body)) for asked in web.asked] == [3, 3, 2]
    assert {asked.method for asked in web.asked} == {"PUT"}
    assert {asked.headers["authorization"] for asked in web.asked} == {"Bearer a-very-secret-token"}
    assert {asked.headers["x-app"] for asked in web.asked} == {"pond"}
    assert {asked.headers["content-type"] for asked in web.asked} == {"application/json"}
    assert len({asked.headers["idempotency-key"] for asked in web.asked}) == 3
    assert "a-very-secret-token" not in statement


def test_rows_are_cut_by_size(web: Receiver) -> None:
    with App(STREAM + insert(web, ", 'request.max.size' = '100'")) as app:
        app.send("s", [{"id": i, "k": "x" * (300 if i == 2 else 10)} for i in range(6)])
        app.drain(60)
    assert [row["id"] for row in web.rows] == list(range(6))
    assert max(len(json.loads(asked.body)) for asked in web.asked) == 3
    assert [[r["id"] for r in json.loads(asked.body)] for asked in web.asked] == [[0, 1], [2], [3, 4, 5]]


def test_a_server_that_is_busy(web: Receiver) -> None:
    """It is asked again when it says, and the request has the same key."""
    web.answers = [(503, {"Retry-After": "1"}, b"busy"), (429, {}, b"too much")]
    with App(STREAM + insert(web)) as app:
        began = time.monotonic()
        app.send("s", [{"id": 1, "k": "a"}])
        app.drain(60)
        assert time.monotonic() - began > 0.9
    assert web.rows == [{"id": 1, "k": "a"}]
    assert len({asked.headers["idempotency-key"] for asked in web.asked}) == 1 and len(web.asked) == 3


def test_a_server_that_refuses_the_login_stops_the_query(web: Receiver) -> None:
    web.answers = [(403, {}, b"who are you?")]
    with App(STREAM + insert(web)) as app:
        app.send("s", [{"id": 1, "k": "a"}])
        with pytest.raises(Error, match="403"):
            app.drain(60)
        app.sql("START QUERY out")
        app.drain(60)
        assert web.rows == [{"id": 1, "k": "a"}]


def alone(web: Receiver, **values: Any) -> HttpSink:
    made = HttpSink(f"{web.url}/in", values, Schema.of(equal(1).schema))
    made.open("id-q")
    return made


def equal(count: int, k: str = "a") -> pa.Table:
    return pa.table({"k": [k] * count})


BATCH = Position("q", "", 1, {"s": {"seq": 3}})


@pytest.mark.parametrize("values", [{"format": "object"}, {"request.max.rows": 1}])
def test_equal_rows_of_a_batch_have_keys_of_their_own(values: dict[str, Any], web: Receiver) -> None:
    """A server that drops what it has takes each of them, and a batch that comes again not at all."""
    for _ in range(2):
        sink = alone(web, **values)
        sink.write(equal(4), BATCH)
        assert web.rows == [{"k": "a"}] * 4
        sink.close()


def test_rows_without_a_position_come_once_more(web: Receiver) -> None:
    """Rows that waited for a match, or are replayed, are new ones."""
    sink = alone(web)
    for _ in range(2):
        sink.write(equal(1), None)
    assert web.rows == [{"k": "a"}] * 2
    web.answers = [(503, {"Retry-After": "0"}, b"busy")]
    sink.write(equal(1), None)
    assert len({asked.headers["idempotency-key"] for asked in web.asked}) == 3
    mixed = pa.table({"k": ["no", "a"]})
    for number in range(2):  # no one looks for the refused row: these are other rows each time
        with pytest.raises(BadData):
            sink.write(mixed, None)
        assert len(web.rows) == 4 + number
    sink.close()


def test_many_refused_rows_do_not_double_the_others(web: Receiver, tmp_path: Path) -> None:
    stream = STREAM.replace("20", "3000")
    with App(stream + insert(web), state=tmp_path / "state", engine="process", _direct=True) as app:
        app.send("s", [{"id": i, "k": "no" if i % 2 else "a"} for i in range(2100)])
        app.drain(60)
        assert app.sql("SELECT COUNT(*) AS n FROM `out$errors`").rows() == [{"n": 1050}]
    assert sorted(row["id"] for row in web.rows) == list(range(0, 2100, 2))


def test_a_server_that_refuses_everything_stops_the_query(web: Receiver) -> None:
    sink = alone(web)
    with pytest.raises(ConfigurationIssue, match=r"all of 64 requests were refused.*no is no k"):
        sink.write(equal(500, "no"), BATCH)
    assert len(web.asked) == 64
    web.refuses = False
    sink.write(equal(500, "no"), BATCH)
    assert len(web.rows) == 500
    sink.close()


def test_a_conflict_is_about_the_key_if_there_is_one(web: Receiver) -> None:
    web.answers = [(409, {}, b"in progress")]
    sink = alone(web)
    sink.write(equal(1), BATCH)
    assert web.rows == [{"k": "a"}] and len({asked.headers["idempotency-key"] for asked in web.asked}) == 1
    web.answers = [(409, {}, b"there is one")]
    with pytest.raises(BadData, match="there is one"):
        alone(web, **{"idempotency.header": ""}).write(equal(1), BATCH)


def test_an_answer_that_does_not_end(web: Receiver) -> None:
    """The rows are accepted; the limit of time holds for the rest of the answer too."""
    written = []

    def drip(asked: Asked) -> None:
        asked.handler.send_response(200)
        asked.handler.send_header("Transfer-Encoding", "chunked")
        asked.handler.end_headers()
        try:
            for number in range(600):
                asked.handler.wfile.write(b"1\r\nx\r\n")
                asked.handler.wfile.flush()
                written.append(number)
                time.sleep(0.05)
        except OSError:
            pass

    web.routes["/in"] = drip
    sink = alone(web, **{"request.timeout": 0.5})
    sink.write(equal(1), BATCH)
    assert len(written) < 300
    sink.close()


def test_rows_of_a_table_and_groups(web: Receiver) -> None:
    text = f"""{STREAM}
        CREATE TABLE t (id BIGINT PRIMARY KEY, k STRING); INSERT INTO t VALUES (1, 'a'), (2, NULL);
        INSERT INTO {web.url}/in SELECT * FROM t ORDER BY id WITH ('format' = 'object');
        INSERT INTO {web.url}/in SELECT k, COUNT(*) AS n FROM s GROUP BY k;
    """
    with App(text) as app:
        assert web.rows == [{"id": 1, "k": "a"}, {"id": 2, "k": None}]
        app.send("s", [{"id": 1, "k": "a"}])
        app.drain(60)
        assert web.rows[2:] == [{"k": "a", "n": 1, "_deleted": False}]
        plan = app.sql(f"EXPLAIN INSERT INTO {web.url}/in SELECT id FROM s").rows()[-1]["plan"]
        assert "at least once, with keys" in plan
        with pytest.raises(Error, match="422"):
            app.sql(f"INSERT INTO {web.url}/in SELECT id, 'no' AS k FROM t")


def test_into_another_app(tmp_path: Path) -> None:
    """Its webhooks know the keys."""
    with App(STREAM + "CREATE TABLE t AS SELECT * FROM s;") as there, there.serve(port=0) as server:
        with App(
            STREAM + f"INSERT INTO {server.url}/streams/s SELECT * FROM s", state=tmp_path / "state"
        ) as app:
            app.send("s", [{"id": i, "k": "a"} for i in range(50)])
            app.drain(60)
        there.drain(60)
        assert there.sql("SELECT COUNT(*) AS n FROM t").rows() == [{"n": 50}]


@pytest.mark.parametrize("point", ["sink: written", "sink: noted"])
def test_a_kill_loses_nothing(point: str, web: Receiver, tmp_path: Path) -> None:
    """Batches are the same again, so that the keys are too: this server has each row once."""
    web.refuses = False
    state = tmp_path / "state"
    with App(STREAM, state=state) as app:
        send(app, range(60))
    with running(sys.executable, "-m", __name__, insert(web), str(state), point) as process:
        _, err = process.communicate(timeout=120)
        assert process.returncode == -signal.SIGKILL, err
    run_to_the_end(sys.executable, "-m", __name__, insert(web), str(state), "")
    assert sorted(row["id"] for row in web.rows) == list(range(60))


def work(text: str, state: str, point: str) -> None:
    if point:
        with killing(point, visit=2):
            work(text, state, "")
    with App(STREAM + text, state=state, _direct=True) as app:
        app.drain(60)


if __name__ == "__main__":
    work(*sys.argv[1:])
