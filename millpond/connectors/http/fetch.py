"""Fetches all pages of a response into files; unchanged pages are not fetched again."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from millpond.connectors.http.body import count_rows, settle_body
from millpond.connectors.http.client import Answer, Client
from millpond.connectors.http.pages import Pager
from millpond.errors import BadData, SourceError
from millpond.retry import Issues

_ACCEPT = {"Accept": "application/json, application/x-ndjson, text/csv;q=0.9, */*;q=0.5"}


@dataclass(frozen=True, slots=True)
class Page:
    """Describes a page that was fetched: its request, its identity, and the address of the next one."""

    url: str
    digest: str
    size: int
    etag: str | None
    modified: str | None
    following: str | None = None


Known = Mapping[str, tuple[Page, Path | None]]
"""Pages that were fetched before by their addresses, with their files if these are stored."""


class Fetcher:
    def __init__(self, uri: str, values: Mapping[str, Any], issues: Issues):
        self._values = values
        self._client = Client(uri, values, issues)
        self.url = self._client.url
        self._pager = Pager(self.url, values)
        self._rows_path = tuple(values["rows.path"].split(".")) if values["rows.path"] else ()

    @property
    def first(self) -> str:
        """Returns the address of the first page."""
        return self._pager.first()

    def fetch(self, known: Known, folder: Path) -> list[Page] | None:
        """Fetches the pages, their files in ``folder``; returns None if the only page has not changed."""
        pages: list[Page] = []
        url: str | None = self.first
        left: int = self._values["max.size"]
        while url is not None:
            if len(pages) >= self._values["paging.max.pages"]:
                raise SourceError(
                    f'"{self.url}" has more than {len(pages)} pages',
                    hint="allow more with 'paging.max.pages'",
                )
            if any(page.url == url for page in pages):
                raise SourceError(f'the pages of "{self.url}" go in a circle: "{url}" comes twice')
            page = self._page(url, known.get(url), folder / f"{len(pages):06d}", left)
            if page is None:
                return None
            pages.append(page)
            left -= page.size
            url = page.following
        return pages

    def end_with(self, stop: threading.Event) -> None:
        """Cancels fetches of this thread when the event is set."""
        self._client.end_with(stop)

    def close(self) -> None:
        self._client.close()

    def _page(self, url: str, before: tuple[Page, Path | None] | None, raw: Path, left: int) -> Page | None:
        headers = dict(_ACCEPT)
        if before is not None and before[0].following is None and self._pager.reads_header:
            before = None
        if before is not None and before[0].etag:
            headers["If-None-Match"] = before[0].etag
        if before is not None and before[0].modified:
            headers["If-Modified-Since"] = before[0].modified
        with open(raw, "w+b") as file:
            answer = self._client.get(url, headers, file, left)
        if not answer.unchanged:
            return self._settle(url, answer, raw, left)
        raw.unlink()
        if before is None or headers == _ACCEPT:
            raise SourceError(f'"{url}" answers 304, which is no answer to this request')
        page, kept = before
        if kept is None:
            return None
        os.link(kept, raw.with_suffix(kept.suffix))
        return page

    def _settle(self, url: str, answer: Answer, raw: Path, left: int) -> Page:
        body = settle_body(
            raw,
            answer,
            self._values,
            self._rows_path,
            left,
            whole=self._pager.reads_body,
            first=url == self.first,
        )

        def rows() -> int:
            with named(body.path, answer.url):
                return count_rows(body, self._values)

        following = self._pager.following(url, answer, body.text, rows)
        if following is not None:
            self._client.check_allowed(following, answer.url)
        return Page(url, body.digest, body.size, answer.etag, answer.modified, following)


def digest_of(pages: Iterable[Page]) -> str:
    """Returns the digest of all pages together."""
    return hashlib.sha256("".join(page.digest for page in pages).encode()).hexdigest()[:32]


@contextmanager
def named(path: Path, url: str) -> Iterator[None]:
    """Makes errors of a format name the address instead of the file that contains its response."""
    try:
        yield
    except BadData as error:
        message = error.message.replace(f'file "{path}"', f'the answer of "{url}"')
        raise BadData(message, hint=error.hint, place=error.place) from None
