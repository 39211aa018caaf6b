"""Declares that Spark's own reader reads rows of a source from files of the app."""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path
from typing import Protocol

from millpond.changes import Offset
from millpond.connectors.source import Source, Split


class ParquetFiles(Protocol):
    """Contains files that Spark's own reader reads: each is in a folder that names the sequence number of its first row
    as a ``column``. If they have other rows than those of the range, ``bounds`` are its sequence numbers. The files
    stay until they are closed.
    """

    folder: Path | None
    column: str
    bounds: tuple[int, int] | None

    def close(self) -> None: ...


class Pins(Source):
    """Declares that Spark reads rows from Parquet files of the app."""

    @property
    def pins(self) -> bool:
        """Returns whether the files contain its rows."""
        return True

    @abstractmethod
    def pin(
        self, start: Offset | None, end: Offset, *, part: float, most: int | None
    ) -> tuple[ParquetFiles, list[Split]]:
        """Returns the files with rows of a range, and splits of the rows that are not in files. At least this part of
        the rows of each file is in the range; there are no files if they are more than ``most``.
        """
