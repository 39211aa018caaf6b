"""Checked statements: a type for each kind, and a handler for each type."""

from __future__ import annotations

from collections.abc import Iterator

from millpond import App
from millpond.sql.checked import Checked, CheckedTransaction
from millpond.sql.checked_commands import CheckedName

NEVER_RUN = {CheckedTransaction, CheckedName}
"""The statements of a transaction run one by one; a name of a query is only explained."""


def kinds(base: type[Checked]) -> Iterator[type[Checked]]:
    """The types that statements have, without those that only others derive from."""
    for kind in base.__subclasses__():
        if kind.__module__.startswith("millpond."):
            yield from kinds(kind)
            if "statement" in kind.__annotations__ or not kind.__subclasses__():
                yield kind


def test_every_kind_of_statement_has_a_handler() -> None:
    with App() as app:
        handlers = set(app._runtime.texts.executor.handlers)
    assert handlers == set(kinds(Checked)) - NEVER_RUN
