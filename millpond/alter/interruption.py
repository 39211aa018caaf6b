"""Stops running statements for the time of a change, and the store if a durable change cannot be shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from millpond.alter.column_users import User
from millpond.store.catalog import SavedQuery, SavedRelation
from millpond.store.store import Store
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


@contextmanager
def durable(store: Store) -> Iterator[None]:
    """Runs the code that makes a change visible after it is in the journal. If that fails, the store stops."""
    try:
        yield
    except BaseException as error:
        store.visibility.stop(error)
        raise
