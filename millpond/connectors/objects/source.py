"""Reads object stores: S3, and others that fsspec has a file system for. Objects are read like files."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

from millpond.connectors.files.listed_source import FOLLOWING_OPTIONS, FORMAT_OPTIONS, ListedSource
from millpond.connectors.files.listing import FileSet
from millpond.connectors.objects.queue import notifications
from millpond.connectors.objects.store import STORE_OPTIONS, ObjectFiles, Store, is_pattern
from millpond.errors import FileMissing, InvalidOption
from millpond.formats.base import Format, find_format, has_known_suffix
from millpond.options import Option
from millpond.retry import Patience
from millpond.types import Schema


class ObjectSource(ListedSource):
    """Lists objects, reads them, then those that are new or have changed."""

    kind: ClassVar[str] = "objects"
    schemes: ClassVar[tuple[str, ...]] = ("s3", "s3a", "gs", "gcs", "az", "abfs", "abfss")
    options: ClassVar[tuple[Option, ...]] = (
        *FORMAT_OPTIONS,
        *STORE_OPTIONS,
        Option(
            "watch",
            "bool",
            "whether to follow new and changed objects: a table and a stream do unless it is "
            "'false', a query does if it is 'true'",
        ),
        Option("watch.interval", "duration", "how often to list them", 30.0),
        Option(
            "queue",
            "text",
            "the URL of an SQS queue with notifications of new objects; each triggers a listing",
        ),
        Option("file.wait.timeout", "duration", "how long to wait if there is no object", 0.0),
        Option("file.retry.interval", "duration", "how often to check for it meanwhile", 2.0),
        *FOLLOWING_OPTIONS,
    )

    def __init__(self, uri: str, values: Mapping[str, Any], declared: Schema | None):
        super().__init__(uri, values, declared)
        scheme, _, self.path = uri.partition("://")
        self.path = self.path.rstrip("/")
        if not self.path:
            raise InvalidOption(f'"{uri}" names no bucket', hint="s3://bucket/prefix/*.parquet")
        self._store = Store(scheme.lower(), self.values)
        if self.values["format"] is not None or has_known_suffix(self.path):
            find_format(self.path, self.values["format"])(self.values)
        if self.values["queue"] and not scheme.lower().startswith("s3"):
            raise InvalidOption(
                'option "queue" is for s3:// only',
                hint="leave it out: 'watch.interval' says how often to list",
            )

    @property
    def files(self) -> FileSet:
        return ObjectFiles(self._store, self.path, any_suffix=self.values["format"] is not None)

    @property
    def announces(self) -> bool:
        return bool(self.values["queue"])

    @property
    def interval(self) -> float:
        return max(float(self.values["watch.interval"]), 0.05)

    def changes(self, stop: threading.Event) -> Iterator[None]:
        if self.values["queue"]:
            yield from notifications(self.values, self.interval, stop)
        while not stop.wait(self.interval):
            yield

    def _format(self, path: str) -> Format:
        return find_format(path, self.values["format"])(self.values, self._store.arrow)

    @contextmanager
    def reading(self, path: str) -> Iterator[None]:
        with self._store.asking(path):
            yield

    def _there(self) -> list[str]:
        """Returns the objects, and waits for them if there are none; raises FileMissing when the time is over."""
        patience = Patience(
            self.values["file.wait.timeout"], max(self.values["file.retry.interval"], 0.05), "fixed"
        )
        return patience.wait_for(self._some, on=(FileMissing,), issues=self.issues)

    def _some(self) -> list[str]:
        found = [seen.path for seen in self.files.seen()]
        if not found:
            raise FileMissing(
                f'no object matches "{self.uri}"'
                if is_pattern(self.path)
                else f'there is no object "{self.uri}"',
                hint="check bucket and path; or wait for it: WITH ('file.wait.timeout' = '30s'); "
                "for a pattern, make sure that matching objects will arrive",
            )
        return found
