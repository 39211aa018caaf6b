"""Checks EMIT CHANGES into a sink or a stream: the changes of one table, row by row."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sqlglot import exp

from millpond.changelog import Envelope
from millpond.errors import InvalidOption, NotSupported, Place
from millpond.options import Option, Setting, find_option, read_options
from millpond.sql import statements as st
from millpond.sql.aggregate import is_live_aggregate
from millpond.sql.catalog import Catalog, Relation
from millpond.sql.checking.queries import Queries
from millpond.sql.grouping import contains_window
from millpond.sql.lineage import over_stream
from millpond.sql.materialized_view import changing_functions
from millpond.sql.options import CHANGES_OPTIONS
from millpond.sql.reads import names_read, uris_read
from millpond.sql.resolve import Resolved

_HINT = "keep the result as a table, CREATE TABLE v AS SELECT …, and write the changes of that"


def follows_table(catalog: Catalog, query: st.Query) -> bool:
    """Returns whether EMIT CHANGES of the query is about the changes of tables: it reads no stream."""
    if query.emit != "changes":
        return False
    read = list(_read(catalog, query))
    return bool(read) and not any(r.running for r in read)


def _read(catalog: Catalog, query: st.Query) -> Iterator[Relation]:
    """Yields what a query names in FROM, also through views."""
    for name in sorted(names_read(query)):
        relation = catalog.find(name)
        if relation is not None and relation.query is not None:
            yield from _read(catalog, relation.query)
        elif relation is not None:
            yield relation


def resolve_changes(
    queries: Queries, s: st.Insert | st.CreateStream, options: Sequence[Option], owner: str
) -> Resolved | None:
    """Returns the query of a statement over the changes of a table: its input is ``changing``. None if it has
    mistakes.
    """
    query = s.query
    assert query is not None
    read = list(_read(queries.catalog, query))
    table = read[0]
    if len(read) != 1 or uris_read(query):
        queries.errors.append(_refused("several inputs", s.place))
        return None
    _check_table(table, s.place)
    catalog = queries.catalog.copy()
    catalog.add(dataclasses.replace(table, running=True, changing=True, live=False))
    resolved = queries.resolve(query, s.settings, (*options, *CHANGES_OPTIONS), owner, s, catalog=catalog)
    if resolved is None or queries.errors:
        return None
    for what in _not_by_row(resolved):
        queries.errors.append(_refused(what, s.place))
        return None
    return queries.named_outputs(resolved, s)


def _check_table(table: Relation, place: Place | None) -> None:
    if table.stored_in is not None or table.evicts:
        where = "a cache" if table.evicts else "a database"
        raise NotSupported(
            f'EMIT CHANGES of table "{table.name}", which is in {where}, where others may change it',
            hint="write the changes of a table in memory, or of a materialized view over it",
            place=place,
        )


def _not_by_row(resolved: Resolved) -> Iterator[str]:
    """Yields why a query does not give one row, or none, for each row of its table."""
    tree = resolved.expression
    if len(resolved.inputs) != 1 or not resolved.inputs[0].relation.changing:
        yield "several inputs"
    elif is_live_aggregate(resolved):
        yield "groups or DISTINCT"
    elif contains_window(tree):
        yield "OVER"
    elif tree.find(exp.Lateral, exp.Explode, exp.Unnest, exp.Inline) is not None:
        yield "lists that become rows"
    elif any(changing_functions(tree)):
        yield "a function whose value changes, such as now()"
    elif not resolved.schema.known:
        yield "an expression whose type only Spark knows"


def _refused(what: str, place: Place | None) -> NotSupported:
    return NotSupported(
        f"EMIT CHANGES into a sink or a stream of a query with {what}", hint=_HINT, place=place
    )


def envelope_of(owner: str, settings: Sequence[Setting]) -> Envelope:
    """Returns the form of changes that a statement asks for."""
    mine = [x for x in settings if find_option(CHANGES_OPTIONS, x.name)]
    found: Envelope = read_options(owner, CHANGES_OPTIONS, mine)["envelope"]
    return found


def key_outputs(resolved: Resolved) -> tuple[str, ...]:
    """Returns the outputs that are the primary key of the table, in its order; none if it has none, or if one of its
    columns is no output.
    """
    stream = resolved.inputs[0]
    outputs: dict[str, str] = {}
    for name in resolved.schema.names:
        value = over_stream(resolved, name, stream)
        value = value.unnest() if value is not None else None
        if isinstance(value, exp.Column):
            outputs.setdefault(value.name.lower(), name)
    found = [outputs.get(name.lower()) for name in stream.relation.schema.key]
    return tuple(name for name in found if name is not None) if None not in found else ()


def with_key(values: Mapping[str, Any], resolved: Resolved, place: Place | None) -> dict[str, Any]:
    """Returns the options of a sink that writes by 'key', with the key of the table if none is named."""
    if values.get("key"):
        return dict(values)
    key = key_outputs(resolved)
    if not key:
        table = resolved.inputs[0].relation
        wanted = ", ".join(table.schema.key)
        raise InvalidOption(
            f'the changes of table "{table.name}" are written by key, and '
            + (f"the query does not give its key ({wanted})" if wanted else "the table has no primary key"),
            hint="name the columns that identify a row: 'key' = '…'",
            place=place,
        )
    return {**values, "key": ", ".join(key)}
