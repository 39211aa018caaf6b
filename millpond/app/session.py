"""Runs statements that a person types one after another, with BEGIN, COMMIT and ROLLBACK."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import pyarrow as pa

from millpond.app.permissions import Permissions
from millpond.errors import NotSupported
from millpond.query.result import Result
from millpond.query.transaction import Transaction
from millpond.sql import statements as st
from millpond.sql.bind import Params
from millpond.sql.parse import parse


class Ask(Protocol):
    """Runs a text, as ``Texts.ask``."""

    def __call__(self, text: str, params: Params, permissions: Permissions | None = None, /) -> Result: ...


class Session:
    """Runs texts in the order in which they come. A BEGIN by itself opens a transaction that contains the following
    texts, until a COMMIT or ROLLBACK by itself. One thread uses it.
    """

    def __init__(self, ask: Ask, begin: Callable[[], Transaction]):
        self._ask = ask
        self._begin = begin
        self._transaction: Transaction | None = None

    def run(self, text: str, params: Params = None, permissions: Permissions | None = None) -> Result:
        """Runs one or several statements; returns the result of the last one."""
        alone = _alone(text)
        if self._transaction is None:
            if not isinstance(alone, st.Begin):
                return self._ask(text, params, permissions)
            if permissions is not None:
                permissions.parsed((alone,), parse(text, {}).script.place)
            self._transaction = self._begin()
        elif isinstance(alone, st.Commit):
            transaction, self._transaction = self._transaction, None
            transaction.commit()
        elif isinstance(alone, st.Rollback):
            self.end()
        elif isinstance(alone, st.Begin):
            raise NotSupported(
                "a transaction is open already", hint="end it first: COMMIT, or ROLLBACK", place=alone.place
            )
        else:
            return self._transaction.sql(text, params)
        return Result(pa.table({}), count=0)

    @property
    def in_transaction(self) -> bool:
        return self._transaction is not None

    def end(self) -> None:
        """Rolls back an open transaction."""
        if self._transaction is not None:
            self._transaction.rollback()
            self._transaction = None


def _alone(text: str) -> st.Statement | None:
    """Returns the one statement of a text; None if there are several, or if it cannot be parsed."""
    if len(text) > 200 and len(text.strip()) > 100:
        return None  # BEGIN, COMMIT and ROLLBACK are short
    parsed = parse(text, {})
    return parsed.statements[0] if len(parsed.statements) == 1 and not parsed.errors else None
