"""Samples the numbers of the last minutes, for plots."""

from __future__ import annotations

import logging
import threading
from collections import deque
from typing import Any

from millpond.http.observation import Observation, Observer

log = logging.getLogger("millpond")
INTERVAL = 2.0
KEPT = 300
"""The number of stored samples: ten minutes."""
_NUMBERS = ("state", "rows", "rate", "lag", "last_batch_ms", "errors", "misses", "waiting", "retries")


class Sampler:
    """Samples every two seconds, from the first request on."""

    def __init__(self, observer: Observer):
        self._observer = observer
        self._samples: deque[dict[str, Any]] = deque(maxlen=KEPT)
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()

    def samples(self, after: float) -> list[dict[str, Any]]:
        """Returns the samples after a time, in seconds since 1970."""
        with self._starting:
            if self._thread is None:
                self._take()
                self._thread = threading.Thread(target=self._run, name="millpond-samples", daemon=True)
                self._thread.start()
        return [s for s in list(self._samples) if s["at"] > after]

    def out_rate(self, query: str) -> float | None:
        """Returns the rows per second that a query returned between the last two samples."""
        if len(self._samples) < 2:
            return None
        before, now = self._samples[-2], self._samples[-1]
        if query not in before["queries"] or query not in now["queries"]:
            return None
        rows = (now["queries"][query]["rows"] or 0) - (before["queries"][query]["rows"] or 0)
        seconds: float = max(0.001, now["at"] - before["at"])
        return round(max(0, rows) / seconds, 1)

    def _run(self) -> None:
        while not self._stop.wait(INTERVAL):
            try:
                self._take()
            except Exception:
                log.debug("no sample could be taken", exc_info=True)

    def _take(self) -> None:
        self._samples.append(sample(self._observer.look()))

    def close(self) -> None:
        self._stop.set()


def sample(seen: Observation) -> dict[str, Any]:
    """Returns the current numbers."""
    numbers = {q.name: {k: q.numbers.get(k) for k in _NUMBERS} for q in seen.queries}

    def total(name: str) -> Any:
        return sum(n[name] or 0 for n in numbers.values())

    return {
        "at": seen.at,
        "rows_per_second": round(total("rate"), 1),
        "batch_ms": max((n["last_batch_ms"] or 0 for n in numbers.values()), default=0),
        "lag": total("lag"),
        "errors": total("errors"),
        "failed": sum(n["state"] == "failed" for n in numbers.values()),
        "memory": seen.memory,
        "table_bytes": sum(stats.bytes for stats, _ in seen.tables.values()),
        "queries": numbers,
        "tables": {name: {"rows": s.rows, "bytes": s.bytes} for name, (s, _) in seen.tables.items()},
    }
