"""Finds the rows of a batch that cannot be processed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from millpond.connectors.source import SEQ
from millpond.errors import DataError
from millpond.streaming.on_miss import divided, once

MOST = 1_000
"""Rows of a batch that may go to the error table at once. With more of them the batch is applied in halves, so that its
good rows are committed meanwhile, and a commit does not take long.
"""

Try = Callable[[pa.Table], DataError | None]
"""Returns what is wrong with these rows of the batch, evaluated alone."""


class TooMany(Exception):
    """Reports that there are more bad rows than allowed."""


def find_poison(
    rows: pa.Table, attempt: Try, *, in_order: bool, most: int | None = None
) -> list[tuple[int, DataError]]:
    """Returns the positions of the rows that must be left out so that the others can be processed, each with the
    reason. Raises TooMany if they are more than ``most``.

    Independent rows are found by halving. If the effect of a row depends on those before it (``in_order``), and if only
    several together fail (a sum that overflows), it is the first row with which the rows up to it fail.
    """
    bad = [] if in_order else _halved(rows, attempt, most)
    left = [place for place, _ in bad]
    while True:
        kept = _without(rows.num_rows, left)
        reason = attempt(rows.take(pa.array(kept)))
        if reason is None:
            return sorted(bad, key=lambda found: found[0])
        low, high = 0, len(kept)  # the first `low` of them work, the first `high` do not
        while high - low > 1:
            middle = (low + high) // 2
            failed = attempt(rows.take(pa.array(kept[:middle])))
            low, high, reason = (middle, high, reason) if failed is None else (low, middle, failed)
        bad.append((int(kept[high - 1]), reason))
        left.append(int(kept[high - 1]))
        if most is not None and len(bad) > most:
            raise TooMany


def _halved(rows: pa.Table, attempt: Try, most: int | None) -> list[tuple[int, DataError]]:
    bad: list[tuple[int, DataError]] = []
    parts = [(0, rows.num_rows)]
    while parts:
        start, end = parts.pop()
        reason = attempt(rows.slice(start, end - start)) if end > start else None
        if reason is None:
            continue
        if end - start == 1:
            bad.append((start, reason))
            if most is not None and len(bad) > most:
                raise TooMany
        else:
            middle = (start + end) // 2
            parts += [(start, middle), (middle, end)]
    return bad


def _without(count: int, left_out: list[int]) -> np.ndarray:
    kept = np.ones(count, dtype=bool)
    kept[left_out] = False
    return np.flatnonzero(kept)


def without_poison(
    rows: pa.Table, bad: list[tuple[int, DataError]]
) -> tuple[pa.Table, pa.Table, pa.ChunkedArray]:
    """Returns the rows without those at the positions of ``bad``, these, and the reason of each."""
    seqs = rows[SEQ].take(pa.array([place for place, _ in bad], pa.int64()))
    reasons = pa.array([reason.message for _, reason in bad], pa.string())
    return divided(rows, once(pa.table({"seq": seqs, "reason": reasons})))
