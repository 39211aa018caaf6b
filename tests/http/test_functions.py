"""Which functions a client may call, by every route that takes an expression."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from millpond.sql.functions import function_classes
from tests.http.conftest import Serve, Serving

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

REFUSED = sorted(n for n, kind in function_classes().items() if kind in ("session", "outside"))


def tier(x: int) -> str:
    return "gold" if x > 1 else "plain"


def every_route(shop: Serving, expression: str) -> Iterator[httpx.Response]:
    """The answers to an expression by all routes that take one."""
    for text in (
        f"SELECT {expression} AS x FROM t",
        f"SELECT id FROM t WHERE {expression} IS NULL",
        f"INSERT INTO t SELECT 9, CAST({expression} AS STRING)",
        f"CREATE TABLE u AS SELECT id, {expression} AS x FROM t",
        f"CREATE VIEW u AS SELECT {expression} AS x FROM t",
        f"EXPLAIN SELECT {expression}",
        f"BEGIN; UPDATE t SET s = {expression}; COMMIT",
    ):
        yield shop.sql(text)
        if not text.startswith(("EXPLAIN", "BEGIN")):
            yield shop.client.post("/explain", json={"sql": text})
    yield shop.client.get("/tables/t/rows", params={"where": f"{expression} IS NULL"})
    yield shop.client.get("/tables/t/changes", params={"where": f"{expression} IS NULL"})


@pytest.fixture
def shop(serve: Serve) -> Serving:
    return serve(
        "CREATE TABLE t (id INT PRIMARY KEY, s STRING); INSERT INTO t VALUES (1, 'one'), (2, 'two');"
    )


@pytest.mark.parametrize("name", REFUSED)
def test_an_admin_too_is_refused_what_is_not_pure_or_volatile(shop: Serving, name: str) -> None:
    for answer in every_route(shop, f"{name}()"):
        error = answer.json()["error"]
        known = ("not_allowed", "not_supported", "check_failed")  # a where is checked as a whole first
        assert answer.status_code in (403, 422, 400) and error["code"] in known, answer.text
        assert "class is" in answer.text or "reaches files" in answer.text
    assert shop.app.tables() == ["t"] and len(shop.app.table("t")) == 2


def test_the_error_has_a_place(shop: Serving) -> None:
    answer = shop.sql("SELECT id,\n  upper(current_user())\nFROM t")
    assert answer.status_code == 403
    error = answer.json()["error"]
    assert (error["line"], error["column"]) == (2, 9) and "SHOW FUNCTIONS" in error["hint"]
    answer = shop.client.get("/tables/t/rows", params={"where": "id = 1 AND version() = 'x'"})
    assert answer.status_code == 403 and answer.json()["error"]["column"] == 12


def test_pure_and_volatile_ones_are_called(shop: Serving) -> None:
    assert shop.sql("SELECT upper(s) AS u, now() > TIMESTAMP '2024-01-01' AS n FROM t WHERE id = 1").json()[
        "rows"
    ] == [{"u": "ONE", "n": True}]
    listed = {r["name"]: r["class"] for r in shop.sql("SHOW FUNCTIONS").json()["rows"]}
    assert (listed["upper"], listed["uuid"], listed["user"]) == ("pure", "volatile", "session")
    assert listed["reflect"] == "outside"


def test_functions_of_the_app(serve: Serve) -> None:
    shop = serve("CREATE TABLE t (id INT PRIMARY KEY, s STRING); INSERT INTO t VALUES (1, 'one'), (2, 'two')")
    shop.app.function(tier)
    shop.app.function(tier, name="level", public=True)

    @shop.app.function(public=True)
    def twice(x: int) -> int:
        return 2 * x

    shop.app.sql("CREATE VIEW mine AS SELECT id, tier(id) AS tier FROM t")
    for text in (
        "SELECT tier(id) FROM t",
        "SELECT TIER(id) FROM t",
        "SELECT 1 FROM t WHERE `tier`(id) = 'x'",
    ):
        answer = shop.sql(text)
        assert answer.status_code == 403 and "public=True" in answer.json()["error"]["hint"]
    assert shop.client.post("/explain", json={"sql": "SELECT tier(id) FROM t"}).status_code == 403
    assert shop.sql("SELECT level(id) AS l, twice(id) AS x FROM t WHERE id = 2").json()["rows"] == [
        {"l": "gold", "x": 4}
    ]
    assert shop.sql("SELECT tier FROM mine ORDER BY id").json()["rows"] == [
        {"tier": "plain"},
        {"tier": "gold"},
    ]
    listed = {r["name"]: r["class"] for r in shop.sql("SHOW FUNCTIONS").json()["rows"]}
    assert (listed["tier"], listed["twice"]) == ("python", "python, public")


BY_KEY = (
    "SELECT s, {} AS x FROM t WHERE id = 1",
    "SELECT s || CAST({} AS STRING) AS x FROM t WHERE id IN (1, 2)",
    "SELECT s FROM t WHERE id = 1 AND s = {}",
    "INSERT INTO t VALUES (7, {})",
    "UPDATE t SET s = {} WHERE id = 1",
    "DELETE FROM t WHERE id = 1 AND s <> {}",
)


@pytest.mark.parametrize("call", ["current_user()", "version()", "current_catalog()", "own(s)", "own('x')"])
def test_statements_by_key_ask_as_all_others(serve: Serve, call: str) -> None:
    """Their plans are kept, and are run without a gate: the app's own use of a text must not open it to clients."""
    shop = serve("CREATE TABLE t (id INT PRIMARY KEY, s STRING); INSERT INTO t VALUES (1, 'one'), (2, 'two')")

    @shop.app.function
    def own(x: str) -> str:
        return f"secret {x}"

    for text in (t.format(call) for t in BY_KEY):
        for _ in range(3):
            if not (text.startswith("INSERT") and "own(s)" in text):
                shop.app.sql(text)
        kept = len(shop.app.table("t"))
        for _ in range(3):
            answer = shop.sql(text)
            assert answer.status_code == 403 and answer.json()["error"]["code"] == "not_allowed", text
        assert "secret" not in answer.text and len(shop.app.table("t")) == kept
        shop.app.sql("INSERT INTO t VALUES (1, 'one')")


def test_writes_by_key_ask_for_the_role(serve: Serve) -> None:
    tokens = {"READ": "r" * 20, "WRITE": "w" * 20}
    shop = serve(
        "CREATE TABLE t (id INT PRIMARY KEY, s STRING); INSERT INTO t VALUES (1, 'one')", tokens=tokens
    )
    for text in (
        "INSERT INTO t VALUES (1, 'x')",
        "UPDATE t SET s = 'x' WHERE id = 1",
        "DELETE FROM t WHERE id = 1",
    ):
        for again in (text, f"  {text}", f"/* */ {text}", text.lower(), f"{text};"):
            shop.app.sql(text)
            shop.app.sql("INSERT INTO t VALUES (1, 'one')")
            refused = shop.sql(again, headers={"Authorization": f"Bearer {tokens['READ']}"})
            assert refused.status_code == 403 and refused.json()["error"]["code"] == "forbidden"
            assert shop.app.table("t").get_record(1) == {"id": 1, "s": "one"}
        done = shop.sql(text, headers={"Authorization": f"Bearer {tokens['WRITE']}"})
        assert done.status_code == 200 and shop.app.table("t").get_record(1) != {"id": 1, "s": "one"}


class Listener:
    """Counts who connects."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self.seen: list[Any] = []
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        try:
            while True:
                connection, peer = self._socket.accept()
                self.seen.append(peer)
                connection.close()
        except OSError:
            pass

    def close(self) -> None:
        self._socket.close()


def test_xml_that_names_something_outside(serve: Serve, spark: SparkSession) -> None:
    """An XML text that a client sends, or that stands in a row, makes no connection and reads no file."""
    listener = Listener()
    uri = f"http://127.0.0.1:{listener.port}/x"
    texts = [
        f'<!DOCTYPE a SYSTEM "{uri}.dtd"><a>1</a>',
        f'<!DOCTYPE a PUBLIC "x" "{uri}.dtd"><a>1</a>',
        '<!DOCTYPE a SYSTEM "file:///etc/hostname"><a>1</a>',
        f'<!DOCTYPE a [<!ENTITY x SYSTEM "{uri}">]><a>&x;</a>',
        '<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><a>&x;</a>',
        f'<!DOCTYPE a [<!ENTITY % x SYSTEM "{uri}"> %x;]><a>1</a>',
    ]
    shop = serve("CREATE TABLE t (id INT PRIMARY KEY, s STRING);")
    shop.app.table("t").bulk_insert([{"id": i, "s": text} for i, text in enumerate(texts)])
    for i in range(len(texts)):
        for call in ("xpath_string(s, 'a')", "from_xml(s, 'a STRING')"):
            answer = shop.sql(f"SELECT {call} AS x FROM t WHERE id = {i}")
            assert answer.status_code in (200, 422) and "root:" not in answer.text
    assert shop.sql("SELECT xpath_string('<a>1</a>', 'a') AS x").json()["rows"] == [{"x": "1"}]
    assert listener.seen == []
    listener.close()
