"""Iterates over rows, with ``for`` and with ``async for``."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from itertools import chain
from typing import Any, Generic, TypeVar

import pyarrow as pa

from millpond.records import to_rows

T = TypeVar("T")
BATCH_ROWS = 16_384


class Stream(Generic[T]):
    """Iterates over the rows of one snapshot, as records or as Arrow batches. It can be iterated repeatedly.

    ``async for`` gives other tasks a turn after each batch.
    """

    def __init__(
        self, rows: Callable[[], pa.Table], of: Callable[[pa.RecordBatch], list[T]], batch_rows: int
    ):
        self._rows = rows
        self._of = of
        self._batch_rows = batch_rows

    def __iter__(self) -> Iterator[T]:
        return chain.from_iterable(map(self._of, self._batches()))

    async def __aiter__(self) -> AsyncIterator[T]:
        import asyncio  # 20 ms that few programs need

        for batch in self._batches():
            for item in self._of(batch):
                yield item
            await asyncio.sleep(0)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        return iter(self._rows().to_batches(max_chunksize=self._batch_rows))


def records(rows: Callable[[], pa.Table]) -> Stream[dict[str, Any]]:
    return Stream(rows, lambda batch: to_rows(pa.Table.from_batches([batch])), BATCH_ROWS)


def batches(rows: Callable[[], pa.Table], batch_rows: int) -> Stream[pa.RecordBatch]:
    return Stream(rows, lambda batch: [batch], batch_rows)
