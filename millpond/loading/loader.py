"""Runs the loads of an app's file in threads, while the app runs statements that do not need their tables."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable

from millpond import allowance
from millpond.errors import Closed, Error, known
from millpond.plan.plans import LoadPlan

AT_ONCE = 4
"""Tables that are loaded at the same time."""
Failed = Callable[[Error], None]


class Loader:
    """Runs loads. A statement that needs a table waits for it with ``wait``; ``on_end`` is called when one
    has ended; ``cancel`` ends what Spark does for them.
    """

    def __init__(
        self,
        lock: threading.RLock,
        load: Callable[[LoadPlan], object],
        is_closed: Callable[[], bool],
        cancel: Callable[[], None],
    ):
        self._load_table = load
        self._cancel = cancel
        self._is_closed = is_closed
        self._turns = threading.Semaphore(AT_ONCE)
        self._threads: dict[str, threading.Thread] = {}
        self._loading: set[str] = set()
        self._errors: list[Error] = []
        # Waiting for a load releases the app's lock, so that others are served meanwhile.
        self._changed = threading.Condition(lock)
        self._ended = threading.Condition()
        self.on_end: Callable[[], None] = lambda: None

    def begin(
        self,
        plan: LoadPlan,
        failed: Failed | None = None,
        *,
        undo: Callable[[], None] | None = None,
    ) -> None:
        """Loads a table in a thread. ``failed`` receives the error; without it ``undo`` removes the table, and ``wait``
        raises the error.
        """
        name = plan.target.name.lower()
        thread = threading.Thread(
            target=self._load,
            args=(name, plan, failed, undo),
            name=f"millpond-load-{name}",
            daemon=True,
        )
        self._threads[name] = thread
        thread.start()

    def _load(
        self,
        name: str,
        plan: LoadPlan,
        failed: Failed | None,
        undo: Callable[[], None] | None,
    ) -> None:
        try:
            with self._turns:
                if not self._is_closed():
                    self._load_table(plan)
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
        self._tell()
        with self._changed:
            self._changed.notify_all()
        self.on_end()

    def _tell(self) -> None:
        with self._ended:
            self._ended.notify_all()

    def begin_loading(self, name: str) -> None:
        """Notes that this thread makes a table and fills it: queries of others on it wait from now on."""
        self._loading.add(name.lower())

    def end_loading(self, name: str) -> None:
        """Notes that the table is full, or gone."""
        self._loading.discard(name.lower())
        self._tell()

    def running(self, names: Iterable[str] | None = None) -> set[str]:
        """Returns those of the names, or of all tables, that are being loaded, in lower case."""
        loading = set(self._threads)
        return loading if names is None else loading & {name.lower() for name in names}

    def filled(self, names: Iterable[str] | None = None) -> set[str]:
        """Returns those of the names, or of all tables, that are being loaded, or filled by the statement that creates
        them, in lower case.
        """
        filled = set(self._threads) | self._loading
        return filled if names is None else filled & {name.lower() for name in names}

    def wait_filled(self, names: Iterable[str]) -> None:
        """Waits until none of the names is being loaded or filled, without the lock of the app. Raises the error of a
        load.
        """
        wanted = set(names)
        with self._ended:
            while self.filled(wanted) and not self._is_closed():
                allowance.check()
                self._ended.wait(0.2)
        self._raise()

    def wait(self, names: Iterable[str] | None = None, timeout: float = threading.TIMEOUT_MAX) -> bool:
        """Waits until none of the names is being loaded; returns False if the time is over before. Raises the error of
        a load.
        """
        deadline = time.monotonic() + timeout
        with self._changed:
            while self.running(names) and not self._is_closed():
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                self._changed.wait(min(left, 1.0))
        self._raise()
        return True

    def _raise(self) -> None:
        errors, self._errors = self._errors, []
        if errors:
            raise errors[0]

    def close(self) -> None:
        """Ends after the chunks that are being written; the app is closed by now. What Spark reads is cancelled."""
        self._cancel()
        for thread in list(self._threads.values()):
            thread.join()
