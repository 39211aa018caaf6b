"""Rows of many requests in one commit: each request is sent whole or refused, as if it were alone."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from millpond import App
from millpond.errors import Closed, NothingLeft
from millpond.http.posts import Part, Posts
from millpond.http.settings import Limits
from tests.http.test_streams import sent

SQL = "CREATE STREAM s (a INT NOT NULL, b STRING); CREATE STREAM r (a INT)"
GOOD = [b'{"a": 1}', b'[{"a": 2}, {"a": 3, "b": "x"}]', b'{"a": 4}\n{"a": 5}', b"[]"]
BAD = [
    b'{"a": null}',
    b'{"b": "x"}',
    b'[{"a": 90}, {"a": null}]',
    b'{"a": "zz"}',
    b'{"a": 99999999999}',
    b'{"a": 90, "zz": 1}',
    b'{"a": 90, "b": "\\ud800"}',
    b"{",
    b"",
    b"[1]",
    b"\xff",
]


class Shared:
    """Posts whose first commit waits until the others are there."""

    def __init__(self, app: App):
        self._app, self._runtime = app, app._runtime
        self.open = threading.Event()
        self.began = threading.Event()
        self.commits: list[dict[str, int]] = []
        self.errors: list[BaseException] = []
        self.posts = Posts(self.send, Limits())

    def send(self, parts: Sequence[Part]) -> None:
        self.began.set()
        assert self.open.wait(20)
        if self.errors:
            raise self.errors.pop(0)
        self._runtime.sender.send_together(parts)
        counts: dict[str, int] = {}
        for name, rows in parts:
            counts[name] = counts.get(name, 0) + int(rows.num_rows)
        self.commits.append(counts)

    async def outcomes(self, *posts: tuple[str, bytes], stop: bool, gone: str) -> list[int | str]:
        """The outcome of each: how many rows it has sent, or the error. The stream ``gone`` is dropped meanwhile."""
        tasks: list[asyncio.Task[int]] = []
        for at, (stream, body) in enumerate(posts):
            relation = self._runtime.catalog.find(stream)
            assert relation is not None
            tasks.append(asyncio.ensure_future(self.posts.send(relation, body, ignore=False)))
            await asyncio.sleep(0)
            while not (at or self.began.is_set() or tasks[0].done()):
                await asyncio.sleep(0.001)
        if stop:
            self.posts.stop()
        if gone:
            self._app.sql(f"DROP STREAM {gone}")
        self.open.set()
        found: list[Any] = await asyncio.gather(*tasks, return_exceptions=True)
        self.posts.close()
        return [f if isinstance(f, int) else f"{type(f).__name__}: {f}" for f in found]

    def run(self, *posts: tuple[str, bytes], stop: bool = False, gone: str = "") -> list[int | str]:
        return asyncio.run(self.outcomes(*posts, stop=stop, gone=gone))


def test_a_bad_row_of_every_kind_refuses_its_own_request_alone() -> None:
    with App(SQL) as app:
        alone = [Shared(app).run(("s", body))[0] for body in BAD]
        assert all(isinstance(outcome, str) for outcome in alone)
        bodies = [body for bad in BAD for body in (*GOOD, bad)]
        together = Shared(app)
        found = together.run(("s", b'{"a": 0}'), *(("s", body) for body in bodies))
        expected = [outcome for bad in alone for outcome in (1, 2, 2, 0, bad)]
        assert found == [1, *expected]
        assert together.commits == [{"s": 1}, {"s": 5 * len(BAD)}]
        assert [row["a"] for row in sent(app, "s")] == [0, *[1, 2, 3, 4, 5] * len(BAD)]


def test_each_is_sent_alone_if_they_cannot_be_sent_together() -> None:
    with App(SQL) as app:
        shared = Shared(app)
        posts = [("s", b'{"a": 0}'), ("s", b'{"a": 1}'), ("r", b'{"a": 2}'), ("s", b'{"a": 3}')]
        found = shared.run(*posts, gone="r")
        assert found[:2] == [1, 1] and str(found[2]).startswith("UnknownName: ") and found[3] == 1
        assert [row["a"] for row in sent(app, "s")] == [0, 1, 3]


def test_an_error_that_is_not_of_the_rows_is_not_tried_again() -> None:
    """Rows may have been sent: a second time would send them twice."""
    with App(SQL) as app:
        shared = Shared(app)
        shared.errors = [NothingLeft("no space")]
        assert shared.run(("s", b'{"a": 0}'))[0] == "NothingLeft: no space"
        assert not shared.commits


def test_posts_to_several_streams_share_a_commit() -> None:
    with App(SQL) as app:
        shared = Shared(app)
        posts = [("sr"[i % 2], b'{"a": %d}' % i) for i in range(1, 21)]
        assert shared.run(("s", b'{"a": 0}'), *posts) == [1] * 21
        assert shared.commits == [{"s": 1}, {"r": 10, "s": 10}]
        assert [row["a"] for row in sent(app, "s")] == list(range(0, 21, 2))
        assert [row["a"] for row in sent(app, "r")] == list(range(1, 21, 2))


def test_a_stopping_server_finishes_the_commit_that_began_and_refuses_the_rest() -> None:
    with App(SQL) as app:
        shared = Shared(app)
        found = shared.run(("s", b'{"a": 0}'), ("s", b'{"a": 1}'), ("r", b'{"a": 2}'), stop=True)
        assert found[0] == 1 and all(str(f).startswith("Closed: ") for f in found[1:])
        assert [row["a"] for row in sent(app, "s")] == [0] and not sent(app, "r")
        relation = app._runtime.catalog.find("s")
        assert relation is not None
        with pytest.raises(Closed):
            asyncio.run(shared.posts.send(relation, b'{"a": 1}', ignore=False))
