"""Checks what Spark's real-time mode can run: rows of one topic, filtered, projected, joined with tables by
equality.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sqlglot import exp

from millpond.sql.aggregate import is_live_aggregate
from millpond.sql.conjuncts import conjuncts
from millpond.sql.resolve import Resolved
from millpond.sql.uris import is_topic

_CLAUSES = {"order": "ORDER BY", "limit": "LIMIT"}


def not_in_real_time(
    query: Resolved, sink: Mapping[str, Any], statement: Mapping[str, Any], errors_into: str | None
) -> Iterator[tuple[str, str | None]]:
    """Yields why a query into a sink cannot run in real-time mode, and what to do; ``sink`` and ``statement`` are
    their options.
    """
    streams = [i for i in query.inputs if i.relation.running]
    if len(streams) != 1 or not is_topic(streams[0].relation.uri or ""):
        yield "it reads one topic of Kafka", None
        return
    if is_live_aggregate(query):
        yield "an aggregate needs batches", None
    if sink.get("delivery") == "exactly-once":
        yield "it writes at least once", "leave 'delivery' out"
    if errors_into is not None or statement.get("on.error") != "fail":
        yield (
            "there is no error table: what cannot be processed stops the query",
            "say so: 'on.error' = 'fail'",
        )
    if statement.get("engine") == "process":
        yield "Spark alone evaluates it", "leave 'engine' out"
    if statement.get("on.miss"):
        yield "'on.miss' needs batches", "LEFT JOIN and COALESCE can fill in"
    tree = query.expression
    if not isinstance(tree, exp.Select):
        yield "the query is one SELECT", None
        return
    for key, words in _CLAUSES.items():
        if tree.args.get(key):
            yield f"{words} needs batches", None
    if any(node is not tree for node in tree.find_all(exp.Query)):
        yield "it has no subqueries", "a join can say the same"
    if tree.find(exp.Window):
        yield "OVER needs batches", None
    yield from _not_joined(tree, streams[0].view)


def _not_joined(tree: exp.Select, stream: str) -> Iterator[tuple[str, str | None]]:
    source = tree.args.get("from_")
    first = source.this.name if isinstance(source, exp.From) else ""
    for join in tree.args.get("joins") or ():
        side, on = join.side.upper(), join.args.get("on")
        if side not in ("", "LEFT") or join.kind.upper() not in ("", "INNER", "OUTER"):
            yield f"{' '.join(filter(None, (side, join.kind.upper())))} JOIN needs batches", None
        elif side == "LEFT" and first != stream:
            yield "a LEFT JOIN has the stream first", None
        elif on is None or not any(_compares_inputs(part) for part in conjuncts(on)):
            yield "a join with a table needs an equality of columns", None


def _compares_inputs(part: exp.Expr) -> bool:
    if not isinstance(part, exp.EQ):
        return False
    sides = [{c.table for c in side.find_all(exp.Column)} for side in (part.left, part.right)]
    return all(sides) and not sides[0] & sides[1]
