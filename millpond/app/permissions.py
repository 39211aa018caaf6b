"""Restricts statements of callers that may not do everything."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from millpond.errors import Place
from millpond.query.plans import Plan
from millpond.sql.checked import Checked
from millpond.sql.limits import TextLimits
from millpond.sql.statements import Statement


class Permissions(Protocol):
    """Checks a text before any of it runs; raises for what is not allowed. Variables (``${NAME}``) in such a text have
    no values: its sender must not see the environment. A text that exceeds ``limits`` is not read.
    """

    limits: TextLimits

    def planned(self, plan: Plan) -> bool:
        """Returns whether a cached plan may run a statement; if not, it takes the general path, which says why."""

    def parsed(self, statements: Sequence[Statement], locate: Callable[[int, int], Place]) -> None:
        """Checks before names are looked up and files are opened. ``locate`` maps offsets to a place in the text."""

    def checked(self, statements: Sequence[Checked]) -> None:
        """Checks before the first statement runs."""
