"""Stops running statements for the time of a change."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from millpond.app.column_users import User
from millpond.store.catalog import SavedQuery, SavedRelation
from millpond.streaming.runner import Runner


@contextmanager
def stopped(
    users: Sequence[User], runner: Runner, go_on: Callable[[SavedRelation | SavedQuery], None]
) -> Iterator[ExitStack]:
    """Runs the code inside while these running statements are stopped; ``go_on`` then starts each again. Returns what
    is done before that, the last one first.
    """
    with ExitStack() as after:
        after.callback(runner.starter.start_waiting)
        for user in reversed(users):
            assert user.entry is not None
            runner.aside.put(user.name, runner)
            after.callback(go_on, user.entry)
        yield after
