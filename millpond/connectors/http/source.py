"""Reads the rows that a GET returns, in one page or many.

A response cannot be requested twice. So what was fetched is stored, in files, and an offset names one version of it: by
a digest of its rows, with what the server needs to decide whether there is a newer one (ETag, Last-Modified).
"""

from __future__ import annotations

import hashlib
import shutil
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from millpond.changes import Offset
from millpond.connectors.abilities import Follows, Rejects
from millpond.connectors.drift import DriftingSource
from millpond.connectors.http.client import CLIENT_OPTIONS
from millpond.connectors.http.fetch import Fetcher, Known, Page, digest_of, named
from millpond.connectors.http.pages import PAGING_OPTIONS
from millpond.connectors.http.spool import Spool
from millpond.connectors.source import Split, with_seq
from millpond.errors import InvalidOption, SourceChanged, SourceEmpty
from millpond.formats.base import Format, Piece, find_format
from millpond.formats.csvrecords import QUOTING_OPTIONS
from millpond.formats.merge import merge_schemas
from millpond.formats.read_records import Received
from millpond.options import Option
from millpond.types import Schema

PAGES_TO_DISCOVER = 8
INTERVAL = 60.0
"""Default seconds between two requests."""
FRESH = 10.0
"""Seconds for which the response that was fetched to discover the columns is current."""


@dataclass(frozen=True, slots=True)
class HttpSplit(Split):
    """Describes a page in a file; ``seq`` is the number of its first row."""

    path: str
    seq: int


class HttpSource(DriftingSource, Follows, Rejects):
    """Reads what a GET returns."""

    kind: ClassVar[str] = "http"
    schemes: ClassVar[tuple[str, ...]] = ("http", "https")
    staged: ClassVar[bool] = True
    options: ClassVar[tuple[Option, ...]] = (
        Option(
            "format",
            "text",
            "json, jsonl, csv, parquet, …; by default the content type of the response decides, or the URL",
        ),
        Option(
            "rows.path",
            "text",
            "the path of the rows in the JSON, such as data.items; by default the whole document",
        ),
        Option(
            "poll.interval",
            "duration",
            "how often to poll; by default a table polls every minute, and a query does not",
        ),
        *PAGING_OPTIONS,
        *CLIENT_OPTIONS,
        Option("header", "bool", "whether the first row of CSV contains the column names", True),
        Option(
            "delimiter",
            "text",
            "the separator of values in CSV; by default a comma, or a tab if the content type says so",
        ),
        *QUOTING_OPTIONS,
    )

    def __init__(self, uri: str, values: Mapping[str, Any], declared: Schema | None):
        super().__init__(uri, values, declared)
        named = self.values["format"]
        if named is not None and find_format("", named).name != "json" and self.values["rows.path"]:
            raise InvalidOption('option "rows.path" is for JSON only', hint="leave it out")
        self._fetcher = Fetcher(uri, self.values, self.issues)
        self.url = self._fetcher.url
        """The address without a login."""
        self._spool = Spool()
        self._pages: dict[str, list[Page]] = {}
        self._newest: Offset | None = None
        self._fetched: tuple[Offset, float] | None = None
        """What was fetched to discover the columns, and when: the first request for the latest offset gets it."""
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k not in ("_lock", "_fetcher")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = threading.Lock()
        self._fetcher = Fetcher(self.uri, self.values, self.issues)

    @property
    def address(self) -> str:
        """Returns the address. What is requested may contain secrets, so a digest identifies it."""
        asked = hashlib.sha256(repr((self.uri, self.values["rows.path"])).encode()).hexdigest()
        return f"{self.url.partition('?')[0]}#{asked[:12]}"

    @property
    def follows(self) -> bool:
        return True

    @property
    def runs(self) -> bool:
        return self.values["poll.interval"] is not None

    @property
    def pace(self) -> float:
        return max(self.values["poll.interval"] or INTERVAL, 0.01)

    def end_with(self, stop: threading.Event) -> None:
        self._fetcher.end_with(stop)

    def changes(self, stop: threading.Event) -> Iterator[None]:
        self.end_with(stop)
        while not stop.wait(self.pace):
            yield

    @property
    def guesses(self) -> bool:
        return self.declared is None

    def _discover(self) -> Schema:
        """Discovers the columns from the first pages."""
        with self._lock:
            if self._newest is None:
                self._fetched = self._fetch(None), time.monotonic()
        assert self._newest is not None
        found = Schema(())
        for split in self.splits(None, self._newest)[:PAGES_TO_DISCOVER]:
            assert isinstance(split, HttpSplit)
            with named(Path(split.path), self.url):
                found = merge_schemas(found, self._format(split).discover(split.path))
        if not len(found):
            raise SourceEmpty(
                f'"{self.url}" answers no rows: its columns cannot be discovered', hint="declare the columns"
            )
        return found

    def _fresh(self, split: Split) -> Schema:
        assert isinstance(split, HttpSplit)
        return self._format(split).fresh(split.path, self.schema(), Piece())

    def latest(self, start: Offset | None) -> Offset:
        """Queries the server. Returns ``start`` itself if nothing has changed."""
        with self._lock:
            fetched, self._fetched = self._fetched, None
            if start is None and fetched is not None and time.monotonic() - fetched[1] < FRESH:
                return fetched[0]
            return self._fetch(start)

    def poll(self, start: Offset | None) -> Offset:
        """Returns the last response, until it is time for another request."""
        noted = self._spool.noted()
        if start is None or noted is None:
            return self.latest(start)
        at, newest = noted
        if newest["version"] != start["version"]:
            return {**newest, "first": start["first"] + start["bytes"]}
        return start if time.time() - at < self.pace else self.latest(start)

    def splits(self, start: Offset | None, end: Offset) -> list[Split]:
        """Returns splits of all rows of the version that ``end`` names, unless ``start`` names it too."""
        if self.reached(start, end):
            return []
        files = self._spool.files(end["version"])
        if files is None:
            with self._lock:
                self._fetch(None)
            files = self._spool.files(end["version"])
        if files is None:
            raise SourceChanged(f'"{self.url}" answers otherwise by now')
        found: list[Split] = []
        seq: int = end["first"]
        for path in files:
            size = path.stat().st_size
            found.append(HttpSplit(None, size, str(path), seq))
            seq += size  # No page has more rows than bytes.
        return found

    def replaced(self, start: Offset, end: Offset) -> bool:
        return bool(start["version"] != end["version"])

    def settled(self, at: Offset) -> bool:
        """Returns whether no later offset is known, without a request: that is done once in an interval."""
        return self._newest is None or self.reached(at, self._newest)

    def reached(self, at: Offset | None, end: Offset) -> bool:
        return at is not None and bool(at["version"] == end["version"])

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        assert isinstance(split, HttpSplit)
        seq = split.seq
        schema = self.schema()
        with named(Path(split.path), self.url):
            try:
                for batch in self._format(split).read(split.path, schema, declared=self.declared is not None):
                    yield with_seq(batch, seq)
                    seq += batch.num_rows
            except FileNotFoundError:
                raise SourceChanged(f'"{self.url}" answers otherwise by now') from None

    def receive(self, split: Split) -> Iterator[Received]:
        assert isinstance(split, HttpSplit)
        parts = self._format(split).receive(split.path, self.schema(), declared=self.declared is not None)
        with named(Path(split.path), self.url):
            for part in parts:
                reasons = pc.replace_substring(
                    part.rejected["reason"], f'file "{split.path}"', f'the answer of "{self.url}"'
                )
                yield part._replace(rejected=part.rejected.set_column(1, "reason", reasons)).after(split.seq)

    def close(self) -> None:
        self._fetcher.close()
        self._spool.close()
        self._pages.clear()
        self._newest = self._fetched = None

    def _format(self, split: HttpSplit) -> Format:
        return find_format(split.path)(self.values)

    def _fetch(self, start: Offset | None) -> Offset:
        """Fetches the current version of the server: returns ``start`` if it is that one. Called with the lock held."""
        scratch = self._spool.scratch()
        try:
            pages = self._fetcher.fetch(self._known(start), scratch)
            version = digest_of(pages) if pages is not None else None
            if start is not None and version in (None, start["version"]):
                return self._answered(start)
            assert pages is not None and version is not None
            self._spool.keep(scratch, version)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        self._pages = {v: p for v, p in self._pages.items() if self._spool.files(v) is not None}
        self._pages[version] = pages
        found: dict[str, Any] = {
            "version": version,
            "first": start["first"] + start["bytes"] if start is not None else 0,
            "bytes": sum(page.size for page in pages),
        }
        if len(pages) == 1:
            found |= {"etag": pages[0].etag, "modified": pages[0].modified}
        return self._answered(found)

    def _answered(self, at: Offset) -> Offset:
        self._newest = at
        self._spool.note(at)
        return at

    def _known(self, start: Offset | None) -> Known:
        """Returns what the server may report as unchanged."""
        if start is None:
            return {}
        files = self._spool.files(start["version"])
        pages = self._pages.get(start["version"])
        if pages is not None and files is not None:
            return {page.url: (page, file) for page, file in zip(pages, files, strict=True)}
        if "etag" not in start:
            return {}
        url = self._fetcher.first
        return {url: (Page(url, start["version"], start["bytes"], start["etag"], start["modified"]), None)}
