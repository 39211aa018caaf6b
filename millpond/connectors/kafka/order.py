"""Numbers the messages of a range, the same wherever they are read.

Within a partition the order is that of the offsets, always. Across partitions it is that of the times of messages in a
range of few messages. Of a larger one nobody has all times in one place: partitions take turns there, in proportion to
their messages, which the offsets alone say. Either way the numbers of a range lie in its part of the line of all
messages, and gaps between offsets are gaps between numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millpond.engine_rule import SMALL_ROWS

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Order:
    """Numbers messages from ``first`` on. ``ranges`` are the partitions that have messages, with begin and end;
    ``times`` are the offsets and times of the messages of each, if they count. Picklable.
    """

    first: int
    ranges: Mapping[int, tuple[int, int]]
    times: Mapping[int, tuple[Numbers, Numbers]] | None = field(default=None, repr=False)

    @property
    def wants_times(self) -> bool:
        """Returns whether the order depends on the times of the messages."""
        return len(self.ranges) > 1 and sum(e - b for b, e in self.ranges.values()) <= SMALL_ROWS

    def by_times(self, raw: pa.Table) -> Order:
        """Returns the order by the times of these messages, all of the range."""
        partitions, offsets, milliseconds = (_numbers(raw[n]) for n in ("partition", "offset", "timestamp"))
        times = {}
        for partition, (begin, _) in self.ranges.items():
            here = partitions == partition
            order = np.argsort(offsets[here], kind="stable")
            # A message that is older than the one before it does not go back.
            latest = np.maximum.accumulate(milliseconds[here][order])
            times[partition] = (offsets[here][order] - begin, latest)
        return Order(self.first, self.ranges, times)

    def __call__(self, raw: pa.Table) -> Numbers:
        """Returns the number of each message."""
        partitions, offsets = _numbers(raw["partition"]), _numbers(raw["offset"])
        found = np.zeros(len(partitions), np.int64)
        for partition in np.unique(partitions).tolist():
            here = partitions == partition
            found[here] = self._in_partition(partition, offsets[here] - self.ranges[partition][0])
        return found + self.first

    def _in_partition(self, partition: int, places: Numbers) -> Numbers:
        """Returns the numbers of messages of one partition: their places there, and how many of others are before."""
        begin, end = self.ranges[partition]
        found = places.copy()
        for other, (start, until) in self.ranges.items():
            if other == partition:
                continue
            if self.times is not None:
                own, theirs = self.times[partition], self.times[other]
                when = own[1][np.searchsorted(own[0], places)]
                at = np.searchsorted(theirs[1], when, side="right" if other < partition else "left")
                found += np.append(theirs[0], until - start)[at]
            else:
                # Message i of n comes after j of m if (j + 1/2) / m is less than (i + 1/2) / n.
                ahead = (2 * places + 1) * (until - start)
                before = ahead // (end - begin) if other < partition else -(-ahead // (end - begin)) - 1
                found += (before + 1) // 2
        return found


def _numbers(column: pa.ChunkedArray) -> Numbers:
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64())
    return np.asarray(column.combine_chunks().cast(pa.int64()))
