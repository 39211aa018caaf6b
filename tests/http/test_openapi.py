"""The description is of the server that is there, and no request that it permits brings the server down."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

from millpond import App
from millpond.http.routes import ROUTES
from tests.http.conftest import Serving

SQL = """
CREATE STREAM orders (id INT, sku STRING, price DECIMAL(12,4), at TIMESTAMP);
CREATE TABLE items (sku STRING PRIMARY KEY, name STRING, price DECIMAL(12,4));
CREATE TABLE log (line STRING);
INSERT INTO items VALUES ('a', 'Apple', 1.10), ('b', 'Bee', 2.25);
"""


@pytest.fixture(scope="module")
def described() -> Iterator[Serving]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MILLPOND_TOKEN_WRITE", "w" * 20)
        made = Serving(App(SQL))
    made.client.headers["Authorization"] = f"Bearer {'w' * 20}"
    yield made
    made.close()


def test_every_route_is_described(described: Serving) -> None:
    found = described.client.get("/openapi.json").json()
    assert {(m.upper(), p) for p, ops in found["paths"].items() for m in ops} == {
        (r.method, r.path) for r in ROUTES
    }
    names = [op["operationId"] for ops in found["paths"].values() for op in ops.values()]
    assert len(set(names)) == len(names)
    assert not any(p == "/" or p.startswith("/assets") for p in found["paths"])  # left for the dashboard


ENDLESS = "/tables/{table}/changes"


@pytest.mark.slow
def test_no_request_is_answered_by_a_500(described: Serving) -> None:
    ask_everything(described, 8, derandomize=True)


@pytest.mark.chaos
def test_no_request_of_very_many_is_answered_by_a_500(described: Serving) -> None:
    ask_everything(described, 500, derandomize=False)


def ask_everything(described: Serving, examples: int, *, derandomize: bool) -> None:
    """Requests made of the description, with values that mean something among those that do not."""
    schema = schemathesis.openapi.from_url(f"{described.server.url}/openapi.json")
    words = {
        "table": ["items", "log", "ITEMS", "orders"],
        "stream": ["orders", "items"],
        "query": ["table:t"],
        "key": ["a", "b", "a,b", "%00", "\\N"],
        "where": ["sku = 'a'", "price > 1 AND", "1/0 = 1", "sku IN (SELECT line FROM log)", "x LIKE '%'"],
        "after": ["a", "0", "\\N"],
        "sql": [
            "SELECT * FROM items",
            "SELECT 1/0",
            "INSERT INTO log VALUES ('x')",
            "DROP TABLE items",
            "SELECT ?",
        ],
    }
    statuses: dict[int, int] = {}
    for result in schema.get_all_operations():
        operation = result.ok()
        if operation.path == ENDLESS:
            continue

        @settings(
            max_examples=examples,
            deadline=None,
            database=None,
            derandomize=derandomize,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @_given(operation, words)
        def ask(case: schemathesis.Case) -> None:
            answer = case.call(headers={"Authorization": f"Bearer {'w' * 20}"}, timeout=30)
            statuses[answer.status_code] = statuses.get(answer.status_code, 0) + 1
            assert answer.status_code < 500 or answer.status_code in (503, 504), (case, answer.text)
            if answer.status_code >= 400 and answer.headers["content-type"] == "application/json":
                assert answer.json()["error"]["message"]

        ask()
    assert statuses.get(200) and statuses.get(400)
    assert described.client.get("/health").status_code == 200


def _given(operation, words):  # type: ignore[no-untyped-def]
    """Cases of an operation, in half of which known words take the place of what was made up."""
    from hypothesis import given

    def put(case, choices):  # type: ignore[no-untyped-def]
        for name, word in choices.items():
            for part in (case.path_parameters, case.query, case.body):
                if word is not None and isinstance(part, dict) and name in part:
                    part[name] = word
        return case

    choices = st.fixed_dictionaries({n: st.one_of(st.none(), st.sampled_from(w)) for n, w in words.items()})
    return given(case=st.builds(put, operation.as_strategy(), choices))
