"""Replaces the outputs of EXISTS, which nobody reads, so that their columns are not read either."""

from __future__ import annotations

from sqlglot import exp

from millpond.sql.grouping import contains_window, is_aggregated

_MORE = ("distinct", "order", "limit", "offset", "qualify", "laterals", "windows", "pivots")


def exists_list(tree: exp.Expr) -> exp.Expr:
    for found in tree.find_all(exp.Exists):
        select = found.this
        if (
            isinstance(select, exp.Select)
            and not is_aggregated(select)
            and not any(select.args.get(k) for k in _MORE)
            and not any(contains_window(p) for p in select.expressions)
        ):
            select.set("expressions", [exp.alias_(exp.Literal.number(1), "one", quoted=True)])
    return tree
