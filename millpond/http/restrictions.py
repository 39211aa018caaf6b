"""Restricts what a statement of a client may name and call: URIs that the server's settings allow, and functions
whose values depend on nothing but their arguments, time and chance."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any
from urllib.parse import unquote

from millpond.connectors.sink import every_sink, find_sink
from millpond.connectors.source import every_source
from millpond.errors import Place
from millpond.http.failures import Refused
from millpond.query.conditions import Condition
from millpond.sql.calls import calls_in
from millpond.sql.functions import FOR_CLIENTS, function_classes
from millpond.sql.growth import check_growth
from millpond.sql.options import COMMON_TABLE_OPTIONS, RUNNING_OPTIONS, STREAM_OPTIONS, TTL_OPTIONS
from millpond.sql.outside import Named, named_outside
from millpond.sql.patterns import check_patterns, has_patterns
from millpond.sql.spans import own_span
from millpond.sql.statements import Statement
from millpond.sql.userfunctions import UserFunction, offered_function
from millpond.sql.windowing import WINDOW_OPTIONS
from millpond.tables.registry import backend_names, every_backend, find_backend

Locate = Callable[[int, int], Place]

_PLAIN_KINDS = ("bool", "int", "duration", "size", "duration or size", "choice")
_PLAIN_TEXTS = frozenset(
    """
    primary.key ttl.column query.name format delimiter quote escape null.value auto.offset.reset
    topic.retry.multiplier table
    """.split()
)
"""Text options that name nothing outside. All others do, or may."""
_AFTER = ("/", "?", "#")
_WAYS_OUT = ("..", "%2e", "%2f", "%5c", "\\", "\0")
"""What can make a path lead to a different place than it seems to."""


@cache
def _inside() -> frozenset[str]:
    """Returns the names of Millpond's backends whose rows are here, unless an option says otherwise."""
    return frozenset(name for name in backend_names() if find_backend(name).inside)


class Allowed:
    """Contains the prefixes of URIs that may be named."""

    def __init__(self, prefixes: Sequence[str]):
        self._prefixes = tuple(prefixes)

    def check(self, statements: Sequence[Statement]) -> None:
        """Raises Refused for the first thing that may not be named."""
        for statement in statements:
            for named in named_outside(statement):
                if not self._may(named):
                    raise self._refused(named)

    def _may(self, named: Named) -> bool:
        option = named.option
        if option is None:
            written = named.written
            return self.covers(named.text) and (not written or find_sink(named.text).for_clients)
        if option == "extension":
            return named.text.lower() in _inside() or self.covers(f"{named.text.lower()}://")
        if option in harmless() or option.partition(".")[2] in harmless() or option.startswith("default."):
            return True
        return self.covers(named.text)

    def covers(self, uri: str) -> bool:
        """Returns whether a prefix allows the URI. A path with dots is refused and links are followed, so that it
        cannot lead elsewhere; a prefix ends at the end of a name.
        """
        scheme, mark, rest = uri.partition("://")
        if not mark or any(c in rest.lower() for c in _WAYS_OUT):
            return False
        if scheme.lower() == "file":  # whichever of the two names finds it
            uris = ["file://" + _real(path) for path in (rest, unquote(rest))]
        else:
            uris = [f"{scheme.lower()}://{rest}"]
        return all(any(_begins(uri, prefix) for prefix in self._prefixes) for uri in uris)

    def _refused(self, named: Named) -> Refused:
        what = f'"{named.text}"' if named.option is None else f'the option "{named.option}"'
        listed = ", ".join(self._prefixes) or "nothing"
        if named.written and self.covers(named.text):
            return _not_written(named)
        error = Refused(
            403,
            "not_allowed",
            f"over HTTP a statement may not name {what}: the server allows {listed}",
            hint="start the server with --http-allow and the beginning of the URI, or put the statement into the SQL "
            "file",
        )
        error.place = named.place
        return error


def _not_written(named: Named) -> Refused:
    """Returns the error for a URI that clients may read, and not write."""
    error = Refused(
        403,
        "not_allowed",
        f'over HTTP a statement may not write to "{named.text}": what the server allows is to read it',
        hint="put the statement into the SQL file",
    )
    error.place = named.place
    return error


class Calls:
    """Contains the functions that may be called: an allow-list by class, and the public functions of the app."""

    def __init__(self, own: Mapping[str, UserFunction]):
        self._own = own

    def check(self, value: Any, locate: Locate) -> None:
        """Raises Refused for the first call, in statements or expressions, that clients may not make. Unknown names are
        left to the checker.
        """
        classes = function_classes()
        for name, node in calls_in(value):
            kind, own = classes.get(name), self._own.get(name)
            if kind is None and own is None:
                own = offered_function(name)
            if kind in FOR_CLIENTS or (own is not None and own.public) or (kind is None and own is None):
                continue
            if own is not None:
                whose = "of the app" if name in self._own else "of another package"
                message = f'function "{own.name}" {whose} is not for HTTP clients'
                hint = "it is if the app says so: @app.function(public=True)"
                if name not in self._own:
                    hint = "it is if its package says so: PythonFunction(…, public=True)"
            else:
                message = f'over HTTP function "{name}" is not called: its class is {kind}'
                hint = "clients call functions of the classes pure and volatile: SHOW FUNCTIONS"
            error = Refused(403, "not_allowed", message, hint=hint)
            span = own_span(node)
            error.place = locate(*span) if span is not None else None
            raise error

    def check_condition(self, condition: Condition) -> None:
        """Checks a condition of a client in the same way, before it is evaluated."""
        text, tree = condition.text, condition.filter.tree
        locate = partial(Place.of, text)
        self.check(tree, locate)
        check_growth(tree, locate)
        if has_patterns(tree) and condition.asks_spark:
            check_patterns(tree, locate)


def _begins(uri: str, prefix: str) -> bool:
    scheme, _, rest = prefix.partition("://")
    if scheme.lower() == "file":
        rest = _real(rest) + ("/" if rest.endswith("/") and rest != "/" else "")
    prefix = f"{scheme.lower()}://{rest}"
    if not uri.startswith(prefix):
        return False
    return prefix.endswith("/") or len(uri) == len(prefix) or uri[len(prefix)] in _AFTER


def _real(path: str) -> str:
    """Returns a path, or a pattern, with all links followed."""
    return os.path.realpath(path)


@cache
def harmless() -> frozenset[str]:
    """Returns the names of options that are not text, wherever they are declared, and of the few text options that name
    nothing.
    """
    backends = (backend.options for backend in every_backend())
    declared = [
        *COMMON_TABLE_OPTIONS, *TTL_OPTIONS, *RUNNING_OPTIONS, *STREAM_OPTIONS, *WINDOW_OPTIONS,
        *(o for options in backends for o in options),
        *(o for source in every_source() for o in source.options),
        *(o for sink in every_sink() for o in sink.options),
    ]  # fmt: skip
    plain = {n.lower() for o in declared if o.kind in _PLAIN_KINDS for n in (o.name, *o.aliases)}
    texts = {n.lower() for o in declared if o.kind not in _PLAIN_KINDS for n in (o.name, *o.aliases)}
    return frozenset(plain - texts) | _PLAIN_TEXTS
