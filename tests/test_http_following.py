"""Tables that follow what a web server answers."""

from __future__ import annotations

import ssl
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond import App, Error
from tests.webserver import Asked, WebServer

pytestmark = pytest.mark.slow

ALL = "SELECT * FROM t ORDER BY id"


@pytest.fixture
def web() -> Iterator[WebServer]:
    server = WebServer()
    yield server
    server.close()


def wait_for(app: App, sql: str, expected: list[dict[str, Any]]) -> None:
    deadline = time.monotonic() + 30
    while (found := app.sql(sql).rows()) != expected:
        assert time.monotonic() < deadline, found
        time.sleep(0.02)


def items(**names: str) -> list[dict[str, Any]]:
    return [{"id": int(k[1:]), "name": v} for k, v in names.items()]


def test_a_table_takes_the_difference_of_answers(web: WebServer) -> None:
    web.json("/x", items(_1="a", _2="b", _3="c"), etag=True)
    with App() as app:
        app.sql(
            f"CREATE TABLE t (PRIMARY KEY (id)) AS SELECT * FROM {web.url}/x WITH ('poll.interval' = '50ms');"
            "CREATE TABLE n AS SELECT COUNT(*) AS n FROM t"
        )
        assert app.sql(ALL).rows() == items(_1="a", _2="b", _3="c")
        web.json("/x", items(_1="a", _2="x", _4="d"), etag=True)
        wait_for(app, ALL, items(_1="a", _2="x", _4="d"))
        sent, asked = web.sent, len(web.asked)
        while len(web.asked) < asked + 3:
            time.sleep(0.01)
        assert web.sent == sent
        explained = str(app.sql(f"EXPLAIN CREATE TABLE u AS SELECT * FROM {web.url}/x").rows())
        assert "follows its sources" in explained
        stats = app.table("t").get_stats()
        assert stats.source == "http" and app.table("t").health_check().status == "healthy"


def test_rows_without_a_key_are_counted(web: WebServer) -> None:
    web.json("/x", [{"id": 1}, {"id": 1}, {"id": 2}])
    with App() as app:
        app.sql(f"CREATE TABLE t AS SELECT * FROM {web.url}/x WITH ('poll.interval' = '1h')")
        web.json("/x", [{"id": 2}, {"id": 1}, {"id": 3}])
        app.drain()
        assert app.sql(ALL).rows() == [{"id": 1}, {"id": 2}, {"id": 3}]
        assert len(web.asked) == 2


def test_aggregates_and_joins_of_answers(web: WebServer) -> None:
    web.json("/x", [{"id": 1, "n": 2}, {"id": 1, "n": 3}])
    web.body("/names.csv", b"id,name\n1,a\n2,b\n", "text/csv")
    with App() as app:
        app.sql(
            f"CREATE TABLE t AS SELECT x.id, MAX(y.name) AS name, SUM(x.n) AS n FROM {web.url}/x x "
            f"JOIN {web.url}/names.csv y ON x.id = y.id GROUP BY x.id"
        )
        assert app.sql(ALL).rows() == [{"id": 1, "name": "a", "n": 5}]
        web.json("/x", [{"id": 1, "n": 2}, {"id": 2, "n": 4}])
        web.body("/names.csv", b"id,name\n1,a\n2,z\n", "text/csv")
        app.drain()
        assert app.sql(ALL).rows() == [{"id": 1, "name": "a", "n": 2}, {"id": 2, "name": "z", "n": 4}]


def test_refresh_once_does_not_follow(web: WebServer) -> None:
    web.json("/x", items(_1="a"))
    with App() as app:
        app.sql(f"CREATE TABLE t AS SELECT * FROM {web.url}/x WITH ('refresh' = 'once')")
        web.json("/x", items(_2="b"))
        app.drain()
        assert app.sql(ALL).rows() == items(_1="a") and len(web.asked) == 1


def test_failures_leave_the_table_as_it_was(web: WebServer) -> None:
    web.json("/x", items(_1="a"))
    with App() as app:
        app.sql(
            f"CREATE TABLE t (PRIMARY KEY (id)) AS SELECT * FROM {web.url}/x "
            "WITH ('poll.interval' = '50ms', 'retry.timeout' = '0s')"
        )
        for reply in (
            (500, {}, b"broken"),
            (404, {}, b""),
            (204, {}, b""),
            (200, {"Content-Type": "application/json"}, b""),
            (200, {"Content-Type": "text/html"}, b"<html>"),
        ):
            web.routes["/x"] = lambda _, reply=reply: reply
            with pytest.raises(Error):
                app.drain()
            assert app.sql(ALL).rows() == items(_1="a")
            assert app.table("t").health_check().status == "stale"
        web.json("/x", [*items(_1="b"), {"id": "x", "name": "c"}])
        wait_for(app, ALL, items(_1="b"))
        app.drain()
        assert app.table("t").health_check().status == "healthy"
        (record,) = app.sql("SELECT reason FROM `t$errors`").rows()
        assert f'the answer of "{web.url}/x", record 2: "x" in column "id"' in record["reason"]


def test_what_may_pass_is_tried_again_when_the_server_says(web: WebServer) -> None:
    web.json("/x", items(_1="a"))
    with App() as app:
        app.sql(
            f"CREATE TABLE t (PRIMARY KEY (id)) AS SELECT * FROM {web.url}/x "
            "WITH ('poll.interval' = '200ms', 'retry.timeout' = '0s')"
        )
        web.routes["/x"] = lambda _: (429, {"Retry-After": "1"}, b"")
        asked = len(web.asked)
        while len(web.asked) == asked:
            time.sleep(0.01)
        web.json("/x", items(_1="b"))
        wait_for(app, ALL, items(_1="b"))
        refused, again = web.asked[asked : asked + 2]
        assert again.at - refused.at >= 1


@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 5), st.sampled_from("ab")), max_size=6), min_size=1, max_size=6
    )
)
@settings(max_examples=4, deadline=None)
def test_random_answers_leave_what_a_fresh_load_gives(versions: list[list[tuple[int, str]]]) -> None:
    web = WebServer()
    try:
        web.json("/x", [{"id": 0, "name": "a"}], etag=True)
        columns = "id INT, name STRING"
        with App() as app:
            app.sql(
                f"CREATE TABLE t ({columns}, PRIMARY KEY (id)) AS SELECT * FROM {web.url}/x;"
                f"CREATE TABLE bag ({columns}) AS SELECT * FROM {web.url}/x;"
                f"CREATE TABLE n AS SELECT name, COUNT(*) AS n FROM {web.url}/x GROUP BY name"
            )
            for version in versions:
                web.json("/x", [{"id": i, "name": n} for i, n in version], etag=True)
                app.drain()
                last = dict(version)
                assert {r["id"]: r["name"] for r in app.sql(ALL).rows()} == last
                bag = app.sql("SELECT id, name FROM bag").rows()
                assert sorted((r["id"], r["name"]) for r in bag) == sorted(version)
                counted = {r["name"]: r["n"] for r in app.sql("SELECT * FROM n").rows()}
                assert counted == Counter(n for _, n in version)
    finally:
        web.close()


def test_fields_that_come_up_later_become_columns(web: WebServer, tmp_path: Path) -> None:
    web.json("/x", [{"id": 1}], etag=True)
    sql = (
        f"CREATE TABLE t (PRIMARY KEY (id)) AS SELECT * FROM {web.url}/x;"
        f"CREATE TABLE n AS SELECT id FROM {web.url}/x"
    )
    with App(sql, state=tmp_path / "s") as app:
        web.json("/x", [{"id": 1}, {"id": 2, "extra": "e", "none": None}], etag=True)
        app.drain()
        assert app.sql(ALL).rows() == [{"id": 1, "extra": None}, {"id": 2, "extra": "e"}]
        assert app.sql("SELECT * FROM n ORDER BY id").rows() == [{"id": 1}, {"id": 2}]
    sent = web.sent
    with App(sql, state=tmp_path / "s") as app:
        app.drain()
        assert app.sql(ALL).rows() == [{"id": 1, "extra": None}, {"id": 2, "extra": "e"}]
        assert web.sent == sent
        web.json("/x", [{"id": 2}], etag=True)
        app.drain()
        assert app.sql(ALL).rows() == [{"id": 2, "extra": None}]


def test_a_restart_asks_only_what_is_new(web: WebServer, tmp_path: Path) -> None:
    sql = f"CREATE TABLE t (PRIMARY KEY (id)) AS SELECT * FROM {web.url}/x WITH ('retry.timeout' = '0s')"
    web.json("/x", items(_1="a", _2="b"), etag=True)
    with App(sql, state=tmp_path / "s") as app:
        app.drain()
    sent = web.sent
    with App(sql, state=tmp_path / "s") as app:
        app.drain()
        assert app.sql(ALL).rows() == items(_1="a", _2="b")
    assert web.sent == sent
    web.json("/x", items(_2="b", _3="c"), etag=True)
    with App(sql, state=tmp_path / "s") as app:
        app.drain()
        assert app.sql(ALL).rows() == items(_2="b", _3="c")
    web.routes["/x"] = lambda _: (503, {}, b"")
    with App(sql, state=tmp_path / "s") as app:
        assert app.sql(ALL).rows() == items(_2="b", _3="c")


@pytest.mark.parametrize("tls", [False, True])
def test_a_server_that_says_nothing_holds_up_nobody(
    certificate: tuple[str, ssl.SSLContext], tls: bool
) -> None:
    path, context = certificate
    web = WebServer(context if tls else None)
    ended = threading.Event()
    web.json("/x", items(_1="a"))
    app = App()
    app.sql(
        f"CREATE TABLE t AS SELECT * FROM {web.url}/x WITH ('poll.interval' = '10ms', 'ssl.ca' = '{path}')"
    )
    asked = threading.Event()

    def silent(_: Asked) -> None:
        asked.set()
        ended.wait(60)

    web.routes["/x"] = silent
    assert asked.wait(30)
    assert app.sql(ALL).rows() == items(_1="a")
    app.close()
    assert not ended.is_set()
    ended.set()
    web.close()


def test_an_app_ends_while_it_waits_to_try_again(web: WebServer) -> None:
    web.json("/x", items(_1="a"))
    app = App()
    app.sql(
        f"CREATE TABLE t AS SELECT * FROM {web.url}/x WITH ('poll.interval' = '10ms', 'retry.timeout' = '1h')"
    )
    web.routes["/x"] = lambda _: (503, {"Retry-After": "1800"}, b"")
    asked = len(web.asked)
    while len(web.asked) == asked:
        time.sleep(0.01)
    app.close()


def test_a_stream_gets_every_answer_that_differs(web: WebServer, spark: object) -> None:
    """Records that cannot be read go to the error table. The server is asked once in an interval, and by drain."""
    web.json("/x", [{"id": 1, "n": 1}, {"id": 2, "n": 1}], etag=True)
    with App() as app:
        app.sql(
            "CREATE STREAM s (id INT, n INT) "
            f"WITH ('connector' = '{web.url}/x', 'poll.interval' = '1h');"
            "CREATE TABLE t AS SELECT id, SUM(n) AS n FROM s GROUP BY id"
        )
        app.drain()
        assert app.sql(ALL).rows() == [{"id": 1, "n": 1}, {"id": 2, "n": 1}]
        asked = len(web.asked)
        time.sleep(0.5)
        assert len(web.asked) == asked
        web.json("/x", [{"id": 1, "n": 5}, {"id": "bad", "n": 1}], etag=True)
        app.drain()
        assert app.sql(ALL).rows() == [{"id": 1, "n": 6}, {"id": 2, "n": 1}]
        (record,) = app.sql("SELECT reason, row FROM `t$errors`").rows()
        assert f'the answer of "{web.url}/x", record 2' in record["reason"] and "bad" in record["row"]
