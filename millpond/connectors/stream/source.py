"""Reads the embedded stream: ``stream:///state/dir?name=s``, whose rows the journal numbers from 0 on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qs, quote, unquote, urlsplit

import pyarrow as pa

from millpond.changelog import CHANGES, FIRST
from millpond.changes import Offset
from millpond.connectors.abilities import Follows, Steps
from millpond.connectors.pinned_files import Pins
from millpond.connectors.retention import Forgets
from millpond.connectors.source import SEQ, Split
from millpond.errors import InvalidOption
from millpond.journal.holds import Hold
from millpond.journal.pinned_files import Pinned, pin
from millpond.journal.segments import Part, file_start, parts, read_part, stream_end, stream_start
from millpond.options import Option
from millpond.types import Schema

_MANY = 20_000
"""Rows of a range that is cut between files."""


@dataclass(frozen=True, slots=True)
class StreamSplit(Split):
    part: Part


def stream_uri(state: Path | str, name: str) -> str:
    """Returns the URI of an embedded stream."""
    return f"stream://{quote(str(Path(state).absolute()))}?name={quote(name, safe='')}"


class StreamSource(Follows, Steps, Forgets, Pins):
    """Reads rows of an embedded stream, from its earliest stored row on, or only later rows."""

    kind: ClassVar[str] = "stream"
    schemes: ClassVar[tuple[str, ...]] = ("stream",)
    staged: ClassVar[bool] = True
    endless: ClassVar[bool] = True
    options: ClassVar[tuple[Option, ...]] = (
        Option(
            "start",
            "choice",
            "where a new query starts: at the earliest row, or with rows that arrive after its start",
            "earliest",
            ("earliest", "latest"),
        ),
    )

    def __init__(self, uri: str, values: Mapping[str, Any], declared: Schema | None):
        super().__init__(uri, values, declared)
        split = urlsplit(uri)
        names = parse_qs(split.query).get("name")
        if declared is None or not names:
            raise InvalidOption(f'"{uri}" needs ?name=… and declared columns')
        self.path = Path(unquote(split.netloc + split.path))
        self.name = names[0]
        self._columns = declared

    def schema(self) -> Schema:
        return self._columns

    def latest(self, start: Offset | None) -> Offset:
        end = stream_end(self.path, self.name)
        return {"seq": max(end, start["seq"]) if start else end}

    def begin(self) -> Offset | None:
        return self.latest(None) if self.values["start"] == "latest" else None

    def splits(self, start: Offset | None, end: Offset) -> list[Split]:
        """Returns the splits. With 'start' = 'latest' there is nothing between None and the first offset."""
        if start is None and self.values["start"] == "latest":
            return []
        return self._splits(start["seq"] if start else 0, end["seq"])

    def _splits(self, first: int, end: int) -> list[Split]:
        if first >= end:
            return []
        return [StreamSplit(part.rows, part.size, part) for part in parts(self.path, self.name, first, end)]

    def pin(
        self, start: Offset | None, end: Offset, *, part: float, most: int | None
    ) -> tuple[Pinned, list[Split]]:
        first = start["seq"] if start else end["seq"] if self.values["start"] == "latest" else 0
        columns = self._columns.arrow()
        files = pin(self.path, self.name, first, end["seq"], columns, part=part, most=most)
        return files, [split for a, b in files.rest for split in self._splits(a, b)]

    def clip(self, start: Offset | None, end: Offset, rows: int) -> Offset:
        """Cuts a range, between two files if there are some, and a changelog between two commits. Rows that are no
        longer stored are skipped at once.
        """
        if start is None and self.values["start"] == "latest":
            return end
        first = max(start["seq"] if start else 0, stream_start(self.path, self.name))
        cut = min(end["seq"], first + rows)
        if rows >= _MANY and cut < end["seq"]:
            cut = file_start(self.path, self.name, first + rows // 2, cut) or cut
        if cut < end["seq"] and self.name.lower().endswith(CHANGES):
            begun = self._begin_of_commit(cut)
            cut = begun if begun > first else cut  # a commit that is too large is cut all the same
        return {"seq": cut}

    def _begin_of_commit(self, number: int) -> int:
        """Returns the number of the first change in a changelog that was committed with this one."""
        for part in parts(self.path, self.name, number, number + 1):
            for batch in read_part(part):
                return int(batch.column(FIRST)[0].as_py())
        return number

    def first(self) -> Offset:
        return {"seq": stream_start(self.path, self.name)}

    def hold(self, start: Offset | None) -> Hold:
        return Hold(self.path, self.name, start["seq"] if start else 0)

    def gap(self, start: Offset | None, end: Offset) -> range:
        """Returns the rows that were removed before they were read. A query without an offset has none: it begins with
        the first row that is kept.
        """
        if start is None:
            return range(0)
        return range(start["seq"], min(end["seq"], stream_start(self.path, self.name)))

    def reached(self, at: Offset | None, end: Offset) -> bool:
        return (at["seq"] if at else 0) >= int(end["seq"])

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        """Yields the rows. A column that was added after a row was sent is NULL there."""
        assert isinstance(split, StreamSplit)
        schema = self._columns.arrow().append(pa.field(SEQ, pa.int64()))
        for batch in read_part(split.part):
            places = {name.lower(): i for i, name in enumerate(batch.schema.names)}
            arrays = [
                batch.column(places[f.name.lower()]).cast(f.type)
                if f.name.lower() in places
                else pa.nulls(batch.num_rows, f.type)
                for f in schema
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)
