"""Derives result types of CASE, IF, COALESCE and other conditionals, and checks which values can be compared."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from sqlglot import exp

from millpond.sql.typing.coercion import (
    BOOLEAN,
    NULL,
    STRING,
    is_list,
    is_map,
    is_nested,
    is_struct,
    meet,
    widest,
)
from millpond.sql.typing.rule import Of, Rule, mismatch


def compare(what: str, a: pa.DataType | None, b: pa.DataType | None) -> pa.DataType | None:
    """Returns the type in which two values are compared; TypeMismatch if they cannot be."""
    if a is None or b is None:
        return None
    common = meet(a, b)
    if common is None or is_map(common):
        raise mismatch(what, a, b, hint="make the types equal with CAST")
    return common


def compare_exactly(what: str, a: pa.DataType | None, b: pa.DataType | None) -> pa.DataType | None:
    """Does the same for an operator, which reads no text inside arrays and structs as a number or a time."""
    if a is not None and b is not None and is_nested(a) and is_nested(b) and _reads_texts(a, b):
        raise mismatch(what, a, b, hint="make the types equal with CAST")
    return compare(what, a, b)


def _reads_texts(a: pa.DataType, b: pa.DataType) -> bool:
    """Returns whether one type is STRING, or contains it, where the other has another type."""
    if is_list(a) and is_list(b):
        return _reads_texts(a.value_type, b.value_type)
    if is_struct(a) and is_struct(b):
        return any(_reads_texts(x.type, y.type) for x, y in zip(a, b, strict=False))
    return a != b and STRING in (a, b) and NULL not in (a, b)


def branches(what: str, nodes: Sequence[exp.Expr | None], of: Of) -> pa.DataType | None:
    """Returns the common type of values of which one is the result; None if one is unknown."""
    found = [of(n) for n in nodes if n is not None]
    types = [t for t in found if t is not None]
    if len(types) < len(found):
        return None
    common = widest(types)
    if common is None:
        raise mismatch(what, *dict.fromkeys(types), hint="bring them to one type with CAST")
    return common


def case(node: exp.Expr, of: Of) -> pa.DataType | None:
    ifs = node.args["ifs"]
    subject = node.args.get("this")
    for branch in ifs:
        if subject is None:
            condition("CASE", branch.this, of)
        else:
            compare_exactly("CASE", of(subject), of(branch.this))
    return branches("CASE", [*(b.args["true"] for b in ifs), node.args.get("default")], of)


def condition(what: str, node: exp.Expr, of: Of) -> None:
    """Checks that a condition is BOOLEAN."""
    a = of(node)
    if a is not None and a != BOOLEAN and not (a == NULL and what == "IF"):
        raise mismatch(what, a, hint="a condition is BOOLEAN")


def iff(node: exp.Expr, of: Of) -> pa.DataType | None:
    around = node.parent
    if not isinstance(around, exp.Case):
        condition("IF", node.this, of)
    elif around.this is None:
        condition("CASE", node.this, of)
    return branches("IF", [node.args["true"], node.args.get("false")], of)


def nvl2(node: exp.Expr, of: Of) -> pa.DataType | None:
    of(node.this)
    return branches("NVL2", [node.args["true"], node.args.get("false")], of)


def choice(node: exp.Expr, of: Of) -> pa.DataType | None:
    return branches(node.key.upper(), [node.this, *node.expressions], of)


def nullif(node: exp.Expr, of: Of) -> pa.DataType | None:
    a = of(node.this)
    compare("NULLIF", a, of(node.expression))
    return a


def extreme(node: exp.Expr, of: Of) -> pa.DataType | None:
    """Types GREATEST and LEAST: here a string is not cast to other types."""
    types = [of(n) for n in (node.this, *node.expressions)]
    known = [t for t in types if t not in (None, NULL)]
    if STRING in known and any(t != STRING for t in known):
        raise mismatch(node.key.upper(), *dict.fromkeys(known))
    return choice(node, of)


RULES: dict[type[exp.Expr], Rule] = {
    exp.Case: case,
}
