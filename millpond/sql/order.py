"""Carries ``_seq``, the hidden column with the order of a stream, to where a query needs it."""

from __future__ import annotations

import pyarrow as pa
from sqlglot import exp

from millpond.sql.running_queries import Streams, from_items

SEQ = "_seq"


def carry_seq(query: exp.Expr, streams: Streams) -> None:
    """Makes every SELECT from the stream to the outermost also return the stream's ``_seq``."""
    while isinstance(query, exp.Subquery):
        query = query.this
    column = seq_column(query, streams)
    if column is not None:
        query.append("expressions", exp.alias_(column, SEQ, quoted=True))


def seq_column(select: exp.Expr, streams: Streams) -> exp.Column | None:
    """Returns the ``_seq`` of the stream that a SELECT reads, also from a subquery of FROM."""
    for item, _ in from_items(select):
        if not streams.is_stream(item):
            continue
        if isinstance(item, exp.Subquery):
            carry_seq(item.this, streams)
        elif isinstance(item, exp.Table) and item.name not in streams.views:
            inner = streams.ctes[item.name.lower()]
            if not any(p.alias == SEQ for p in inner.expressions):
                carry_seq(inner, streams)
                _name_seq(inner.parent)
        _name_seq(item)
        column = exp.Column(
            this=exp.to_identifier(SEQ, quoted=True),
            table=exp.to_identifier(item.alias_or_name, quoted=True),
        )
        column.meta["dtype"] = pa.int64()
        return column
    return None


def _name_seq(item: exp.Expr | None) -> None:
    """Adds a name for ``_seq`` where an alias names the columns of an item of FROM or of a CTE."""
    names = item.args.get("alias") if item is not None else None
    if isinstance(names, exp.TableAlias) and names.args.get("columns"):
        names.append("columns", exp.to_identifier(SEQ, quoted=True))
