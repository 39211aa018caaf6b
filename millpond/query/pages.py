"""Remembers where the last page of a table ended that a thread read."""

from __future__ import annotations

import threading

from millpond.tables.base import Snapshot


class Pages:
    """Lets a thread that continues after its last page read the same snapshot."""

    def __init__(self) -> None:
        self._thread = threading.local()

    def view_at(self, offset: int) -> Snapshot | None:
        """Returns the snapshot of the page that ended at the offset, if that was this thread's last one."""
        if not offset or getattr(self._thread, "next", None) != offset:
            return None
        view: Snapshot = self._thread.view
        return view

    def note(self, view: Snapshot, following: int | None) -> None:
        """Stores the snapshot for the page at ``following``; None if there is none."""
        self._thread.next, self._thread.view = following, None if following is None else view
