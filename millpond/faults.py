"""Named points in the code at which tests inject a fault: an exception, or the end of the process.

``millpond.testing.faults`` puts faults there. Outside of tests a point costs one comparison.
"""

from __future__ import annotations

from collections.abc import Callable

POINTS: dict[str, str] = {}
"""Every point by its name, with what has happened when it is reached. A test walks all of them."""

_reached: Callable[[str], None] | None = None


def reach(point: str) -> None:
    """Does nothing, unless a test has put a fault at the point."""
    if _reached is not None:
        _reached(point)


def on_reach(reached: Callable[[str], None] | None) -> None:
    """Calls ``reached`` with the name of each point from now on; None ends that."""
    global _reached
    _reached = reached
