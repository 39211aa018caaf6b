"""Whatever commits come, however they are put together, and however often a client goes and comes back: what it has in
the end is what the table has under its selection."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond import App
from millpond.http.channel import Channel, Group
from millpond.http.follower import Follower
from millpond.http.selection import Conditional, Selection
from millpond.http.settings import Limits

KEYS = ["a", "b", "c", "d"]
SELECTIONS = [
    Selection(),
    Selection(key=("a",)),
    Selection(where="v > 5"),
    Selection(seconds=0.001),
    Selection(where="v > 5", seconds=0.001),
]

_put = st.lists(st.tuples(st.sampled_from(KEYS), st.integers(0, 10)), min_size=1, max_size=4)
_steps = st.lists(
    st.one_of(
        st.tuples(st.just("put"), _put),
        st.tuples(st.just("one"), st.tuples(st.sampled_from(KEYS), st.integers(0, 10))),
        st.tuples(st.just("delete"), st.lists(st.sampled_from(KEYS), min_size=1, max_size=3)),
        st.tuples(st.just("add"), st.integers(-3, 3)),
        st.tuples(st.just("both"), _put),
        st.tuples(st.just("hear"), st.none()),
        st.tuples(st.just("break"), st.none()),
    ),
    max_size=14,
)


class Client:
    """Has what the events say, and where it stands."""

    def __init__(self, channel: Channel, selection: Selection):
        self.channel, self.selection = channel, selection
        self.rows: dict[str, int] = {}
        self.last: str | None = None
        self.follower: Follower | None = None
        self.come()

    def come(self) -> None:
        table = self.channel.table
        where = self.selection.where
        select = None if where is None else Conditional(table.compile_condition(where), table.schema.key)
        self.follower = Follower.__new__(Follower)  # what it does in an event loop is not asked for
        view, number = table._view(), self.channel.number
        group: Group = self.channel.join(self.follower, self.selection, select, view, number)
        missed = None if self.last is None else self.channel.since(self.last, number, group)
        if missed is None:
            self.rows = self._wanted()
            self.last = self.channel.id_of(number)
        elif missed:
            self.hear(missed)

    def leave(self) -> None:
        assert self.follower is not None
        self.channel.leave(self.follower, self.selection)

    def hear(self, data: bytes) -> None:
        fields = dict(line.split(": ", 1) for line in data.decode().strip().split("\n"))
        said: dict[str, Any] = json.loads(fields["data"])
        assert fields["event"] == "change"
        self.last = fields["id"]
        for row in said["rows"]:
            self.rows[row["k"]] = row["v"]
        for key in said["deleted"]:
            self.rows.pop(key["k"], None)

    def _wanted(self) -> dict[str, int]:
        rows = (
            self.channel.table.find(self.selection.where)
            if self.selection.where
            else self.channel.table.all_rows()
        )
        return {r["k"]: r["v"] for r in rows if self.selection.key is None or r["k"] == self.selection.key[0]}

    def check(self) -> None:
        assert self.rows == self._wanted()


@pytest.fixture(scope="module")
def app() -> Iterator[App]:
    with App("CREATE TABLE t (k STRING PRIMARY KEY, v INT)") as made:
        yield made


@settings(max_examples=20, deadline=None)
@given(steps=_steps, kept=st.sampled_from([2, 1_000]))
def test_clients_end_with_what_the_table_has(app: App, steps: list[tuple[str, Any]], kept: int) -> None:
    table = app.table("t")
    table.delete("true")
    table.bulk_insert([{"k": "a", "v": 7}, {"k": "b", "v": 2}])
    channel = Channel(
        table, Limits(history_commits=kept), "boot", lambda: None, lambda followers, error: None
    )
    app._runtime.store.watch("t", channel)
    clients = [Client(channel, selection) for selection in SELECTIONS]

    def hear() -> None:
        found = list(channel.deliveries())
        for group in channel.groups.values():
            group.due = 0.0
        for followers, number, data in (*found, *channel.due()):
            for client in clients:
                if client.follower in followers and number > client.follower.after:  # type: ignore[union-attr]
                    client.hear(data)

    try:
        for kind, value in steps:
            if kind == "put":
                table.bulk_insert([{"k": k, "v": v} for k, v in value])
            elif kind == "one":
                table.insert({"k": value[0], "v": value[1]})
            elif kind == "delete":
                table.bulk_delete(list(dict.fromkeys(value)))
            elif kind == "add":
                table.update("true", f"v = v + {value}")
            elif kind == "both":
                with app.begin_transaction() as transaction:
                    transaction.table("t").delete("v < 5")
                    transaction.table("t").bulk_insert([{"k": k, "v": v} for k, v in value])
            elif kind == "hear":
                hear()
                for client in clients:
                    client.check()
            else:
                for client in clients:
                    client.leave()
                table.insert({"k": "d", "v": 6})
                for client in clients:
                    client.come()
        hear()
        for client in clients:
            client.check()
    finally:
        app._runtime.store.unwatch("t", channel.committed)
