"""F11: threads that read and write one table."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from bench.figure import Figure
from bench.tables.peers import dict_of, records, some_keys, table_of

_SECONDS = 2.0


def run(rows: int) -> Iterator[Figure]:
    data = records(rows)
    table, plain = table_of(data), dict_of(data)
    lock = threading.Lock()

    def put(key: int) -> None:
        with lock:
            plain[key]["qty"] = 5

    def copy(key: int) -> dict[str, Any]:
        with lock:
            return plain[key].copy()

    def update(key: int) -> int:
        return table.update({"id": key}, {"qty": 5})

    for count in (1, 2, 4, 8):
        writers = count // 4
        ours = _counts(table.get_record, update, count - writers, writers, rows)
        peer = _counts(copy, put, count - writers, writers, rows)
        what = f"{count} threads, {count - writers} get_record, {writers} update, {rows:,} rows"
        yield Figure("F11", what, sum(ours) / _SECONDS, sum(peer) / _SECONDS, "dict and lock", "calls")
        for kind, found in (("readers", ours[: count - writers]), ("writers", ours[count - writers :])):
            if len(found) > 1:
                mean = sum(found) / len(found) / _SECONDS
                what = f"slowest of the {kind} of {count} threads"
                yield Figure("F11", what, min(found) / _SECONDS, mean, "their mean", "calls")


def _counts(
    read: Callable[[int], object], write: Callable[[int], object], readers: int, writers: int, rows: int
) -> list[int]:
    """How many calls each thread makes, the readers first."""
    keys = some_keys(rows, 20_000)
    stop = threading.Event()
    done = [0] * (readers + writers)

    def work(me: int) -> None:
        function = read if me < readers else write
        while True:
            for key in keys:
                function(key)
                done[me] += 1
                if stop.is_set():
                    return

    threads = [threading.Thread(target=work, args=(i,)) for i in range(readers + writers)]
    for thread in threads:
        thread.start()
    time.sleep(_SECONDS)
    stop.set()
    for thread in threads:
        thread.join()
    return done
