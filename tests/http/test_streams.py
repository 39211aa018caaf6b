"""Webhooks: rows by POST, exact, all or none, acknowledged when they are durable, once for each key."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from millpond import App
from millpond.connectors.stream.source import stream_uri
from millpond.testing.crash import crash
from tests.http.conftest import SQL, Serve, Serving


def sent(app: App, stream: str = "orders") -> list[dict[str, Any]]:
    """The rows of an embedded stream."""
    from millpond.records import to_rows

    relation = app._runtime.catalog.find(stream)
    assert relation is not None
    source = app._runtime.connectors.open(stream_uri(app._runtime.state.path, stream), {}, relation.schema)
    batches = [b for split in source.splits(None, source.latest(None)) for b in source.read(split)]
    return [row for batch in batches for row in to_rows(batch)]


@pytest.mark.parametrize(
    ("body", "ids"),
    [
        ('{"id": 1}', [1]),
        ('[{"id": 1}, {"id": 2}]', [1, 2]),
        ("[]", []),
        ('{"id": 1}\n{"id": 2}\n\n{"id": 3}\n', [1, 2, 3]),
        ('\ufeff{"ID": 1}', [1]),
        ('{\n "id": 1,\n "sku": null\n}', [1]),
    ],
)
def test_forms_of_a_body(serve: Serve, body: str, ids: list[int]) -> None:
    shop = serve()
    answer = shop.client.post("/streams/orders", content=body.encode())
    assert (answer.status_code, answer.json()) == (200, {"rows": len(ids)})
    assert [r["id"] for r in sent(shop.app)] == ids


def test_numbers_are_exact(serve: Serve) -> None:
    shop = serve()
    body = '[{"id": 1, "price": 0.1, "tags": ["x"]}, {"id": 2, "price": 12345678.9001}, {"id": 3, "price": "7.5"}]'
    assert shop.client.post("/streams/orders", content=body).json() == {"rows": 3}
    prices = [r["price"] for r in sent(shop.app)]
    assert prices == [Decimal("0.1000"), Decimal("12345678.9001"), Decimal("7.5000")]


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        (b"", 400, "the body is empty"),
        (b"{", 400, "not JSON"),
        (b'{"id": 1}\n{"id": ', 400, "line 2"),
        (b"[1]", 400, "row 0 is not a JSON object"),
        (b'{"id": 1}\n7\n', 400, "line 2 is not a JSON object"),
        (b"\xff\xfe", 400, "not UTF-8"),
        (b"[" * 200_000, 400, "nested too deeply"),
        (b'[{"id": 1}, {"id": 2, "skuu": 1}]', 422, 'row 1 for stream "orders": field "skuu"'),
        (b'[{"id": 1}, {"id": "x"}]', 422, 'row 1 for stream "orders": field "id"'),
        (b'{"id": 1, "price": 0.00001}', 422, "price"),
        (b'{"id": 3000000000}', 422, "id"),
        (b'{"id": null}', 422, "NOT NULL"),
        (b'{"id": 1, "at": "yesterday"}', 422, "at"),
    ],
)
def test_wrong_bodies_keep_nothing(shop: Serving, body: bytes, status: int, says: str) -> None:
    before = shop.app._runtime.journal.stream_end("orders")
    answer = shop.client.post("/streams/orders", content=body)
    assert answer.status_code == status, answer.text
    assert says in answer.json()["error"]["message"]
    assert shop.app._runtime.journal.stream_end("orders") == before


def test_fields_that_the_stream_lacks_can_be_left_out(serve: Serve) -> None:
    shop = serve()
    answer = shop.client.post("/streams/orders?unknown=ignore", json={"id": 1, "more": {"deep": [1]}})
    assert answer.json() == {"rows": 1}
    assert shop.client.post("/streams/orders?unknown=drop", json={"id": 1}).status_code == 400


def test_streams_that_take_no_rows(shop: Serving) -> None:
    assert shop.client.post("/streams/nope", json={}).status_code == 404
    assert shop.client.post("/streams/items", json={}).status_code == 404
    assert shop.client.get("/streams").json()["streams"][0]["name"] == "orders"


def test_a_key_counts_once_also_after_a_restart(serve: Serve, tmp_state: Path) -> None:
    body, key = '[{"id": 1}, {"id": 2}]', {"Idempotency-Key": "order-17"}
    shop = serve(state=tmp_state)
    first = shop.client.post("/streams/orders", content=body, headers=key)
    again = shop.client.post("/streams/orders", content=body, headers=key)
    assert first.json() == again.json() == {"rows": 2}
    assert "idempotency-replayed" not in first.headers and again.headers["idempotency-replayed"] == "true"
    shop.server.close()
    crash(shop.app)
    shop = Serving(App(SQL, state=tmp_state))
    third = shop.client.post("/streams/orders", content=body, headers=key)
    assert third.json() == {"rows": 2} and len(sent(shop.app)) == 2
    other = shop.client.post("/streams/orders", content='{"id": 3}', headers=key)
    assert other.status_code == 422 and other.json()["error"]["code"] == "key_reused"
    fresh = shop.client.post("/streams/orders", content='{"id": 3}', headers={"Idempotency-Key": "order-18"})
    assert fresh.json() == {"rows": 1} and [r["id"] for r in sent(shop.app)] == [1, 2, 3]
    for wrong in ("", "x" * 256):
        assert (
            shop.client.post("/streams/orders", json={}, headers={"Idempotency-Key": wrong}).status_code
            == 400
        )
    shop.close()


def test_a_failed_request_does_not_take_its_key(shop: Serving) -> None:
    key = {"Idempotency-Key": "tried"}
    assert shop.client.post("/streams/orders", content='{"id": "x"}', headers=key).status_code == 422
    assert shop.client.post("/streams/orders", content='{"id": 1}', headers=key).status_code == 200


def test_a_key_is_forgotten_after_its_time(serve: Serve) -> None:
    shop = serve(limits={"idempotency_seconds": -1})
    for _ in range(2):
        shop.client.post(
            "/streams/orders", json={"id": 1}, headers={"Idempotency-Key": "k"}
        ).raise_for_status()
    assert len(sent(shop.app)) == 2


def test_many_clients_with_one_key_send_once(serve: Serve) -> None:
    shop = serve()
    body = json.dumps([{"id": i} for i in range(100)])

    def post(number: int) -> int:
        key = {"Idempotency-Key": f"k{number % 4}"}
        return shop.client.post("/streams/orders", content=body, headers=key).status_code

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(post, range(40))) == {200}
    assert len(sent(shop.app)) == 400


def test_many_posts_at_once_are_each_sent_whole_or_refused(serve: Serve) -> None:
    shop = serve()

    def post(i: int) -> tuple[int, int, str]:
        good = [{"id": 10 * i, "price": 1}, {"id": 10 * i + 1}]
        body = [good, [*good, {"id": "x"}], [*good, {"idd": 1}], {"id": 10 * i}][i % 4]
        answer = shop.client.post("/streams/orders", json=body)
        said = answer.json()
        return i, answer.status_code, str(said.get("rows", said.get("error", {}).get("message")))

    with ThreadPoolExecutor(16) as pool:
        outcomes = list(pool.map(post, range(80)))
    for i, status, said in outcomes:
        match i % 4:
            case 0 | 3:
                assert (status, said) == (200, str(2 if i % 4 == 0 else 1))
            case 1:
                assert status == 422 and said.startswith('row 2 for stream "orders": field "id": x is not')
            case _:
                assert status == 422 and 'row 2 for stream "orders": field "idd"' in said
    expected = [n for i in range(80) for n in ([10 * i, 10 * i + 1], [], [], [10 * i])[i % 4]]
    assert sorted(r["id"] for r in sent(shop.app)) == expected


def test_a_post_is_the_same_on_the_short_and_on_the_general_way(serve: Serve) -> None:
    shop = serve()
    for body in (
        b'{"id": 1}',
        b"[]",
        b"",
        b"{",
        b'{"id": "x"}',
        b'{"other": 1}',
        b"[1]",
        b"\xff",
        b"[" * 5000,
    ):
        short = shop.client.post("/streams/orders", content=body)
        general = shop.client.post("/streams/orders?unknown=error", content=body)
        assert (short.status_code, short.json()) == (general.status_code, general.json())
        assert dict(short.headers).keys() == dict(general.headers).keys()
