"""Names an output column without an alias, as Spark does where that is simple."""

from __future__ import annotations

from sqlglot import exp

from millpond.sql.calls import CALLED
from millpond.sql.dialect import Millpond

_BINARY: dict[type[exp.Expr], str] = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.Mod: "%",
    exp.EQ: "=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.And: "AND",
    exp.Or: "OR",
}


def auto_name(node: exp.Expr) -> str:
    if isinstance(node, exp.Column | exp.Alias) and not isinstance(node.this, exp.Star):
        return str(node.alias_or_name)
    if isinstance(node, exp.Dot):
        return str(node.expression.name)
    if isinstance(node, exp.Literal):
        return str(node.this)
    if isinstance(node, exp.Paren):
        return auto_name(node.this)
    if isinstance(node, exp.Count) and isinstance(node.this, exp.Star):
        return "count(1)"
    operator = _BINARY.get(type(node))
    if operator:
        return f"({auto_name(node.this)} {operator} {auto_name(node.expression)})"
    text = node.sql(dialect=Millpond)
    if isinstance(node, exp.Func) and not isinstance(node, exp.Cast | exp.Case):
        head, paren, rest = text.partition("(")
        return str(node.meta.get(CALLED, head.lower())) + paren + rest
    return text
