"""Lets a key index lag behind the rows of a table, for a while: many integer keys need no hash of each.

A batch of many keys that are dense integers finds the rows that it replaces by an array (``_dense.py``). It adds its
own keys to the index only when somebody looks for a single key: a table that batches change and read, such as the state
of a live aggregate, never needs it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from threading import Lock
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.records.keys import Key, integers_of, key_list
from millpond.tables._blocks import Blocks

_SPARSE = 4
"""Maximum range of distinct keys, for each row of the table and of the batch."""


class Holder(Protocol):
    """Has an index of keys that may be replaced: a generation, or what readers of single keys use."""

    newest: Any


class LaggingKeys(dict[Key, int]):
    """Stands for the index of a generation while that does not have the newest slots. Every use adds them, and puts the
    index back in its place.

    Only the writer lets it lag. Readers in other threads may add the slots, of commits that are not visible yet too.
    """

    def __init__(self, generation: Holder, keys: dict[Key, int], column: str):
        super().__init__()
        self._generation = generation
        self._keys = keys
        self._column = column
        self._lock = Lock()
        self._missing: tuple[Blocks, int, int] | None = None
        self._live: Holder | None = None

    def lag(self, blocks: Blocks, start: int, end: int) -> None:
        """Records that the index does not have these slots, which are written, and whose keys differ."""
        with self._lock:
            if self._missing is not None:
                start = self._missing[1]
            self._missing = blocks, start, end
            self._generation.newest = self

    def read_by(self, live: Holder) -> None:
        """Shows readers of single keys this, until the index is complete."""
        with self._lock:
            self._live = live
            live.newest = self if self._missing is not None else self._keys

    def complete(self) -> dict[Key, int]:
        """Returns the index with all slots."""
        with self._lock:
            if self._missing is not None:
                blocks, start, end = self._missing
                keys = key_list([blocks.between([self._column], start, end).column(0)])
                self._keys.update(zip(keys, range(start, end), strict=True))
                self._missing = None
                self._generation.newest = self._keys
                if self._live is not None:
                    self._live.newest = self._keys
            return self._keys

    @property
    def present(self) -> dict[Key, int]:
        """Returns the index as it is, without the slots that it does not have yet."""
        return self._keys

    def get(self, key: Key, default: Any = None) -> Any:
        return self.complete().get(key, default)

    def __setitem__(self, key: Key, slot: int) -> None:
        self.complete()[key] = slot

    def update(self, pairs: Mapping[Key, int] | Iterable[tuple[Key, int]]) -> None:  # type: ignore[override]
        self.complete().update(pairs)

    def values(self) -> Any:
        return self.complete().values()

    def __iter__(self) -> Iterator[Key]:
        return iter(self.complete())

    def __len__(self) -> int:
        return len(self.complete())


def distinct_integers(keys: pa.ChunkedArray, rows: int) -> npt.NDArray[np.int64] | None:
    """Returns the keys as numbers, if they are different integers, and dense enough for a table of so many rows."""
    numbers = integers_of(keys)
    if numbers is None or not len(numbers):
        return None
    low, high = int(numbers.min()), int(numbers.max()) + 1
    if high - low > _SPARSE * (rows + len(numbers)) + 1024:
        return None
    places, order = numbers - low, np.arange(len(numbers))
    last = np.empty(high - low, dtype=np.int64)
    last[places] = order
    return numbers if bool((last[places] == order).all()) else None
