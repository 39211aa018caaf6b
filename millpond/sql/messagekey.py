"""Handles the key of a table over messages whose keys identify its rows: a column `_key`, added to those of the
query.
"""

from __future__ import annotations

import dataclasses

from sqlglot import exp

from millpond.sql.resolve import Input, Resolved
from millpond.sql.running_queries import from_items
from millpond.types import Column, Schema

KEY = "_key"


def stream_of_keys(resolved: Resolved, declared: Schema) -> Input | None:
    """Returns the stream of a query in which each row comes from one message with a key; None for any other, and if a
    column of that name is ``declared`` as something else.
    """
    select = resolved.expression
    if not isinstance(select, exp.Select) or select.args.get("laterals") or select.find(exp.UDTF):
        return None
    items = [item for item, _ in from_items(select)]
    if len(items) != 1 or not isinstance(items[0], exp.Table):
        return None
    source = next((i for i in resolved.inputs if i.view == items[0].name), None)
    keys = source is not None and source.relation.running and KEY in source.relation.schema
    return source if keys and _is_key(resolved, select, declared) else None


def _is_key(resolved: Resolved, select: exp.Select, declared: Schema) -> bool:
    """Returns whether the output that becomes the column ``_key``, if there is one, is the key of the message."""
    names = [c.name.lower() for c in (declared if len(declared) else resolved.schema)]
    if KEY not in names or names.index(KEY) >= len(select.expressions):
        return True
    value = select.expressions[names.index(KEY)].unalias()
    return isinstance(value, exp.Column) and value.name.lower() == KEY


def with_message_key(resolved: Resolved, stream: Input, declared: Schema) -> tuple[Resolved, Schema]:
    """Returns the query, and the declared columns of its table, if any, with the key of the message as one more column,
    unless they have it.
    """
    if KEY in (declared if len(declared) else resolved.schema):
        return resolved, declared
    known = stream.relation.schema.find(KEY)
    assert known is not None and isinstance(resolved.expression, exp.Select)
    column = exp.Column(
        this=exp.to_identifier(known.name, quoted=True), table=exp.to_identifier(stream.alias, quoted=True)
    )
    column.meta["dtype"] = known.type
    name = f"_{KEY}" if KEY in resolved.schema else KEY  # named differently by its table, which also has this
    select = resolved.expression.copy()
    select.append("expressions", exp.Alias(this=column, alias=exp.to_identifier(name, quoted=True)))
    columns = (*resolved.schema.columns, Column(name, known.type))
    wider = dataclasses.replace(resolved, expression=select, schema=Schema(columns, resolved.schema.key))
    if len(declared):
        declared = Schema((*declared.columns, Column(KEY, known.type)), declared.key)
    return wider, declared


def split_key(text: str) -> tuple[str, ...]:
    """Returns the columns of the option ``primary.key``."""
    return tuple(part.strip() for part in text.split(",") if part.strip())
