"""The columns that `*` and `x.*` stand for among the arguments of a function."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
from sqlglot import exp

from millpond.errors import Place, SqlError
from millpond.sql.calls import called
from millpond.sql.functions import wrong_number
from millpond.sql.scope import Scope, Visible

Excepted = Callable[[exp.Star, list[Visible]], list[Visible]]
"""The columns that EXCEPT takes out of `*`."""


def star_of(node: exp.Expr) -> exp.Star | None:
    """The star of `*` or `x.*`."""
    if isinstance(node, exp.Star):
        return node
    if isinstance(node, exp.Column) and isinstance(node.this, exp.Star) and not node.args.get("db"):
        return node.this
    return None


def spread_stars(
    node: exp.Expr,
    scope: Scope,
    excepted: Excepted,
    report: Callable[[SqlError], None],
    place: Callable[..., Place | None],
) -> None:
    """Puts the columns in place of `*` and `x.*` among the arguments of a function; `COUNT(*)` stays. Errors are
    reported, each with its ``place``."""
    for star in (s for v in node.args.values() for s in (v if isinstance(v, list) else [v])):
        if isinstance(star, exp.Star) and star.args.get("replace"):
            message = "REPLACE stands behind the * of a SELECT, not of a function"
            report(SqlError(message, place=place(star) or place(node)))
    if isinstance(node, exp.Count) and isinstance(node.this, exp.Star):
        return
    for key, value in list(node.args.items()):
        given = value if isinstance(value, list) else [value]
        spread = [c for v in given for c in _columns_of_star(v, scope, node, excepted) or [v]]
        if len(spread) == len(given) and all(a is b for a, b in zip(spread, given, strict=True)):
            continue
        if isinstance(value, list):
            node.set(key, spread)
        else:
            if isinstance(node, exp.Count) and not node.expressions:
                report(
                    SqlError(
                        "COUNT of x.* alone is not known",
                        hint="COUNT(*) counts rows; name the columns to count rows where none of them is NULL",
                        place=place(node),
                    )
                )
            node.set(key, spread[0])
            node.set("expressions", [*spread[1:], *node.expressions])
        wrong = wrong_number(
            called(node) or "",
            len(node.expressions) + ("this" in node.arg_types and not isinstance(node, exp.Anonymous)),
        )
        if wrong is not None:
            report(SqlError(wrong, place=place(node, own=True)))
            node.meta["dtype"] = None


def _columns_of_star(node: object, scope: Scope, call: exp.Expr, excepted: Excepted) -> list[exp.Expr]:
    """What `*`, or `x.*` of an input x, stands for; in STRUCT also the fields of a struct. Nothing for anything
    else."""
    star = star_of(node) if isinstance(node, exp.Expr) else None
    if star is not None and (star is node or (isinstance(node, exp.Column) and scope.has(node.table))):
        mine = scope.of(node.table) if isinstance(node, exp.Column) else scope.shown()
        columns = [c for c in mine if not c.hidden]
        dropped = excepted(star, columns)
        return [_argument(_resolved(c), c.name, call) for c in columns if c not in dropped]
    if isinstance(node, exp.Column) and isinstance(node.this, exp.Star) and isinstance(call, exp.Struct):
        found = scope.matches(node.table) if not node.args.get("db") else []
        if len(found) == 1 and found[0].dtype is not None and pa.types.is_struct(found[0].dtype):
            names = [exp.to_identifier(f.name, quoted=True) for f in found[0].dtype]
            fields = [exp.Dot(this=_resolved(found[0]), expression=name) for name in names]
            return [_argument(f, n.name, call) for f, n in zip(fields, names, strict=True)]
    return []


def _argument(value: exp.Expr, name: str, call: exp.Expr) -> exp.Expr:
    """A column among the arguments of a function; in STRUCT it keeps its name."""
    if isinstance(call, exp.Struct):
        return exp.PropertyEQ(this=exp.to_identifier(name, quoted=True), expression=value)
    return value


def _resolved(column: Visible) -> exp.Expr:
    made = column.value.copy()
    for found in made.find_all(exp.Column):
        found.meta["resolved"] = True
    return made
