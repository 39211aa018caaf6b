"""Finds the types that a statement wants from a source whose own types are only guessed from text.

`CREATE TABLE t (id INT, price DECIMAL(20,2)) AS SELECT * FROM file://x.csv` must not read the price as DOUBLE first:
digits and leading zeros would be lost before the table sees them.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from sqlglot import exp

from millpond.sql.resolve import Input, Resolved
from millpond.sql.running_queries import from_items
from millpond.sql.typing import type_of
from millpond.types import Column, Schema


def wanted_schemas(resolved: Resolved, targets: Sequence[pa.DataType | None]) -> dict[str, Schema]:
    """Returns URI → the columns of a source with the types that the query's outputs have.

    ``targets`` are the types of the columns that store the outputs, in order; empty if there are none. An output that
    is just a column of the source wants its target's type; a CAST of one to DECIMAL wants that type, if the column is
    not used in any other way. Sources that need no change are left out.
    """
    select = resolved.expression
    if not isinstance(select, exp.Select):
        return {}
    found: dict[str, Schema] = {}
    uris = [i.relation.uri for i in resolved.inputs]
    for source in resolved.inputs:
        uri = source.relation.uri
        is_guessed = source.relation.kind == "source" and source.relation.guessed
        if uri is None or not is_guessed or uris.count(uri) != 1:
            continue
        if any(isinstance(item, exp.Table) and item.name == source.view for item, _ in from_items(select)):
            schema = _wanted(select, source, targets)
            if schema != source.relation.schema:
                found[uri] = schema
    return found


def _wanted(select: exp.Select, source: Input, targets: Sequence[pa.DataType | None]) -> Schema:
    wants: dict[str, set[pa.DataType]] = {}
    for i, output in enumerate(select.expressions):
        value = output.unalias().unnest()
        target = targets[i] if i < len(targets) else None
        if isinstance(value, exp.Column) and _of(value, source) and target is not None:
            wants.setdefault(value.name, set()).add(target)
    for cast in select.find_all(exp.Cast):
        column, to = cast.this.unnest(), type_of(cast)
        if (
            isinstance(column, exp.Column)
            and _of(column, source)
            and to is not None
            and pa.types.is_decimal(to)
        ):
            if _uses(select, column) == 1:
                wants.setdefault(column.name, set()).add(to)
    columns = []
    for column in source.relation.schema:
        types = wants.get(column.name, set())
        fits = len(types) == 1 and not column.hidden and not pa.types.is_nested(next(iter(types)))
        columns.append(Column(column.name, next(iter(types)), column.nullable) if fits else column)
    return Schema(tuple(columns))


def _of(column: exp.Column, source: Input) -> bool:
    return column.table.lower() == source.alias.lower()


def _uses(select: exp.Select, column: exp.Column) -> int:
    return sum(c == column for c in select.find_all(exp.Column))
