"""Threads that commit together: each gets its own answer, also when some groups fail."""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Iterator

import pytest

from millpond.journal.requests import GroupCommit, Request


@pytest.fixture
def eager_switching() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def test_no_request_is_lost_and_none_written_twice(eager_switching: None) -> None:
    chance = random.Random(1)
    written: list[int] = []
    groups: list[int] = []

    def write(group: list[Request]) -> None:
        if chance.random() < 0.2:
            raise RuntimeError("the disk said no")
        groups.append(len(group))
        for request in group:
            request.number = len(written)
            written.append(request.number)

    together = GroupCommit(write, threading.Lock())
    answers: list[int | None] = []
    refused: list[int] = []

    def work() -> None:
        for _ in range(500):
            try:
                answers.append(together.submit(Request({}, {}, None, ())))
            except RuntimeError:
                refused.append(1)

    threads = [threading.Thread(target=work) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    assert sorted(a for a in answers if a is not None) == written
    assert len(answers) + len(refused) == 6000 and refused
    assert max(groups) > 1


def test_an_interrupted_writer_does_not_stop_the_others() -> None:
    calls: list[int] = []

    def write(group: list[Request]) -> None:
        calls.append(len(group))
        if len(calls) == 1:
            raise KeyboardInterrupt
        for request in group:
            request.number = 7

    together = GroupCommit(write, threading.Lock())
    with pytest.raises(KeyboardInterrupt):
        together.submit(Request({}, {}, None, ()))
    assert together.submit(Request({}, {}, None, ())) == 7
