"""Runs the loads of an app's file in threads, while the app runs what does not need their tables."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable

from millpond.errors import Closed, Error, known
from millpond.plan.plans import LoadPlan
from millpond.sql.checked import Checked

AT_ONCE = 4
"""Tables that are read at the same time."""
Failed = Callable[[Error], None]


class Loader:
    """Loads that run. What needs a table waits for it with ``wait``; ``on_end`` is called when one has ended."""

    def __init__(
        self,
        lock: threading.RLock,
        load: Callable[[LoadPlan, Checked], object],
        is_closed: Callable[[], bool],
    ):
        self._load_table = load
        self._is_closed = is_closed
        self._turns = threading.Semaphore(AT_ONCE)
        self._threads: dict[str, threading.Thread] = {}
        self._errors: list[Error] = []
        # Waiting for a load gives the app's lock away, so that others are answered meanwhile.
        self._changed = threading.Condition(lock)
        self.on_end: Callable[[], None] = lambda: None

    def begin(
        self,
        plan: LoadPlan,
        checked: Checked,
        failed: Failed | None = None,
        *,
        undo: Callable[[], None] | None = None,
    ) -> None:
        """Loads a table in a thread. ``failed`` is told the error; without it ``undo`` takes the table back, and
        ``wait`` raises the error."""
        name = plan.target.name.lower()
        thread = threading.Thread(
            target=self._load,
            args=(name, plan, checked, failed, undo),
            name=f"millpond-load-{name}",
            daemon=True,
        )
        self._threads[name] = thread
        thread.start()

    def _load(
        self,
        name: str,
        plan: LoadPlan,
        checked: Checked,
        failed: Failed | None,
        undo: Callable[[], None] | None,
    ) -> None:
        try:
            with self._turns:
                if not self._is_closed():
                    self._load_table(plan, checked)
        except Exception as error:
            found = known(error)
            found.place = found.place or plan.place
            if failed is not None and not isinstance(error, Closed):
                failed(found)
            else:
                with self._changed:
                    if undo is not None and not isinstance(error, Closed):
                        undo()
                    self._errors.append(found)
        self._threads.pop(name, None)
        with self._changed:
            self._changed.notify_all()
        self.on_end()

    def running(self, names: Iterable[str] | None = None) -> set[str]:
        """Those of the names, or of all tables, that are being loaded, in lower case."""
        loading = set(self._threads)
        return loading if names is None else loading & {name.lower() for name in names}

    def wait(self, names: Iterable[str] | None = None, timeout: float = threading.TIMEOUT_MAX) -> bool:
        """Waits until none of the names is being loaded; False if the time is over before. Raises what a load failed
        with."""
        deadline = time.monotonic() + timeout
        with self._changed:
            while self.running(names) and not self._is_closed():
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                self._changed.wait(min(left, 1.0))
        if self._errors:
            first, self._errors = self._errors[0], []
            raise first
        return True

    def close(self) -> None:
        """Ends after the chunks that are being written; the app is closed by now."""
        for thread in list(self._threads.values()):
            thread.join()
