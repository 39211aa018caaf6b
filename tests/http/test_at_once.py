"""Statements that the event loop answers itself: as they are answered in a thread, and without waiting."""

from __future__ import annotations

import threading
import time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond import App
from tests.http.conftest import Serve, Serving

TYPES = """
CREATE TABLE typed (id INT PRIMARY KEY, s STRING, b BOOLEAN, n BIGINT, d DECIMAL(20,6), x DOUBLE, f FLOAT, day DATE,
  at TIMESTAMP, wall TIMESTAMP_NTZ, raw BINARY, list ARRAY<INT>, map MAP<STRING, INT>, pair STRUCT<a: INT, b: STRING>);
INSERT INTO typed VALUES
  (1, 'a"\\\\ü\n', true, 9007199254740993, 1.50, 0.1, 0.1, DATE'2024-02-29', TIMESTAMP'2024-02-29 12:00:00',
   TIMESTAMP_NTZ'2024-02-29 12:00:00.000001', X'00ff', ARRAY(1, NULL), MAP('k', 1), NAMED_STRUCT('a', 1, 'b', 'x')),
  (2, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
  (3, '', false, -1, 0, double('NaN'), float('Infinity'), DATE'0001-01-01', TIMESTAMP'9999-12-31 23:59:59.999999',
   TIMESTAMP_NTZ'1969-12-31 23:59:59', X'', ARRAY(), MAP(), NAMED_STRUCT('a', NULL, 'b', NULL));
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "columns", ["s", "b, n", "d", "x, id AS x", "day, at, wall", "f", "raw", "list", "map", "pair", "*"]
)
def test_every_type_as_the_first_time(columns: str, serve: Serve) -> None:
    """The first answer comes out of a thread, a column at a time."""
    shop = serve(TYPES)
    for key in (1, 2, 3, 4):
        text = f"SELECT {columns} FROM typed WHERE id = {key}"
        shop.app._runtime.plans.clear()
        first, again = shop.sql(text), shop.sql(text)
        assert first.status_code == again.status_code == 200
        assert first.text == again.text
        assert shop.sql(text.replace(f"{key}", "?"), [key]).text == first.text
        assert shop.sql(text.replace(f"{key}", "?"), [key]).text == first.text


@given(
    text=st.text(),
    number=st.decimals(-(10**13), 10**13, places=6),
    real=st.floats(1e-3, 1e9) | st.just(0.0),
)
def test_any_value_as_the_first_time(text: str, number: Decimal, real: float, typed: Serving) -> None:
    text = text.encode("utf-8", "replace").decode()
    typed.app.table("typed").insert({"id": 9, "s": text, "d": number, "x": real})
    query = "SELECT s, d, x FROM typed WHERE id = 9"
    typed.app._runtime.plans.clear()
    assert typed.sql(query).text == typed.sql(query).text


@pytest.fixture(scope="module")
def typed() -> Any:
    made = Serving(App(TYPES))
    yield made
    made.close()


def test_nobody_waits_for_a_write(serve: Serve) -> None:
    """While somebody else writes, a statement waits for it in a thread, and the loop answers others."""
    shop = serve()
    change = "UPDATE items SET price = 7 WHERE sku = 'a'"
    assert shop.sql(change).json() == shop.sql(change).json() == {"count": 1}
    done: list[Any] = []
    with shop.app._runtime.store.writing:
        asking = threading.Thread(
            target=lambda: done.append(shop.sql("UPDATE items SET price = 8 WHERE sku = 'a'"))
        )
        asking.start()
        time.sleep(0.2)
        assert shop.client.get("/tables/items/rows/a").json()["price"] == 7
        assert shop.sql("SELECT price FROM items WHERE sku = 'a'").json()["rows"] == [{"price": 7}]
        assert not done
    asking.join()
    assert done[0].json() == {"count": 1}
    assert shop.sql("SELECT price FROM items WHERE sku = 'a'").json()["rows"] == [{"price": 8}]


def test_a_view_follows(serve: Serve) -> None:
    shop = serve()
    shop.app.sql("CREATE MATERIALIZED VIEW total AS SELECT SUM(price) AS p FROM items")
    for price in (10, 20, 30):
        assert shop.sql(f"UPDATE items SET price = {price} WHERE sku = 'a'").json() == {"count": 1}
        shop.app.drain()
        assert shop.sql("SELECT p - 9.2501 AS p FROM total").json()["rows"] == [{"p": price}]


def test_a_state_directory_has_them(serve: Serve, tmp_path: Path) -> None:
    shop = serve(state=tmp_path / "state")
    for n in range(5):
        assert shop.sql(f"INSERT INTO places VALUES ('Bonn', '{n}', {n})").json() == {"count": 1}
        assert shop.sql(f"DELETE FROM places WHERE city = 'Bonn' AND street = '{n - 1}'").status_code == 200
    shop.close()
    with App(state=tmp_path / "state") as app:
        assert app.sql("SELECT no FROM places WHERE city = 'Bonn'").rows() == [{"no": 4}]


def test_errors_have_their_place_each_time(serve: Serve) -> None:
    shop = serve(
        "CREATE TABLE t (id INT PRIMARY KEY, n INT NOT NULL, s TINYINT) WITH ('on.conflict' = 'error')"
    )
    assert shop.sql("INSERT INTO t VALUES (1, 1, 1)").json() == {"count": 1}
    for text in (
        "INSERT INTO t VALUES (1, 1, 1)",
        "INSERT INTO t VALUES (2, NULL, 1)",
        "UPDATE t SET s = s + 127 WHERE id = 1",
        "UPDATE t SET n = NULL WHERE id = 1",
    ):
        told = [shop.sql(text) for _ in range(3)]
        shop.app._runtime.plans.clear()
        told.append(shop.sql(text))
        assert {answer.status_code for answer in told} <= {409, 422, 400}, told[0].text
        assert len({answer.text for answer in told}) == 1, [answer.text for answer in told]
    assert shop.sql("SELECT * FROM t WHERE id = 1").json()["rows"] == [{"id": 1, "n": 1, "s": 1}]


def test_who_may_only_read_does_not_write(serve: Serve) -> None:
    tokens = {"READ": "r" * 20, "WRITE": "w" * 20}
    shop = serve(tokens=tokens)
    change = "UPDATE items SET price = 7 WHERE sku = 'a'"
    write, read = ({"Authorization": f"Bearer {tokens[role]}"} for role in ("WRITE", "READ"))
    assert [shop.sql(change, headers=write).status_code for _ in range(2)] == [200, 200]
    assert [shop.sql(change, headers=read).status_code for _ in range(2)] == [403, 403]
    assert shop.sql("SELECT price FROM items WHERE sku = 'a'", headers=read).status_code == 200
    assert shop.sql("SELECT price FROM items WHERE sku = 'a'").status_code == 401
