"""Records whether an app is open."""

from __future__ import annotations

from millpond.errors import Closed


class Lifetime:
    """Records whether the app is closed."""

    closed = False

    def is_closed(self) -> bool:
        return self.closed

    def check_open(self) -> None:
        """Raises Closed if the app is closed."""
        if self.closed:
            raise Closed("the app is closed", hint="open a new App")
