"""Describes files that Spark's own reader reads: an ability of sources.

Spark reads Parquet in its own process, where no row passes Python. It does so where its values are known to be ours,
which the footer of each file tells (``formats/parquet_footers.py``).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from millpond.connectors.source import Source, Split
from millpond.errors import Error
from millpond.formats.parquet_footers import Differs


@dataclass(frozen=True, slots=True)
class FileRange:
    """Describes the row groups of a Parquet file that are in some of its bytes: how many, and which rows of the file
    they have. ``first_seq`` is the sequence number of the first row of the file; the others have the next ones.
    """

    path: str
    size: int
    bytes: range
    groups: int
    rows: range
    first_seq: int


class ReadBySpark(Source):
    """Declares that Spark's own reader may read splits."""

    @abstractmethod
    def ranges(self, splits: Sequence[Split], columns: Sequence[str]) -> list[FileRange]:
        """Returns where the rows of each split are, if Spark returns these columns of them as ``read`` does, and no
        record of them as one that cannot be read. Raises Differs if that is not known.
        """

    @abstractmethod
    def check_unchanged(self, splits: Sequence[Split]) -> None:
        """Raises SourceChanged if the files of splits are not those that the splits were made of."""


def ranges_of(source: Source, splits: Sequence[Split], columns: Sequence[str]) -> list[FileRange]:
    """Returns where Spark's own reader reads the rows of splits. Raises Differs if it may not."""
    if not isinstance(source, ReadBySpark):
        raise Differs(f"it is read at {source.kind}://")
    return source.ranges(splits, columns)


def reader_of(source: Source, columns: Sequence[str] | None) -> str | None:
    """Returns who reads these columns of all that there is now on executors, for people; None if that is not known."""
    try:
        splits = source.splits(None, source.latest(None))
        ranges_of(source, splits, source.schema().names if columns is None else columns)
    except Differs as why:
        return f"our reader, in Python ({why})"
    except Error:
        return None
    return "Spark's own reader"


def check_unchanged(source: Source, splits: Sequence[Split]) -> None:
    """Raises SourceChanged if files have changed since splits were made of them."""
    if isinstance(source, ReadBySpark):
        source.check_unchanged(splits)
