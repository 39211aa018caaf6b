"""Renders functions that require OVER: ranks in an order, and neighbours in it."""

from __future__ import annotations

from sqlglot import exp

from millpond.sql.render.duckdb.call import Aggregate, Call
from millpond.sql.render.duckdb.expression import Expressions
from millpond.sql.render.duckdb.names import Unrenderable, typed
from millpond.sql.typing.functions import integer_value


def ranking(name: str) -> Aggregate:
    """Renders a function of the row's rank, in Spark's INT if it is a count."""

    def aggregate(r: Expressions, node: exp.Expr) -> Call:
        result = r.type(node)
        return Call((f"{name}()",), lambda s: typed(s, result))

    return aggregate


def ntile(r: Expressions, node: exp.Expr) -> Call:
    result = r.type(node)
    buckets = integer_value(node.this)
    if buckets is None:
        raise Unrenderable("NTILE of a number that is not written out")
    return Call((f"ntile({buckets})",), lambda s: typed(s, result))


def neighbour(name: str) -> Aggregate:
    def aggregate(r: Expressions, node: exp.Expr) -> Call:
        result, offset, default = r.type(node), node.args.get("offset"), node.args.get("default")
        steps = 1 if offset is None else integer_value(offset)
        if steps is None:
            raise Unrenderable(f"{name} by a number that is not written out")
        items = [r.to(node.this, result), str(steps)]
        if default is not None:
            items.append(r.to(default, result))
        return Call((f"{name}({', '.join(items)})",))

    return aggregate


def nth_value(r: Expressions, node: exp.Expr) -> Call:
    place = integer_value(node.args.get("offset"))
    if place is None:
        raise Unrenderable("NTH_VALUE of a place that is not written out")
    return Call((f"nth_value({r.sql(node.this)}, {place})",))
