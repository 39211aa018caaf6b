"""Parses the URI of a database: where it is, what to read there, and options.

``scheme://[login@]host[:port]/DATABASE?table=…``, ``scheme://[login@]host[:port]/DATABASE/TABLE``, and
``scheme://DATABASE/TABLE`` for the host that the options or the environment name. ``sql://`` precedes any SQLAlchemy
URL.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote, unquote, urlsplit

from millpond.errors import InvalidOption, without_passwords
from millpond.options import Option, Setting, find_option, read_options

_PART = re.compile(r"""(?:[^&'"]|'[^']*'|"[^"]*"|['"])+""")


@dataclass(frozen=True, slots=True)
class DatabaseAddress:
    """Describes where a database is, as far as its URI says; ``rest`` are parameters that are not options
    of Millpond.
    """

    host: str | None = None
    port: int | None = None
    database: str | None = None
    username: str | None = None
    password: str | None = None
    table: str | None = None
    rest: tuple[tuple[str, str], ...] = ()


def split_query(uri: str) -> tuple[str, list[tuple[str, str]]]:
    """Splits a URI from its parameters. A value in quotes is used as it is, any other is unquoted."""
    before, _, query = uri.partition("?")
    found = []
    for part in _PART.findall(query):
        name, _, value = part.partition("=")
        if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"" and value[0] not in value[1:-1]:
            value = value[1:-1]
        else:
            value = unquote(value)
        found.append((unquote(name), value))
    return before, found


def options_in(uri: str, declared: Sequence[Option]) -> tuple[dict[str, object], tuple[tuple[str, str], ...]]:
    """Returns the options that a URI sets, by name, and its other parameters."""
    before, parameters = split_query(uri)
    ours = [Setting(name, value) for name, value in parameters if find_option(declared, name) is not None]
    rest = tuple(p for p in parameters if find_option(declared, p[0]) is None)
    values = read_options(f'"{without_passwords(before)}"', declared, ours)
    named = {option.name for s in ours if (option := find_option(declared, s.name)) is not None}
    return {name: value for name, value in values.items() if name in named}, rest


def query_without(uri: str, declared: Sequence[Option]) -> str:
    """Returns the parameters of a URI that are not these options, as they are written there, after ``?``; nothing
    without any. A value in quotes is encoded.
    """
    kept = []
    for part in _PART.findall(uri.partition("?")[2]):
        _, ((name, value),) = split_query(f"?{part}")
        if find_option(declared, name) is None:
            written = part.partition("=")[2]
            kept.append(part if written[:1] not in ("'", '"') else f"{quote(name)}={quote(value, safe='')}")
    return f"?{'&'.join(kept)}" if kept else ""


def address_of(uri: str, *, names_rows: bool) -> DatabaseAddress:
    """Returns the place of a database with a host; ``names_rows`` says whether the options name a table or a query."""
    before, _ = split_query(uri)
    scheme = before.partition(":")[0]
    try:
        parts = urlsplit(before)
        port = parts.port
    except ValueError as error:
        raise InvalidOption(
            f'"{without_passwords(before)}" is no address: {error}', hint=_forms(scheme)
        ) from None
    segments = [unquote(s) for s in parts.path.split("/") if s]
    host = parts.hostname or None
    username, password = (unquote(p) if p else None for p in (parts.username, parts.password))
    if len(segments) > 2:
        raise InvalidOption(f'"{without_passwords(before)}" has too many parts', hint=_forms(scheme))
    if len(segments) == 2:
        if names_rows:
            raise InvalidOption(
                f'"{without_passwords(before)}" names the table "{segments[1]}", and the options name rows too',
                hint="leave one of them out",
            )
        return DatabaseAddress(host, port, segments[0], username, password, segments[1])
    if names_rows or not segments:
        if not names_rows and host is None:
            raise InvalidOption(f'"{without_passwords(uri)}" names no table', hint=_forms(scheme))
        return DatabaseAddress(host, port, segments[0] if segments else None, username, password)
    if port is not None or username is not None:
        raise InvalidOption(
            f'"{without_passwords(before)}" names the database "{segments[0]}" and no table',
            hint=_forms(scheme),
        )
    # One segment, and nothing that only a host has: DATABASE/TABLE. Its case is preserved.
    return DatabaseAddress(None, None, unquote(parts.netloc), None, None, segments[0])


def _forms(scheme: str) -> str:
    return f"{scheme}://host:port/database?table=…, {scheme}://host:port/database/table or {scheme}://database/table"
