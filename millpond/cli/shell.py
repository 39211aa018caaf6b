"""``millpond sql``: a shell."""

from __future__ import annotations

EXAMPLES = ""


def shell() -> None:
    """A shell."""
