"""Changes as they come: one event for each commit, filters, conflation, resuming, slow clients."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from tests.http.conftest import Serve, Serving

SQL = """
CREATE TABLE prices (sku STRING PRIMARY KEY, price INT);
CREATE TABLE grid (x INT, y INT, v STRING, PRIMARY KEY (x, y));
CREATE TABLE log (line STRING);
"""


@dataclass
class Event:
    kind: str
    id: str | None
    data: dict[str, Any]


class Following:
    """A client that follows changes; ``next`` is the next event."""

    def __init__(self, response: httpx.Response):
        self.response = response
        self._lines = response.iter_lines()

    def next(self) -> Event:
        found: dict[str, str] = {}
        for line in self._lines:
            if not line:
                if found:
                    return Event(found["event"], found.get("id"), json.loads(found["data"]))
            elif not line.startswith(":"):
                name, _, value = line.partition(": ")
                found[name] = value
        raise AssertionError("the events have ended")


@contextmanager
def follow(
    shop: Serving, table: str = "prices", last: str | None = None, **params: str
) -> Iterator[Following]:
    headers = {} if last is None else {"Last-Event-ID": last}
    with shop.client.stream("GET", f"/tables/{table}/changes", params=params, headers=headers) as response:
        assert response.status_code == 200, response.read()
        assert response.headers["content-type"].startswith("text/event-stream")
        yield Following(response)


def test_one_event_for_each_commit(serve: Serve) -> None:
    shop = serve(SQL)
    with follow(shop) as events:
        assert events.next().kind == "ready"
        shop.sql("INSERT INTO prices VALUES ('a', 1), ('b', 2), ('a', 3)")
        first = events.next()
        assert first.data == {
            "rows": [{"sku": "b", "price": 2}, {"sku": "a", "price": 3}],
            "deleted": [],
            "commits": 1,
        }
        shop.sql("UPDATE prices SET price = price + 1 WHERE sku = 'a'")
        assert events.next().data["rows"] == [{"sku": "a", "price": 4}]
        shop.app.table("prices").insert({"sku": "c", "price": 9})
        assert events.next().data["rows"] == [{"sku": "c", "price": 9}]
        shop.app.table("prices").delete(sku="c")
        assert events.next().data == {"rows": [], "deleted": [{"sku": "c"}], "commits": 1}
        shop.sql("BEGIN; DELETE FROM prices; INSERT INTO prices VALUES ('z', 0); COMMIT")
        last = events.next()
        assert last.data["rows"] == [{"sku": "z", "price": 0}]
        assert sorted(k["sku"] for k in last.data["deleted"]) == ["a", "b"]
        assert len({first.id, last.id}) == 2


def test_clients_read_again_after_alter_table(serve: Serve) -> None:
    shop = serve(SQL)
    with follow(shop) as events:
        assert events.next().kind == "ready"
        shop.sql("ALTER TABLE prices ADD COLUMN stock INT DEFAULT 5")
        told = events.next()
        assert told.kind == "reset" and "columns of the table have changed" in told.data["reason"]
        shop.sql("INSERT INTO prices (sku) VALUES ('a')")
        assert events.next().data["rows"] == [{"sku": "a", "price": None, "stock": 5}]
        shop.sql("ALTER TABLE prices RENAME TO costs")
        told = events.next()
        assert told.kind == "reset" and 'new name: "costs"' in told.data["reason"]


def test_the_rows_that_are_there_first(serve: Serve) -> None:
    shop = serve(SQL, limits={"first_rows": 2})
    shop.sql("INSERT INTO prices VALUES ('a', 1), ('b', 2)")
    with follow(shop, rows="true") as events:
        first = events.next()
        assert first.kind == "rows" and [r["sku"] for r in first.data["rows"]] == ["a", "b"]
        shop.sql("INSERT INTO prices VALUES ('c', 3)")
        assert events.next().data["rows"] == [{"sku": "c", "price": 3}]
    answer = shop.client.get("/tables/prices/changes?rows=true")
    assert answer.status_code == 413 and "in pages" in answer.json()["error"]["hint"]


def test_one_key(serve: Serve) -> None:
    shop = serve(SQL)
    with follow(shop, key="a", rows="true") as one, follow(shop, "grid", key="1,2") as cell:
        assert one.next().data["rows"] == [] and cell.next().kind == "ready"
        shop.sql("INSERT INTO prices VALUES ('b', 1); INSERT INTO prices VALUES ('a', 2), ('b', 3)")
        assert one.next().data["rows"] == [{"sku": "a", "price": 2}]
        shop.sql("DELETE FROM prices")
        assert one.next().data["deleted"] == [{"sku": "a"}]
        shop.sql("INSERT INTO grid VALUES (1, 1, 'no'), (1, 2, 'yes'), (2, 2, 'no')")
        assert cell.next().data["rows"] == [{"x": 1, "y": 2, "v": "yes"}]


def test_a_condition_tells_also_of_rows_that_leave_it(serve: Serve) -> None:
    shop = serve(SQL)
    shop.sql("INSERT INTO prices VALUES ('in', 50), ('out', 5)")
    with follow(shop, where="price > 10", rows="true") as events:
        assert events.next().data["rows"] == [{"sku": "in", "price": 50}]
        shop.sql("UPDATE prices SET price = 6 WHERE sku = 'out'")  # concerns nobody
        shop.sql("UPDATE prices SET price = 7 WHERE sku = 'in'")
        assert events.next().data == {"rows": [], "deleted": [{"sku": "in"}], "commits": 1}
        shop.sql("UPDATE prices SET price = price + 10")
        assert {r["sku"] for r in events.next().data["rows"]} == {"in", "out"}
        shop.sql("DELETE FROM prices WHERE sku = 'out'")
        assert events.next().data["deleted"] == [{"sku": "out"}]


def test_conflated_events_are_the_same_in_the_end(serve: Serve) -> None:
    shop = serve(SQL)
    with follow(shop, conflate="200ms") as events:
        assert events.next().kind == "ready"
        for price in range(20):
            shop.app.table("prices").insert({"sku": "a", "price": price})
        shop.app.table("prices").insert({"sku": "b", "price": 1})
        seen: dict[str, int] = {}
        commits = 0
        while commits < 21:
            data = events.next().data
            commits += data["commits"]
            seen |= {r["sku"]: r["price"] for r in data["rows"]}
        assert seen == {"a": 19, "b": 1} and commits == 21


def test_coming_back_with_the_last_event(serve: Serve) -> None:
    shop = serve(SQL, limits={"history_commits": 8})
    with follow(shop) as events:
        events.next()
        shop.sql("INSERT INTO prices VALUES ('a', 1)")
        last = events.next().id
    shop.sql("INSERT INTO prices VALUES ('a', 2), ('b', 1); DELETE FROM prices WHERE sku = 'a'")
    for params in ({}, {"where": "price > 0"}):
        with follow(shop, last=last, **params) as events:
            missed = events.next()
            assert (
                missed.data["rows"] == [{"sku": "b", "price": 1}] and {"sku": "a"} in missed.data["deleted"]
            )
            shop.sql("INSERT INTO prices VALUES ('c', 1)")
            assert events.next().data["rows"] == [{"sku": "c", "price": 1}]
            shop.sql("DELETE FROM prices WHERE sku = 'c'")
            assert events.next().data["deleted"] == [{"sku": "c"}]
    with follow(shop, last=last, key="nothing") as events:
        assert events.next().kind == "ready"
    with follow(shop) as events:
        assert events.next().kind == "ready"
        for number in range(9):
            shop.app.table("prices").insert({"sku": "a", "price": number})
        while {"sku": "a", "price": 8} not in events.next().data["rows"]:
            pass  # until then the server does not know that the first is too long ago
    for wrong in (last, "nonsense", "a-b", "0" * 12 + "-1"):
        with follow(shop, last=wrong, rows="true") as events:
            assert events.next().kind == "reset"
            assert {r["sku"]: r["price"] for r in events.next().data["rows"]} == {"a": 8, "b": 1}


def test_tables_without_a_key(serve: Serve) -> None:
    shop = serve(SQL)
    with follow(shop, "log") as events, follow(shop, "log", where="line LIKE 'w%'") as some:
        assert events.next().kind == some.next().kind == "ready"
        shop.sql("INSERT INTO log VALUES ('one'), ('two'), ('win')")
        assert [r["line"] for r in events.next().data["rows"]] == ["one", "two", "win"]
        assert [r["line"] for r in some.next().data["rows"]] == ["win"]
        shop.sql("DELETE FROM log WHERE line = 'one'")
        assert events.next().kind == some.next().kind == "reset"


def test_a_table_that_goes(serve: Serve) -> None:
    shop = serve(SQL)
    with follow(shop) as events:
        events.next()
        shop.sql("DROP TABLE prices")
        assert events.next().kind == "gone"


def test_a_server_that_stops(serve: Serve) -> None:
    shop = serve(SQL)
    with follow(shop) as events:
        events.next()
        threading.Thread(target=shop.server.close).start()
        assert events.next().kind == "closing"


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/tables/nope/changes", 404),
        ("/tables/prices/changes?where=prise>1", 400),
        ("/tables/prices/changes?key=a&where=true", 400),
        ("/tables/grid/changes?key=1", 400),
        ("/tables/log/changes?key=1", 409),
        ("/tables/prices/changes?conflate=soon", 400),
        ("/tables/prices/changes?conflate=2d", 400),
        ("/tables/prices/changes?rows=yes", 400),
        ("/tables/prices/changes?filter=x", 400),
        ("/tables/prices/changes?where=soundex(sku)='A'", 422),
    ],
)
def test_wrong_wishes(serve: Serve, path: str, status: int) -> None:
    shop = serve(SQL)
    assert shop.client.get(path).status_code == status


def test_too_many_clients(serve: Serve) -> None:
    shop = serve(SQL, limits={"followers": 1})
    with follow(shop) as events:
        events.next()
        assert shop.client.get("/tables/prices/changes").status_code == 429
    deadline = time.monotonic() + 10
    while len(shop.server._service.hub):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    with follow(shop) as events:
        assert events.next().kind == "ready"


def test_a_client_that_never_reads_is_dropped(serve: Serve) -> None:
    """The commits do not wait for it, others get their events, and it is told why if it reads after all."""
    shop = serve(SQL, limits={"follower_bytes": 200_000})
    stuck = socket.create_connection(("127.0.0.1", shop.server.port))
    stuck.sendall(b"GET /tables/prices/changes HTTP/1.1\r\nHost: localhost\r\n\r\n")
    hub = shop.server._service.hub
    with follow(shop, key="last") as events:
        assert events.next().kind == "ready"
        rows = [{"sku": f"sku-{i}", "price": i} for i in range(1_000)]
        deadline = time.monotonic() + 30
        while not hub.dropped:
            shop.app.table("prices").bulk_insert(rows)
            time.sleep(0.005)  # what others read is sent in between
            assert time.monotonic() < deadline
        shop.app.table("prices").insert({"sku": "last", "price": -1})
        assert events.next().data["rows"] == [{"sku": "last", "price": -1}]
    said = b""
    stuck.settimeout(20)
    while part := stuck.recv(1 << 20):
        said += part
    assert len(said) > 100_000 and b"event: dropped" in said and b'"too_slow"' in said
    stuck.close()


def test_a_condition_that_fails_is_the_business_of_whoever_asked(serve: Serve) -> None:
    shop = serve(SQL)
    with follow(shop, where="100 / price > 1") as theirs, follow(shop) as ours:
        assert theirs.next().kind == "ready" and ours.next().kind == "ready"
        shop.app.table("prices").insert({"sku": "a", "price": 10})
        assert theirs.next().data["rows"] == [{"sku": "a", "price": 10}]
        assert ours.next().data["rows"] == [{"sku": "a", "price": 10}]
        shop.app.table("prices").insert({"sku": "b", "price": 0})
        failed = theirs.next()
        assert failed.kind == "failed" and "division by zero" in failed.data["message"]
        assert ours.next().data["rows"] == [{"sku": "b", "price": 0}]
        shop.app.table("prices").insert({"sku": "c", "price": 1})
        assert ours.next().data["rows"] == [{"sku": "c", "price": 1}]
    answer = shop.client.get("/tables/prices/changes", params={"where": "100 / price > 1"})
    assert answer.status_code == 422 and "division by zero" in answer.json()["error"]["message"]
