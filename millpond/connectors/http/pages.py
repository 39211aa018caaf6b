"""Finds the address of the next page of a response."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from millpond.connectors.http.client import Answer, joined
from millpond.errors import BadData, InvalidOption
from millpond.formats.jsonpick import NotThere, pick
from millpond.options import Option

_LINK = re.compile(r'<([^>]*)>((?:\s*;\s*[\w*-]+\s*=\s*(?:"[^"]*"|[^\s",;]+))*)')
_REL = re.compile(r';\s*rel\s*=\s*(?:"([^"]*)"|([^\s",;]+))', re.IGNORECASE)
_PARAMS = {"cursor": "cursor", "page": "page", "offset": "offset"}

PAGING_OPTIONS = (
    Option(
        "paging",
        "choice",
        "how to get the next page: by a link or cursor in the response, by page number, or by "
        "the number of rows so far",
        choices=("link", "cursor", "page", "offset"),
    ),
    Option(
        "paging.path",
        "text",
        "the path of the cursor in the JSON, such as meta.next, or of the link if it is not in "
        "the Link header",
    ),
    Option(
        "paging.param",
        "text",
        "the name of the URL parameter; by default cursor, page or offset",
    ),
    Option("paging.start", "int", "the number of the first page (1) or the first offset (0)"),
    Option(
        "paging.size",
        "int",
        "the number of rows in a full page: a smaller page is the last; by default an empty page is",
    ),
    Option("paging.max.pages", "int", "the maximum number of pages; more are an error", 1000),
)


class Pager:
    def __init__(self, url: str, values: Mapping[str, Any]):
        self.url = url
        self.kind: str | None = values["paging"]
        self._path = tuple((values["paging.path"] or "").split(".")) if values["paging.path"] else ()
        self._param = values["paging.param"] or _PARAMS.get(self.kind or "", "")
        self._start = values["paging.start"]
        self._size = values["paging.size"]
        self._check(values)

    def _check(self, values: Mapping[str, Any]) -> None:
        given = [
            n for n in ("paging.path", "paging.param", "paging.start", "paging.size") if values[n] is not None
        ]
        if self.kind is None and given:
            raise InvalidOption(
                f'option "{given[0]}" needs "paging"', hint="'paging' = 'link', 'cursor', 'page' or 'offset'"
            )
        if self.kind == "cursor" and not self._path:
            raise InvalidOption(
                'paging by cursor needs "paging.path"',
                hint="where the answer has the next cursor: 'paging.path' = 'meta.next'",
            )
        allowed = {"link": {"paging.path"}, "cursor": {"paging.path", "paging.param"}}.get(
            self.kind or "", {"paging.param", "paging.start", "paging.size"}
        )
        for name in given:
            if name not in allowed:
                raise InvalidOption(
                    f'option "{name}" has no meaning for paging by {self.kind}',
                    hint=f"known there: {', '.join(sorted(allowed))}",
                )

    @property
    def reads_body(self) -> bool:
        """Returns whether the next page is determined by the JSON of this one."""
        return bool(self._path)

    @property
    def reads_header(self) -> bool:
        """Returns whether the next page is determined by a header, which may come although the body has not changed."""
        return self.kind == "link" and not self._path

    def first(self) -> str:
        if self.kind not in ("page", "offset"):
            return self.url
        if self._param in dict(parse_qsl(urlsplit(self.url).query, keep_blank_values=True)):
            return self.url
        start = self._start if self._start is not None else int(self.kind == "page")
        return with_param(self.url, self._param, str(start))

    def following(self, asked: str, answer: Answer, text: str | None, rows: Callable[[], int]) -> str | None:
        """Returns the address of the next page; None after the last one. ``text`` is the JSON of this one."""
        match self.kind:
            case "link":
                target = (
                    self._link_or_cursor(answer, text)
                    if self._path
                    else next_link(answer.headers.get("link", ""))
                )
                return joined(answer.url, target) if target else None
            case "cursor":
                cursor = self._link_or_cursor(answer, text)
                return with_param(self.url, self._param, cursor) if cursor else None
            case "page" | "offset":
                found = rows()
                if found == 0 or (self._size is not None and found < self._size):
                    return None
                at = dict(parse_qsl(urlsplit(asked).query))[self._param]
                if not at.isdigit():
                    raise InvalidOption(f'"{self._param}={at}" in the address is not a number')
                return with_param(asked, self._param, str(int(at) + (1 if self.kind == "page" else found)))
        return None

    def _link_or_cursor(self, answer: Answer, text: str | None) -> str | None:
        """Returns the link or cursor in the JSON. One that is missing, null, false or empty ends the pages."""
        if text is None:
            raise BadData(f'the answer of "{answer.url}" is not JSON: "paging.path" leads nowhere')
        if not text.strip():
            return None
        try:
            value = pick(text, self._path).value
        except NotThere:
            return None
        except BadData as error:
            raise BadData(f'the answer of "{answer.url}": {error.message}') from None
        if value is None or value is False or value == "":
            return None
        if not isinstance(value, str):
            raise BadData(
                f'the answer of "{answer.url}": "{".".join(self._path)}" is neither text nor a number'
            )
        return str(value)


def with_param(url: str, name: str, value: str) -> str:
    """Returns the address with a parameter, which replaces one of that name."""
    parts = urlsplit(url)
    kept = [(k, v) for k, v in parse_qsl(parts.query, keep_blank_values=True) if k != name]
    return urlunsplit(parts._replace(query=urlencode([*kept, (name, value)])))


def next_link(header: str) -> str | None:
    """Returns the next link of a Link header."""
    for target, parameters in _LINK.findall(header):
        rel = _REL.search(parameters)
        if rel is not None and "next" in (rel[1] or rel[2]).lower().split():
            return str(target)
    return None
