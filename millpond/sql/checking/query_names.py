"""Tracks the names of running statements while a text is checked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any

from millpond.errors import AlreadyExists, Error, InvalidOption
from millpond.sql import statements as st
from millpond.sql.checked import CheckedRunnable
from millpond.sql.identity import identity
from millpond.sql.querynames import FILLS, made_name, own_query_name, unknown_query


class QueryNames:
    """Stores the names of running statements.

    ``queries`` maps these, in lower case, to their own names; ``dropped`` are those of dropped statements; ``counts``
    says how many statements of each identity there were.
    """

    def __init__(self, queries: Mapping[str, str], dropped: Collection[str], counts: Mapping[str, int]):
        self._queries = dict(queries)
        self._dropped = frozenset(dropped)
        self._counts = Counter(counts)

    def copy(self) -> QueryNames:
        return QueryNames(self._queries, self._dropped, self._counts)

    def own(self, name: str) -> str | None:
        """Returns the own name of the running statement with this name."""
        return self._queries.get(name.lower())

    def unknown(self, name: str, s: st.Statement) -> Error | None:
        """Returns the error if no running statement has this name."""
        if name.lower() in self._queries or name.lower() in self._dropped:
            return None
        return unknown_query(name, self._queries.values(), s.place)

    def forget(self, query: str) -> None:
        self._queries = {name: own for name, own in self._queries.items() if own.lower() != query.lower()}

    def check(self, checked: CheckedRunnable, options: Mapping[str, Any]) -> None:
        """Raises for a name that is taken or invalid: queries share one namespace with the tables and streams that they
        fill, because error tables are named after them.
        """
        named, relation = options.get("query.name"), checked.declares
        if named and relation is not None:
            raise InvalidOption(
                f'option "query.name" is for INSERT, SELECT and the like: this query is known by the name of'
                f' {relation.kind} "{relation.name}"',
                hint="leave it out",
            )
        if named and (not named.strip() or named.lower().startswith(FILLS)):
            raise InvalidOption(
                f'"{named}" cannot be the name of a query',
                hint="it has letters, and does not begin with table: or stream:",
            )
        name = named or (relation.name if relation is not None else "")
        taken = self.own(name)
        if taken is not None:
            raise AlreadyExists(f'query "{taken}" already exists', hint="give it another 'query.name'")

    def add(self, checked: CheckedRunnable) -> str:
        """Adds the names of a statement that will run; returns the shortest."""
        key, relation = identity(checked.statement), checked.declares
        if relation is not None:
            own = own_query_name(relation.kind, relation.name)
            self._queries |= {relation.name.lower(): own, own.lower(): own}
            return relation.name
        name: str = checked.query_options.get("query.name") or made_name(
            checked, self._counts[key], self._queries
        )
        self._counts[key] += 1
        self._queries[name.lower()] = name
        return name
