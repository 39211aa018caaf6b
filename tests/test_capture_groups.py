"""Tables that move together in one log: who waits for whom, and who goes on without whom."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from millpond.changes import Changes, Position
from millpond.errors import Closed, ConnectionLost, TableFull
from millpond.loading import capture_groups
from millpond.loading.capture_groups import CaptureGroup, Part

ROWS = Changes(pa.table({"id": [1]}))


class Commits:
    """Takes commits, in the place of a store; ``full`` are the tables that take none."""

    def __init__(self) -> None:
        self.made: list[list[str]] = []
        self.full: set[str] = set()

    def commit(self, changes: dict[str, Changes], *, others: Sequence[Position]) -> bool:
        if self.full & set(changes):
            raise TableFull("full")
        self.made.append(sorted(changes))
        return True


class Followed:
    """A table with a change at each place of a log."""

    def __init__(self, name: str, end: int, at: int = 0):
        self.name, self.at, self.end = name, at, end
        self.error: Exception | None = None

    def horizon(self) -> tuple[int, ...]:
        if self.error is not None:
            raise self.error
        return (min(self.at + 1, self.end),)

    def part(self, place: tuple[Any, ...]) -> Part | None:
        if place[0] <= self.at:
            return None
        self.at = place[0]
        return Part(self.name, ROWS, Position(self.name, str(self.at), 0))


@pytest.fixture
def commits() -> Commits:
    return Commits()


@pytest.fixture
def group(commits: Commits) -> CaptureGroup:
    return CaptureGroup(commits)  # type: ignore[arg-type]


def test_all_move_together(group: CaptureGroup, commits: Commits) -> None:
    one, two = Followed("one", 3), Followed("two", 3)
    assert group.advance(one) == 3
    assert group.advance(two) == 3  # it catches up alone
    one.end = two.end = 5
    assert group.advance(one) == 2 and group.advance(two) == 2
    assert commits.made == [["one"]] * 3 + [["two"]] * 3 + [["one", "two"]] * 2


def test_a_table_that_takes_no_commit_is_left_behind(group: CaptureGroup, commits: Commits) -> None:
    one, two, full = (Followed(name, 1) for name in ("one", "two", "full"))
    for member in (one, two, full):
        group.advance(member)
    commits.made.clear()
    commits.full = {"full"}
    one.end = two.end = full.end = 2
    assert group.advance(one) == 1
    assert commits.made == [["one", "two"]]
    full.at, full.end = 1, 3
    with pytest.raises(TableFull):
        group.advance(full)
    one.end = two.end = 3
    assert group.advance(two) == 2  # with what it got in the step of the other


def test_the_log_begins_anew(group: CaptureGroup) -> None:
    one = Followed("one", 9)
    group.advance(one)
    group.leave(one, for_good=True)
    two = Followed("one", 2)
    assert group.advance(two) == 2
    last = Followed("three", 1)  # it can read less than the others have reached
    group.advance(last)


def test_a_table_that_was_closed_does_not_come_back(group: CaptureGroup, commits: Commits) -> None:
    one, two = Followed("one", 1), Followed("two", 1)
    group.advance(one)
    group.advance(two)
    group.leave(two, for_good=True)
    with pytest.raises(Closed):
        group.advance(two)
    one.end = 2
    assert group.advance(one) == 1 and commits.made[-1] == ["one"]


def test_others_wait_for_a_lost_connection_but_not_for_ever(
    group: CaptureGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = Followed("one", 1), Followed("two", 1)
    group.advance(one)
    group.advance(two)
    one.end = two.end = 2
    two.error = ConnectionLost("away")
    with pytest.raises(ConnectionLost):
        group.advance(one)
    one.error = ConnectionLost("away for all")
    monkeypatch.setattr(capture_groups, "_AWAY", 0.0)
    with pytest.raises(ConnectionLost, match="for all"):
        group.advance(one)
    one.error = None
    assert group.advance(one) == 1 and one.at == 2 and two.at == 1
    two.error = None
    assert group.advance(two) == 1


def test_one_that_has_always_more_does_not_keep_the_turn(group: CaptureGroup) -> None:
    busy, other = Followed("busy", 1 << 40), Followed("other", 0)
    stop = threading.Event()
    busy_horizon = busy.horizon

    def horizon() -> tuple[int, ...]:
        return (busy.at,) if stop.is_set() else busy_horizon()

    busy.horizon = horizon  # type: ignore[method-assign]
    thread = threading.Thread(target=group.advance, args=(busy,))
    thread.start()
    try:
        for _ in range(20):
            group.leave(other)
            assert thread.is_alive()
    finally:
        stop.set()
        thread.join(60)
    assert not thread.is_alive()
