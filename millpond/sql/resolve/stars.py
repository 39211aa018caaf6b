"""Expands `*` and `x.*` among the arguments of a function."""

from __future__ import annotations

import pyarrow as pa
from sqlglot import exp

from millpond.errors import NotSupported, SqlError, UnknownName, did_you_mean
from millpond.sql.calls import called
from millpond.sql.functions import wrong_number
from millpond.sql.resolve.context import Context
from millpond.sql.resolve.names import ambiguous
from millpond.sql.scope import Scope, Visible


def star_of(node: exp.Expr) -> exp.Star | None:
    """Returns the star of `*` or `x.*`."""
    if isinstance(node, exp.Star):
        return node
    if isinstance(node, exp.Column) and isinstance(node.this, exp.Star) and not node.args.get("db"):
        return node.this
    return None


def spread_stars(context: Context, node: exp.Expr, scope: Scope) -> None:
    """Replaces `*` and `x.*` among the arguments of a function with the columns; `COUNT(*)` remains."""
    for star in (s for v in node.args.values() for s in (v if isinstance(v, list) else [v])):
        if isinstance(star, exp.Star) and star.args.get("replace"):
            message = "REPLACE stands behind the * of a SELECT, not of a function"
            context.note(SqlError(message), context.place(star) or context.place(node))
    if isinstance(node, exp.Count) and isinstance(node.this, exp.Star):
        return
    for key, value in list(node.args.items()):
        given = value if isinstance(value, list) else [value]
        spread = [c for v in given for c in _columns_of_star(context, v, scope, node) or [v]]
        if len(spread) == len(given) and all(a is b for a, b in zip(spread, given, strict=True)):
            continue
        if isinstance(value, list):
            node.set(key, spread)
        else:
            if isinstance(node, exp.Count) and not node.expressions:
                context.add(
                    SqlError(
                        "COUNT of x.* alone is not known",
                        hint="COUNT(*) counts rows; name the columns to count rows where none of them is NULL",
                    ),
                    node,
                )
            node.set(key, spread[0])
            node.set("expressions", [*spread[1:], *node.expressions])
        wrong = wrong_number(
            called(node) or "",
            len(node.expressions) + ("this" in node.arg_types and not isinstance(node, exp.Anonymous)),
        )
        if wrong is not None:
            context.note(SqlError(wrong), context.place(node, own=True))
            node.meta["dtype"] = None


def _columns_of_star(context: Context, node: object, scope: Scope, call: exp.Expr) -> list[exp.Expr]:
    """Returns the columns of `*`, or of `x.*` for an input x; in STRUCT also the fields of a struct. Empty for anything
    else.
    """
    star = star_of(node) if isinstance(node, exp.Expr) else None
    if star is not None and (star is node or (isinstance(node, exp.Column) and scope.has(node.table))):
        mine = scope.of(node.table) if isinstance(node, exp.Column) else scope.shown()
        columns = [c for c in mine if not c.hidden]
        dropped = excepted(context, star, columns)
        return [_argument(_resolved(c), c.name, call) for c in columns if c not in dropped]
    if isinstance(node, exp.Column) and isinstance(node.this, exp.Star) and isinstance(call, exp.Struct):
        found = scope.matches(node.table) if not node.args.get("db") else []
        if len(found) == 1 and found[0].dtype is not None and pa.types.is_struct(found[0].dtype):
            names = [exp.to_identifier(f.name, quoted=True) for f in found[0].dtype]
            fields = [exp.Dot(this=_resolved(found[0]), expression=name) for name in names]
            return [_argument(f, n.name, call) for f, n in zip(fields, names, strict=True)]
    return []


def _argument(value: exp.Expr, name: str, call: exp.Expr) -> exp.Expr:
    """Returns a column as an argument of a function; in STRUCT it keeps its name."""
    if isinstance(call, exp.Struct):
        return exp.PropertyEQ(this=exp.to_identifier(name, quoted=True), expression=value)
    return value


def _resolved(column: Visible) -> exp.Expr:
    made = column.value.copy()
    for found in made.find_all(exp.Column):
        found.meta["resolved"] = True
    return made


def excepted(context: Context, star: exp.Star, columns: list[Visible]) -> list[Visible]:
    """Returns the columns that EXCEPT removes from `*`."""
    found: list[Visible] = []
    if star.args.get("ilike"):
        context.add(NotSupported("ILIKE after * is not supported", hint="name the columns"), star)
    for named in star.args.get("except_") or ():
        table = named.table if isinstance(named, exp.Column) else ""
        mine = [
            c
            for c in columns
            if c.name.lower() == named.name.lower() and (not table or c.alias.lower() == table.lower())
        ]
        if not mine:
            context.errors.append(
                UnknownName(
                    f'column "{named.name}" of EXCEPT is not there',
                    hint=did_you_mean(named.name, [c.name for c in columns]),
                    place=context.place(named) or context.place(star),
                )
            )
        elif len(mine) > 1:
            context.note(ambiguous(named.name, mine), context.place(named) or context.place(star))
        elif any(c in found for c in mine):
            context.errors.append(
                SqlError(
                    f'EXCEPT names column "{named.name}" twice',
                    place=context.place(named) or context.place(star),
                )
            )
        found += mine
    if found and len(found) == len(columns):
        context.add(SqlError("EXCEPT leaves no column of *"), star)
    return found
