"""Estimates the memory of states of operators, from a sample of their entries, and returns what they no longer use."""

from __future__ import annotations

import gc
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from sys import getsizeof
from typing import Any

_SAMPLE = 64
_LARGE, _SPARSE = 4096, 300
"""Bytes of a dictionary that is worth a second look, and bytes for each entry that one with few free places has not."""


def about(found: Collection[Any]) -> int:
    """Returns about how many bytes a container and all that it contains take."""
    items = found.items() if isinstance(found, Mapping) else ((item,) for item in found)
    return getsizeof(found) + round(len(found) * mean(items))


def mean(items: Iterable[tuple[Any, ...]]) -> float:
    """Returns about how many bytes the parts of an item take."""
    sizes = [sum(map(_size, item)) for item in islice(items, _SAMPLE)]
    return sum(sizes) / len(sizes) if sizes else 0.0


def _size(value: Any) -> int:
    if isinstance(value, tuple | list):
        return getsizeof(value) + sum(map(_size, value))
    if value is None or (isinstance(value, int) and -5 <= value <= 256):
        return 0  # there is one of each
    return about(value) if isinstance(value, dict) else getsizeof(value)


def tidy(found: dict[Any, Any]) -> None:
    """Returns the memory of a dictionary from which most entries were deleted: it does not shrink by itself."""
    size = getsizeof(found)
    if size > _LARGE and size > _SPARSE * len(found):
        left = dict(found)
        found.clear()
        found.update(left)


@contextmanager
def without_collection() -> Iterator[None]:
    """Runs the code inside without garbage collection: it makes many objects and no cycles, and each collection would
    visit all of them.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
