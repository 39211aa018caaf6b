"""Makes aggregates choose the same value whatever order rows come in, where SQL leaves the choice open.

In a view ANY_VALUE returns the least value. Of rows with an equal order MIN_BY returns the least value, MAX_BY the
greatest, and LISTAGG puts them in the order of the texts. So what operators compute is what the query returns.
"""

from __future__ import annotations

from sqlglot import exp

from millpond.sql.aggregate.nodes import every, filtered, not_null, struct
from millpond.sql.conjuncts import bare
from millpond.sql.incremental.nodes import is_key, is_plain
from millpond.sql.nodes import NEVER_NULL
from millpond.sql.typing import type_of

AGGREGATES = (exp.AnyValue, exp.ArgMin, exp.ArgMax, exp.GroupConcat)


def choose_values(tree: exp.Expr) -> None:
    """Changes the aggregates of a query that depend on the order of rows, and need not."""
    for node in list(tree.find_all(*AGGREGATES)):
        match node:
            case exp.AnyValue():
                _least(node)
            case exp.ArgMin() | exp.ArgMax():
                _by_value_too(node)
            case exp.GroupConcat():
                _in_order_of_texts(node)


def is_chosen(call: exp.Expr) -> bool:
    """Returns whether an aggregate without a fixed order of rows returns the same in any."""
    if isinstance(call, exp.ArgMin | exp.ArgMax):
        return bool(call.expression.meta.get(NEVER_NULL))
    if not isinstance(call, exp.GroupConcat) or not isinstance(call.this, exp.Order):
        return False
    last, dtype = call.this.expressions[-1], type_of(_texts(call))
    if dtype is None or not is_key(dtype):
        return False  # 0.0 and -0.0 are equal, and have different texts
    return bool((last.this if isinstance(last, exp.Ordered) else last) == _texts(call))


def _least(node: exp.AnyValue) -> None:
    if is_plain(type_of(node)):
        around = node.parent if isinstance(node.parent, exp.IgnoreNulls | exp.RespectNulls) else node
        around.replace(exp.Min(this=node.this.copy()))


def _by_value_too(node: exp.ArgMin | exp.ArgMax) -> None:
    """Orders by the value behind the order; NULL comes after the others."""
    value, order = node.this, node.expression
    inside = isinstance(node.parent, exp.Window) or isinstance(value, exp.Distinct)
    if inside or node.args.get("count") is not None:
        return
    if not all(is_plain(type_of(n)) for n in (value, order)):
        return
    null = exp.Is(this=exp.Paren(this=value.copy()), expression=exp.Null())
    last = null if isinstance(node, exp.ArgMin) else exp.Not(this=null)
    made = node.copy()
    made.set("expression", struct([("o", order), ("n", last), ("v", value)]))
    around = node.parent if isinstance(node.parent, exp.Filter) else None
    condition = every(None if around is None else around.expression.this, not_null(order))
    (around or node).replace(filtered(made, condition))


def _in_order_of_texts(node: exp.GroupConcat) -> None:
    if (
        isinstance(node.this, exp.Order)
        and not isinstance(node.this.this, exp.Distinct)
        and not is_chosen(node)
    ):
        node.this.append("expressions", exp.Ordered(this=_texts(node).copy(), desc=False, nulls_first=True))


def _texts(call: exp.GroupConcat) -> exp.Expr:
    """Returns what LISTAGG puts together."""
    value = call.this.this
    return bare(value.expressions[0] if isinstance(value, exp.Distinct) else value)
