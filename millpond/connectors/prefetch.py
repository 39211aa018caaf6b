"""Reads ahead: fetches the next item while the previous one is used."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

T = TypeVar("T")
_PAUSE = 0.2
_PATIENCE = 5.0


class _End:
    def __init__(self, error: BaseException | None = None):
        self.error = error


def ahead(items: Iterator[T], count: int) -> Iterator[T]:
    """Yields the same items; a thread fetches up to ``count`` of them before they are requested."""
    return side_by_side([items], count) if count > 0 else items


def side_by_side(sources: Sequence[Iterable[T]], count: int, threads: int = 1) -> Iterator[T]:
    """Yields the items of all sources, as they arrive: each of so many threads reads one source after another, and
    fetches up to ``count`` items before they are requested.
    """
    found: queue.Queue[Any] = queue.Queue(max(1, count) * threads)
    todo: queue.SimpleQueue[Iterable[T]] = queue.SimpleQueue()
    for source in sources:
        todo.put(source)
    stop = threading.Event()

    def put(item: Any) -> bool:
        while not stop.is_set():
            try:
                found.put(item, timeout=_PAUSE)
                return True
            except queue.Full:
                continue
        return False

    def work() -> None:
        try:
            while not stop.is_set():
                try:
                    items = iter(todo.get_nowait())
                except queue.Empty:
                    break
                try:
                    for item in items:
                        if not put(item):
                            break
                finally:
                    if (close := getattr(items, "close", None)) is not None:
                        close()
        except BaseException as error:
            put(_End(error))
        else:
            put(_End())

    workers = [threading.Thread(target=work, name="millpond-ahead", daemon=True) for _ in range(threads)]
    for worker in workers:
        worker.start()
    left = len(workers)
    try:
        while left:
            item = found.get()
            if isinstance(item, _End):
                left -= 1
                if item.error is not None:
                    raise item.error
            else:
                yield item
    finally:
        stop.set()
        for worker in workers:
            worker.join(_PATIENCE)  # one that waits for a response ends when that comes
