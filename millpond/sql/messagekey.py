"""The key of a table over messages whose keys tell its rows: a column `_key`, beside those of the query."""

from __future__ import annotations

import dataclasses

from sqlglot import exp

from millpond.sql.resolve import Input, Resolved
from millpond.sql.running import from_items
from millpond.types import Column, Schema

KEY = "_key"


def stream_of_keys(resolved: Resolved) -> Input | None:
    """The stream of a query in which each row is of one message with a key; None for any other."""
    select = resolved.expression
    if not isinstance(select, exp.Select) or select.args.get("laterals") or select.find(exp.UDTF):
        return None
    items = [item for item, _ in from_items(select)]
    if len(items) != 1 or not isinstance(items[0], exp.Table):
        return None
    source = next((i for i in resolved.inputs if i.view == items[0].name), None)
    keys = source is not None and source.relation.running and KEY in source.relation.schema
    return source if keys else None


def with_message_key(resolved: Resolved, stream: Input) -> Resolved:
    """The query with the key of the message as one more column, unless it gives it itself."""
    if KEY in resolved.schema:
        return resolved
    known = stream.relation.schema.find(KEY)
    assert known is not None and isinstance(resolved.expression, exp.Select)
    column = exp.Column(
        this=exp.to_identifier(known.name, quoted=True), table=exp.to_identifier(stream.alias, quoted=True)
    )
    column.meta["dtype"] = known.type
    select = resolved.expression.copy()
    select.append("expressions", exp.Alias(this=column, alias=exp.to_identifier(KEY, quoted=True)))
    columns = (*resolved.schema.columns, Column(KEY, known.type))
    return dataclasses.replace(resolved, expression=select, schema=Schema(columns, resolved.schema.key))
