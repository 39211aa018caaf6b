"""Names running statements: by the name in the text, or by a generated one."""

from __future__ import annotations

import itertools
import re
from collections.abc import Container, Iterable

from millpond.errors import Place, UnknownName, did_you_mean
from millpond.sql.checked import CheckedFold, CheckedInsert, CheckedRunnable
from millpond.sql.identity import identity

FILLS = ("table:", "stream:")
"""The prefix of the names of queries that fill a table or stream of their own."""


def own_query_name(kind: str, name: str) -> str:
    """Returns the name of the query that fills its own table or stream."""
    return f"{kind}:{name}"


def unknown_query(name: str, queries: Iterable[str], place: Place | None = None) -> UnknownName:
    """Returns the error for a name that no query has."""
    known = sorted(set(queries))
    short = [query.partition(":")[2] if query.startswith(FILLS) else query for query in known]
    listed = f"queries: {', '.join(short)}" if short else "there is no running query"
    hint = did_you_mean(name, [*short, *known], listed)
    return UnknownName(f'there is no query "{name}"', hint=hint, place=place)


def made_name(checked: CheckedRunnable, number: int, taken: Container[str]) -> str:
    """Returns the generated name of a running statement without a name in its text: it is the same after a restart.
    ``number`` says how many statements of the same text there were before; ``taken`` are names in lower case.
    """
    name = f"{_prefix(checked)}_{identity(checked.statement)[:8]}"
    names = (f"{name}_{n}" if n else name for n in itertools.count(number))
    return next(name for name in names if name.lower() not in taken)


def _prefix(checked: CheckedRunnable) -> str:
    kind = type(checked.statement).__name__.lower()
    match checked:
        case CheckedInsert(target=target) if target.kind == "sink":
            scheme, _, rest = target.name.partition("?")[0].partition("://")
            return "_".join((kind, *re.findall(r"\w+", f"{scheme} {rest.rpartition('/')[2]}")))
        case CheckedInsert() | CheckedFold():
            return f"{kind}_{checked.changes.name}"
    return kind
