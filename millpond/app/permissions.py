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
    """Asked before anything of a text is done; raises what is not to be. Variables (``${NAME}``) of such a text have
    no values: the environment is not for whoever sends it. What is longer than ``limits`` is not read."""

    limits: TextLimits

    def planned(self, plan: Plan) -> bool:
        """Returns whether a statement that has a plan may be run by it; if not it goes the long way, which says why."""

    def parsed(self, statements: Sequence[Statement], locate: Callable[[int, int], Place]) -> None:
        """Before any name in them is looked up, and any file is opened. ``locate`` tells where in the text something
        stands, by its offsets."""

    def checked(self, statements: Sequence[Checked]) -> None:
        """Before the first one runs."""
