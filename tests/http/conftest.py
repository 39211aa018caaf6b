from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import httpx
import pytest

from millpond import App

SQL = """
CREATE STREAM orders (id INT NOT NULL, sku STRING, price DECIMAL(12,4), at TIMESTAMP, tags ARRAY<STRING>);
CREATE TABLE items (sku STRING PRIMARY KEY, name STRING, price DECIMAL(12,4));
CREATE TABLE places (city STRING, street STRING, no INT, PRIMARY KEY (city, street));
CREATE TABLE log (line STRING);
INSERT INTO items VALUES ('a', 'Apple', 1.10), ('b', 'Büchse', 2.25), ('c,d', 'Comma', 3), ('e/f', 'Slash', 4.0001);
INSERT INTO places VALUES ('Oslo', 'A', 1), ('Oslo', 'B', 2), ('Rome', 'A', 3), ('Rome, IT', 'Via', 4);
INSERT INTO log VALUES ('one'), ('two'), ('three');
"""


class Serving:
    """An app, its server, and a client of it."""

    def __init__(self, app: App, **settings: Any):
        self.app = app
        self.server = app.serve(**settings)
        self.client = httpx.Client(base_url=self.server.url, timeout=30)

    def sql(self, text: str, params: Any = None, **more: Any) -> httpx.Response:
        return self.client.post("/sql", json={"sql": text, "params": params}, **more)

    def close(self) -> None:
        self.client.close()
        self.app.close()


Serve = Callable[..., Serving]


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    """Makes servers; ``tokens`` are put into the environment first. With ``direct`` running statements need no Spark:
    they move when the app is drained."""
    with ExitStack() as opened:

        def make(
            sql: str = SQL,
            *,
            state: Any = None,
            tokens: dict[str, str] | None = None,
            direct: bool = False,
            **settings: Any,
        ) -> Serving:
            for role, token in (tokens or {}).items():
                monkeypatch.setenv(f"MILLPOND_TOKEN_{role}", token)
            made = Serving(App(sql, state=state, _direct=direct), **settings)
            opened.callback(made.close)
            return made

        yield make


@pytest.fixture(scope="module")
def shop() -> Iterator[Serving]:
    """One server for tests that change nothing that others look at."""
    made = Serving(App(SQL))
    yield made
    made.close()
