"""Implements the key index for limited memory: recent keys are in a dict, the others on disk.

The keys on disk are in sorted runs; the newest run that contains a key is valid. Runs of about the same size are
merged, so that they stay few. An integer key is searched directly, any other by a 128-bit hash under a secret of the
process, so that no two keys have the same hash.
"""

from __future__ import annotations

import logging
import secrets
import struct
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.records.keys import MISS, NAN, Key, average_size
from millpond.tables._runs import ABSENT, Matrix, Run, merged
from millpond.tables._shelf import Shelf

_SECRET = secrets.token_bytes(32)
_FIRST_ROOM = 1024
_ENTRY = 100
"""Bytes of a dict entry in addition to its key and its slot."""
_INT64 = range(-(2**63), 2**63)

_log = logging.getLogger(__name__)


class ColdKeys:
    """Maps keys to numbers like a dict. One thread changes it, others read: they search the dict first. A key is added
    there before its number changes, and is removed only after it is in a run.
    """

    def __init__(self, shelf: Shelf, budget: int, *, integers: bool):
        self._shelf = shelf
        self._budget = budget
        self._integers = integers
        self._recent: dict[Key, int] = {}
        self._runs: tuple[Run, ...] = ()
        self._room = _FIRST_ROOM

    def get(self, key: Key, default: int = -1) -> int:
        found = self._recent.get(key)
        if found is not None:
            return found
        runs = self._runs
        if not runs:
            return default
        wanted, there = self._codes((key,))
        if not len(there):
            return default
        for run in reversed(runs):
            slot = int(run.find(wanted)[0])
            if slot != ABSENT:
                return slot
        return default

    def find(self, keys: Sequence[Key], default: int) -> npt.NDArray[np.int64]:
        """Returns the number of each key."""
        recent = self._recent
        found = np.fromiter((recent.get(key, ABSENT) for key in keys), np.int64, len(keys))
        runs = self._runs
        left = np.flatnonzero(found == ABSENT)
        if runs and len(left):
            codes, there = self._codes([keys[at] for at in left.tolist()])
            left = left[there]
            order = np.argsort(codes[:, 0], kind="stable")
            codes, left = codes[order], left[order]
            for run in reversed(runs):
                slots = run.find(codes)
                known = slots != ABSENT
                found[left[known]] = slots[known]
                codes, left = codes[~known], left[~known]
        found[found == ABSENT] = default
        return found

    def __setitem__(self, key: Key, slot: int) -> None:
        self._recent[key] = slot
        if len(self._recent) >= self._room:
            self._look()

    def update(self, pairs: Mapping[Key, int] | Iterable[tuple[Key, int]]) -> None:
        for key, slot in pairs.items() if isinstance(pairs, Mapping) else pairs:
            self._recent[key] = slot
            if len(self._recent) >= self._room:
                self._look()

    def _look(self) -> None:
        """Limits the memory of recent keys. A full disk is left to the next write."""
        if self._recent_bytes() <= self._budget:
            self._room = len(self._recent) + max(_FIRST_ROOM, len(self._recent) // 4)
            return
        try:
            self.spill()
        except OSError as e:
            self._room = 2 * len(self._recent)
            _log.warning("keys cannot be spilled: %s", e)

    def spill(self) -> int:
        """Moves the keys to disk; returns the bytes that it frees. Raises OSError, having changed nothing."""
        recent = self._recent
        if not recent:
            return 0
        freed = self._recent_bytes()
        codes, _ = self._codes(list(recent))
        slots = np.fromiter(recent.values(), np.int64, len(recent))
        rows = np.column_stack((codes, slots))
        runs = [*self._runs, Run(self._shelf, [rows[np.argsort(rows[:, 0], kind="stable")]])]
        while len(runs) > 1 and runs[-2].rows <= 2 * runs[-1].rows:
            runs[-2:] = [Run(self._shelf, merged(runs[-2], runs[-1]))]
        self._runs = tuple(runs)
        self._recent = {}  # after the runs: a reader that finds nothing here finds it there
        self._room = _FIRST_ROOM
        return freed

    def renumbered(self, number: npt.NDArray[np.int64]) -> ColdKeys:
        """Returns an index of the slots that have a new number, with these numbers."""
        other = ColdKeys(self._shelf, self._budget, integers=self._integers)
        runs = (Run(self._shelf, _renumbered(run.parts(), number)) for run in self._runs)
        other._runs = tuple(run for run in runs if run.rows)
        slots = np.fromiter(self._recent.values(), np.int64, len(self._recent))
        moved, there = renumber(slots, number)
        other.update(
            (k, s) for k, s, t in zip(self._recent, moved.tolist(), there.tolist(), strict=True) if t
        )
        return other

    def _recent_bytes(self) -> int:
        return sys.getsizeof(self._recent) + len(self._recent) * (_ENTRY + average_size(self._recent))

    def nbytes(self) -> int:
        """Returns the approximate bytes that it uses in memory."""
        return self._recent_bytes() + sum(run.nbytes() for run in self._runs)

    @property
    def spilled_bytes(self) -> int:
        return sum(run.size for run in self._runs)

    def _codes(self, keys: Sequence[Key]) -> tuple[Matrix, npt.NDArray[np.intp]]:
        """Returns the codes of keys in a run, and which of the keys can be in one at all."""
        if self._integers:
            whole = [key if type(key) is int and key in _INT64 else _whole(key) for key in keys]
            there = np.array([at for at, number in enumerate(whole) if number is not None], dtype=np.intp)
            numbers = np.array([number for number in whole if number is not None], dtype=np.int64)
            return numbers.reshape(-1, 1), there
        digests = [_digest(key) for key in keys]
        there = np.array([at for at, digest in enumerate(digests) if digest], dtype=np.intp)
        return np.frombuffer(b"".join(digests), dtype=np.int64).reshape(-1, 2), there


Keys = dict[Key, int] | ColdKeys


def is_integer_key(types: Sequence[pa.DataType | None], null_keys: bool) -> bool:
    """Returns whether a key of these types is searched directly, by its number."""
    return len(types) == 1 and not null_keys and bool(pa.types.is_integer(types[0]))


def renumber(
    slots: npt.NDArray[np.int64], number: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Returns the values of keys when slots have other numbers, and which of them still exist."""
    ended = slots < 0
    moved = number[np.where(ended, -2 - slots, slots)]
    return np.where(ended, -2 - moved, moved), moved >= 0


def _renumbered(parts: Iterable[Matrix], number: npt.NDArray[np.int64]) -> Iterator[Matrix]:
    for part in parts:
        moved, there = renumber(part[:, -1], number)
        yield np.column_stack((part[there, :-1], moved[there]))


def _whole(key: Any) -> int | None:
    """Returns the integer that equals a value."""
    try:
        number, of = key.as_integer_ratio()
    except (AttributeError, OverflowError, ValueError):
        return None
    return int(number) if of == 1 and number in _INT64 else None


def _digest(key: Key) -> bytes:
    """Returns a hash of the key; nothing for one that no index contains."""
    if key is MISS or (type(key) is tuple and MISS in key):
        return b""
    return blake2b(_bytes(key), digest_size=16, key=_SECRET).digest()


def _bytes(key: Any) -> bytes:
    """Returns bytes that are equal when keys are."""
    if type(key) is str:
        return b"s" + key.encode("utf-8", "surrogatepass")
    if key is None:
        return b"n"
    if type(key) is tuple:
        parts = [_bytes(part) for part in key]
        return b"t" + b"".join(struct.pack("<q", len(part)) + part for part in parts)
    if isinstance(key, (bytes, bytearray)):
        return b"b" + bytes(key)
    if key is NAN:
        return b"N"
    try:
        return b"i%d/%d" % key.as_integer_ratio()
    except (AttributeError, OverflowError, ValueError):
        return b"o" + repr(key).encode()
