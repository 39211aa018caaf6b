"""Collects the events of one table for its followers. Only the thread of the hub uses it, except for ``committed``."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from millpond.changes import Changes
from millpond.errors import Error
from millpond.http.follower import Follower, event
from millpond.http.net_changes import Netted, netted
from millpond.http.responses import encode, objects
from millpond.http.selection import Conditional, Key, Selection, data_of, encoded, keys_of, of_keys
from millpond.http.settings import Limits
from millpond.types import Schema

if TYPE_CHECKING:
    from collections.abc import Callable

    from millpond.query.table import Table
    from millpond.tables.base import Snapshot

Delivery = tuple[tuple[Follower, ...], int, bytes]
"""The receivers, the number of the change, and the event."""
MOST_WAITING = 1_000_000
"""Rows of changes that wait to be encoded; if there are more, all clients start over."""


class Group:
    """Groups clients with the same selection."""

    def __init__(self, selection: Selection, select: Conditional | None):
        self.selection = selection
        self.select = select
        self.followers: tuple[Follower, ...] = ()
        self.waiting: list[Changes] = []
        self.due = 0.0


class Channel:
    """Collects the events of one table.

    ``boot`` is in the id of every event: ids of another run, or of a table that was released, do not match.
    ``on_failed`` receives the clients whose condition cannot be evaluated.
    """

    def __init__(
        self,
        table: Table,
        limits: Limits,
        boot: str,
        wake: Callable[[], None],
        on_failed: Callable[[tuple[Follower, ...], Error], None],
    ):
        self.table = table
        self._on_failed = on_failed
        self._limits = limits
        self._wake = wake
        self.boot = boot
        self.groups: dict[Selection, Group] = {}
        self.number = 0
        """The number of the newest change."""
        self._seen = 0
        self._lock = threading.Lock()
        self._arrived: deque[tuple[int, Changes]] = deque()
        self._rows = 0
        self._history: deque[tuple[int, Changes]] = deque()
        self._history_rows = 0
        self._lost: str | None = None
        """Why all clients have to start over."""
        self.idle_since: float | None = time.monotonic()

    @property
    def schema(self) -> Schema:
        return self.table.schema

    def committed(self, change: Changes) -> None:
        """Records a commit. Called while it becomes visible."""
        with self._lock:
            self.number += 1
            self._rows += len(change)
            if self._rows > MOST_WAITING:
                self._arrived.clear()
                self._rows, self._lost = 0, "changes arrived faster than they could be sent"
            else:
                self._arrived.append((self.number, change))
        self._wake()

    def lost(self, why: str) -> None:
        """Records that the changes of a commit are not known: all clients start over."""
        with self._lock:
            self.number += 1
            self._arrived.clear()
            self._rows, self._lost = 0, why
        self._wake()

    def _next(self) -> tuple[int, Changes] | None:
        with self._lock:
            if not self._arrived:
                return None
            number, change = self._arrived.popleft()
            self._rows -= len(change)
            return number, change

    def id_of(self, number: int) -> str:
        return f"{self.boot}-{number}"

    # joining

    def join(
        self,
        follower: Follower,
        selection: Selection,
        select: Conditional | None,
        view: Snapshot,
        number: int,
    ) -> Group:
        """Adds a client; ``view`` is the table after the change ``number``."""
        group = self.groups.get(selection)
        if group is None:
            if select is not None:
                select.begin(select.of(view))
            group = self.groups[selection] = Group(selection, select)
        follower.after = number
        group.followers = (*group.followers, follower)
        self.idle_since = None
        return group

    def leave(self, follower: Follower, selection: Selection) -> None:
        group = self.groups.get(selection)
        if group is None:
            return
        group.followers = tuple(f for f in group.followers if f is not follower)
        if not group.followers:
            del self.groups[selection]
        if not self.groups:
            self.idle_since = time.monotonic()

    def since(self, last: str, number: int, group: Group) -> bytes | None:
        """Returns one event with all changes after the event ``last``, up to the change ``number``; None if they are no
        longer stored: then the client has to start over.
        """
        boot, _, text = last.rpartition("-")
        if boot != self.boot or not text.isascii() or not text.isdigit() or int(text) > number:
            return None
        after = int(text)
        with self._lock:
            kept = [*self._history, *self._arrived]
        if self._lost or (after < number and (not kept or kept[0][0] > after + 1)):
            return None
        missed = [change for n, change in kept if after < n <= number]
        change = netted(missed, self.schema) if missed else None
        if change is None or change.unknown:
            return b"" if change is None else None
        change = self._narrowed(change, group, sent=False)
        data = encoded(change, len(missed))
        return b"" if data is None else event("change", data, self.id_of(number))

    # events

    def deliveries(self) -> Iterator[Delivery]:
        """Yields the events for the commits since the last call."""
        if self._lost:
            why, self._lost = self._lost, None
            yield from self.start_over(why)
        while (found := self._next()) is not None:
            number, change = found
            self._seen = number
            self._keep(number, change)
            yield from self._of_commit(number, change)

    def _keep(self, number: int, change: Changes) -> None:
        self._history.append((number, change))
        self._history_rows += len(change)
        while (
            len(self._history) > self._limits.history_commits
            or self._history_rows > self._limits.history_rows
        ):
            self._history_rows -= len(self._history.popleft()[1])

    def _of_commit(self, number: int, change: Changes) -> Iterator[Delivery]:
        now = time.monotonic()
        direct = [g for g in self.groups.values() if not g.selection.seconds]
        for group in self.groups.values():
            if group.selection.seconds:
                if not group.waiting:
                    group.due = now + group.selection.seconds
                group.waiting.append(change)
        if not direct:
            return
        net = netted([change], self.schema)
        if net.unknown:
            yield from self._resets(direct)
            return
        yield from self._by_key(
            number, net, {g.selection.key: g for g in direct if g.selection.key is not None}
        )
        for group in direct:
            if group.selection.key is None:
                yield from self._change_events(number, group, net, 1)

    def due(self) -> Iterator[Delivery]:
        """Yields the due events of groups that get several commits as one."""
        now = time.monotonic()
        for group in list(self.groups.values()):
            if group.waiting and group.due <= now:
                changes, group.waiting = group.waiting, []
                net = netted(changes, self.schema)
                if net.unknown:
                    yield from self._resets([group])
                else:
                    yield from self._change_events(self._seen, group, net, len(changes))

    def next_due(self) -> float | None:
        """Returns when the next event is due even if no commit comes."""
        return min((g.due for g in self.groups.values() if g.waiting), default=None)

    def _change_events(self, number: int, group: Group, net: Netted, commits: int) -> Iterator[Delivery]:
        try:
            data = encoded(self._narrowed(net, group, sent=True), commits)
        except Error as error:  # the condition fails for a row: only its clients are affected
            self._fail(group, error)
            return
        if data is not None:
            yield group.followers, number, event("change", data, self.id_of(number))

    def _fail(self, group: Group, error: Error) -> None:
        del self.groups[group.selection]
        if not self.groups:
            self.idle_since = time.monotonic()
        self._on_failed(group.followers, error)

    def _narrowed(self, net: Netted, group: Group, *, sent: bool) -> Netted:
        if group.select is not None:
            return group.select.narrow(net, sent=sent)
        if group.selection.key is None:
            return net
        key = group.selection.key
        near = of_keys(net, self.schema.key, self._values([key]))
        rows = pa.array([k == key for k in keys_of(near.rows, self.schema.key)], pa.bool_())
        gone = pa.array([k == key for k in keys_of(near.deleted, self.schema.key)], pa.bool_())
        return Netted(near.rows.filter(rows), near.deleted.filter(gone))

    def _by_key(self, number: int, net: Netted, groups: dict[Key, Group]) -> Iterator[Delivery]:
        """Yields the events of all clients that follow a key, in one pass over the change."""
        if not groups:
            return
        key = self.schema.key
        near = of_keys(net, key, self._values(list(groups)))
        for part, is_there in ((near.rows, True), (near.deleted, False)):
            if not part.num_rows:
                continue
            for one, text in zip(keys_of(part, key), objects(part), strict=True):
                group = groups.get(one)
                if group is not None:
                    data = data_of([text], [], 1) if is_there else data_of([], [text], 1)
                    yield group.followers, number, event("change", data, self.id_of(number))

    def _values(self, keys: list[Key]) -> pa.Array:
        first = self.schema.find(self.schema.key[0])
        assert first is not None
        return pa.array([k[0] for k in keys], first.type)

    def _resets(self, groups: list[Group]) -> Iterator[Delivery]:
        yield from self.start_over("rows of a table without a key were changed or went", groups)

    def start_over(self, why: str, groups: list[Group] | None = None) -> Iterator[Delivery]:
        """Yields the events that make clients read the table again."""
        if groups is None:
            self._history.clear()
            self._history_rows = 0
            groups = list(self.groups.values())
        for group in groups:
            yield group.followers, self.number, reset(why, self.id_of(self.number))


def reset(why: str, id_: str) -> bytes:
    return event("reset", encode({"reason": why, "hint": "read the rows again"}), id_)
