"""Rows over HTTP: by key, in pages, exact, in every form."""

from __future__ import annotations

import json
from datetime import date, datetime, timedelta
from decimal import Decimal
from io import BytesIO

import pyarrow as pa
import pytest

from tests.http.conftest import Serve, Serving

ARROW = "application/vnd.apache.arrow.stream"


def exact(text: str) -> object:
    return json.loads(text, parse_float=Decimal)


def test_a_row_by_its_key(shop: Serving) -> None:
    answer = shop.client.get("/tables/items/rows/b")
    assert answer.status_code == 200 and answer.headers["content-type"] == "application/json"
    assert exact(answer.text) == {"sku": "b", "name": "Büchse", "price": Decimal("2.2500")}
    assert "2.2500" in answer.text  # all digits of the scale


@pytest.mark.parametrize("path", ["c%2Cd", "c,d", "e%2Ff", "e/f"])
def test_keys_with_marks_of_urls(shop: Serving, path: str) -> None:
    assert shop.client.get(f"/tables/items/rows/{path}").json()["sku"] == path.replace("%2C", ",").replace(
        "%2F", "/"
    )


@pytest.mark.parametrize(("path", "no"), [("Oslo,B", 2), ("Rome%2C%20IT,Via", 4)])
def test_keys_of_several_columns(shop: Serving, path: str, no: int) -> None:
    assert shop.client.get(f"/tables/places/rows/{path}").json()["no"] == no


@pytest.mark.parametrize(
    ("path", "status", "says"),
    [
        ("/tables/items/rows/zzz", 404, "no row with the key zzz"),
        ("/tables/itms/rows/a", 404, "itms"),
        ("/tables/orders/rows/a", 404, "is a stream"),
        ("/tables/places/rows/Oslo", 400, "2 parts (city STRING, street STRING)"),
        ("/tables/log/rows/1", 409, "no primary key"),
        ("/tables/items/rows/%ff", 400, "UTF-8"),
        ("/tables/items/rows?limit=0", 400, "limit is 1 to"),
        ("/tables/items/rows?limit=many", 400, "limit is 1 to"),
        ("/tables/items/rows?wher=1", 400, "known: where, limit, after"),
        ("/tables/items/rows?where=skuu%3D1", 400, "skuu"),
        ("/tables/items/rows?where=sku%3D%27a", 400, "never closed"),
        ("/tables/log/rows?after=x", 400, "next"),
        ("/tables/items/rows?where=price/0%3E1", 422, "zero"),
    ],
)
def test_wrong_requests(shop: Serving, path: str, status: int, says: str) -> None:
    answer = shop.client.get(path)
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert says in f"{error['message']} {error['hint']}"


def test_a_condition_with_a_mistake_has_a_place(shop: Serving) -> None:
    error = shop.client.get("/tables/items/rows", params={"where": "price > pric"}).json()["error"]
    assert (error["line"], error["column"]) == (1, 9) and 'did you mean "price"?' in error["hint"]


@pytest.mark.parametrize("table", ["items", "places", "log"])
def test_pages_are_all_rows_once_in_one_order(shop: Serving, table: str) -> None:
    seen, after = [], None
    while True:
        params = {"limit": 2} | ({} if after is None else {"after": after})
        page = shop.client.get(f"/tables/{table}/rows", params=params).json()
        seen += page["rows"]
        after = page["next"]
        if after is None:
            break
    key = {"items": ["sku"], "places": ["city", "street"], "log": []}[table]
    expected = shop.app.table(table).all_rows()
    assert [tuple(r[k] for k in key) for r in seen] == sorted(tuple(r[k] for k in key) for r in expected)
    assert len(seen) == len(expected)


def test_pages_stay_right_while_rows_come_and_go(serve: Serve) -> None:
    shop = serve()
    first = shop.client.get("/tables/items/rows?limit=2").json()
    shop.sql("DELETE FROM items WHERE sku = 'b'")
    shop.sql("INSERT INTO items VALUES ('bb', 'new', 1), ('aa', 'too late', 1)")
    second = shop.client.get("/tables/items/rows", params={"after": first["next"]}).json()
    assert [r["sku"] for r in second["rows"]] == ["bb", "c,d", "e/f"]


def test_where_limits_a_page(shop: Serving) -> None:
    page = shop.client.get("/tables/items/rows", params={"where": "price >= 2.25", "limit": 2})
    assert [r["sku"] for r in page.json()["rows"]] == ["b", "c,d"] and page.headers["x-next"] == "c%2Cd"
    follow = shop.client.get(f"/tables/items/rows?where=price%3E2&after={page.headers['x-next']}")
    assert [r["sku"] for r in follow.json()["rows"]] == ["e/f"]


def test_keys_that_are_null_have_their_place(serve: Serve) -> None:
    """Groups of a live aggregate may have NULL in their key; it comes last."""
    shop = serve(
        "CREATE STREAM s (k STRING); CREATE TABLE t AS SELECT k, COUNT(*) AS n FROM s GROUP BY k", direct=True
    )
    shop.app.send("s", [{"k": "a"}, {"k": None}, {"k": "b"}])
    shop.app.drain()
    page = shop.client.get("/tables/t/rows?limit=2").json()
    rest = shop.client.get("/tables/t/rows", params={"after": page["next"]}).json()
    assert [r["k"] for r in page["rows"] + rest["rows"]] == ["a", "b", None]
    last = shop.client.get("/tables/t/rows", params={"after": "\\N"}).json()
    assert last["rows"] == [] and shop.client.get("/tables/t/rows/%5CN").json() == {"k": None, "n": 1}


def test_arrow_and_json_lines(shop: Serving) -> None:
    for path in ("/tables/items/rows", "/tables/items/rows/a"):
        answer = shop.client.get(path, headers={"Accept": ARROW})
        assert answer.headers["content-type"] == ARROW
        table = pa.ipc.open_stream(BytesIO(answer.content)).read_all()
        assert table.schema.field("price").type == pa.decimal128(12, 4)
        assert table.column("sku")[0].as_py() == "a"
    lines = shop.client.get(
        "/tables/items/rows", headers={"Accept": "application/x-ndjson"}
    ).text.splitlines()
    assert [json.loads(line)["sku"] for line in lines] == ["a", "b", "c,d", "e/f"]
    assert shop.client.get("/tables/items/rows", headers={"Accept": "text/html"}).status_code == 406


def test_every_type_as_json(serve: Serve) -> None:
    shop = serve(
        "CREATE TABLE t (id INT PRIMARY KEY, b BOOLEAN, l BIGINT, d DOUBLE, m DECIMAL(38,10), s STRING, x BINARY,"
        " day DATE, at TIMESTAMP, local TIMESTAMP_NTZ, i INTERVAL DAY TO SECOND, a ARRAY<DECIMAL(5,2)>,"
        " r STRUCT<n: INT, t: TIMESTAMP>, k MAP<STRING, INT>)"
    )
    moment = datetime(2024, 1, 1)
    record = {
        "id": 1, "b": True, "l": 9007199254740993, "d": float("nan"),
        "m": Decimal("1234567890123456789012345678.0000000001"), "s": 'q"\n', "x": b"\0\xff", "day": date(2024, 2, 29),
        "at": moment.replace(microsecond=500_000), "local": moment, "i": timedelta(hours=1), "a": [Decimal("1.50")],
        "r": {"n": 1, "t": moment}, "k": {"x": 1},
    }  # fmt: skip
    shop.app.table("t").insert(record)
    one = shop.client.get("/tables/t/rows/1").text
    page = shop.client.get("/tables/t/rows").text
    asked = shop.sql("SELECT * EXCEPT (i) FROM t").text
    row = exact(one)
    assert row == {
        "id": 1, "b": True, "l": 9007199254740993, "d": "NaN", "m": Decimal("1234567890123456789012345678.0000000001"),
        "s": 'q"\n', "x": "AP8=", "day": "2024-02-29", "at": "2024-01-01T00:00:00.500000Z",
        "local": "2024-01-01T00:00:00.000000", "i": "PT3600S", "a": [Decimal("1.50")],
        "r": {"n": 1, "t": "2024-01-01T00:00:00.000000Z"}, "k": {"x": 1},
    }  # fmt: skip
    assert exact(page)["rows"] == [row]  # type: ignore[index]
    del row["i"]  # type: ignore[attr-defined]
    assert exact(asked)["rows"] == [row]  # type: ignore[index]
