"""Reads what a source returns to a load, chunk by chunk."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa

from millpond.connectors import abilities
from millpond.connectors.prefetch import side_by_side
from millpond.connectors.source import BYTES_OF_A_ROW, SEQ, Source, Split
from millpond.formats.base import is_packed
from millpond.formats.read_records import none_rejected
from millpond.loading.progress import Progress
from millpond.records.neighbours import neighbours

CHUNK = 131_072
"""Rows of a chunk."""
_PACKED = 8
"""How many times as large a compressed file is assumed to become."""
_HUGE = 4
"""How many times as large as a group a single split may be."""
Splits = Mapping[str, Sequence[Split]]
"""What to read of each source, by view."""


class Answer(NamedTuple):
    """Contains rows, the error records, and the bytes and files read so far."""

    rows: pa.Table
    rejected: pa.Table
    read: int
    files: int


class Groups(NamedTuple):
    """Says how splits are grouped to chunks for executors: by rows, where these are known, and bytes. The same numbers
    make the same chunks.
    """

    rows: int
    bytes: int

    def is_huge(self, split: Split) -> bool:
        """Returns whether a single split is too large to be a chunk."""
        return _rows(split) > _HUGE * self.rows or _bytes(split) > _HUGE * self.bytes


def _rows(split: Split) -> float:
    return split.rows if split.rows is not None else _bytes(split) / BYTES_OF_A_ROW


def _bytes(split: Split) -> int:
    packed = split.file is not None and is_packed(split.file)
    return (split.bytes or 0) * (_PACKED if packed else 1)


def grouped(splits: Sequence[Split], groups: Groups) -> list[list[Split]]:
    """Returns neighbouring splits in groups, each of which is a chunk."""
    return neighbours(splits, lambda split: (_rows(split), _bytes(split)), groups)


def size_of(splits: Splits) -> tuple[float, int]:
    """Returns the rows, estimated from bytes where they are not known, and the bytes."""
    every = [split for some in splits.values() for split in some]
    bytes_ = sum(s.bytes or 0 for s in every)
    return sum(s.about for s in every), bytes_


def sizes_of(splits: Splits) -> Progress:
    """Returns how much there is to read, if that is known before."""
    every = [split for some in splits.values() for split in some]
    files = {s.file for s in every}
    known = None if None in files else len(files)
    return Progress("", 0, 0, _sum(s.bytes for s in every), _sum(s.rows for s in every), of_files=known)


def _sum(numbers: Iterable[int | None]) -> int | None:
    found = list(numbers)
    return None if None in found else sum(n for n in found if n is not None)


def chunks_of(
    source: Source, splits: Sequence[Split], sifts: bool, *, numbered: bool = False
) -> Iterator[Answer]:
    """Yields chunks of the same rows each time, ``numbered`` with their sequence numbers. With ``sifts`` records that
    cannot be read become error records.
    """
    schema = source.schema().arrow()
    schema = schema.append(pa.field(SEQ, pa.int64())) if numbered else schema
    collected: list[pa.RecordBatch] = []
    rejected = [none_rejected()]
    rows = read = 0
    files: dict[str | None, None] = {}

    def answer() -> Answer:
        return Answer(pa.Table.from_batches(collected, schema), pa.concat_tables(rejected), read, len(files))

    if (
        abilities.parallel(source) > 1 and len(splits) > 1
    ):  # in any order: such a reader never reads the same again
        every = side_by_side([_batches(source, s, sifts) for s in splits], 2, abilities.parallel(source))
        parts: list[tuple[Split, Iterator[tuple[pa.RecordBatch, pa.Table]]]] = [(splits[0], every)]
    else:
        parts = [(split, _batches(source, split, sifts)) for split in splits]
    for split, batches in parts:
        before = read
        files[split.file] = None
        for batch, bad in batches:
            collected.append(batch.select(schema.names))  # another reader may have found more columns
            rejected.append(bad)
            rows += batch.num_rows
            # How much of the file a batch was is not known: its size in memory is used instead.
            read = min(read + batch.nbytes, before + (split.bytes or 0))
            if rows >= CHUNK:
                yield answer()
                collected, rejected, rows = [], [none_rejected()], 0
        read = before + (split.bytes or 0)
    if collected:
        yield answer()


def _batches(source: Source, split: Split, sifts: bool) -> Iterator[tuple[pa.RecordBatch, pa.Table]]:
    if not sifts:
        return ((batch, none_rejected()) for batch in source.read(split))
    return (
        (part.rows.append_column(SEQ, part.places), part.rejected)
        for part in abilities.receive(source, split)
    )


def rows_of(chunks: Iterator[Answer], rejected: list[pa.Table]) -> Iterator[pa.Table]:
    """Yields the rows; error records are collected."""
    for chunk in chunks:
        rejected.append(chunk.rejected)
        yield chunk.rows
