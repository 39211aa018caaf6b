"""Finds two streams in a FROM, and the conditions that concern them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from sqlglot import exp

from millpond.errors import NotSupported, Place, SqlError
from millpond.sql.conjuncts import all_of, conjuncts, outer_columns, replace_columns
from millpond.sql.joins.model import Kind
from millpond.sql.running_queries import Streams, from_items

_ROW_BY_ROW = ("", "LEFT")
_ELSEWHERE = ("from_", "with_", "joins")


@dataclass(slots=True)
class Shape:
    """Describes the first two streams of a SELECT.

    ``on`` are the conditions on both, ``pushed`` those on only one of them, which its rows must satisfy before the
    join. ``where`` and ``joins`` are left for the outer query.
    """

    kind: Kind
    items: tuple[exp.Expr, exp.Expr]
    aliases: tuple[str, str]
    on: list[exp.Expr]
    pushed: tuple[list[exp.Expr], list[exp.Expr]]
    where: list[exp.Expr]
    joins: list[exp.Join]

    def replace(self, select: exp.Select, name: str, leaf: Callable[[exp.Column], exp.Expr]) -> None:
        """Replaces the two with one input."""
        alias = exp.TableAlias(this=exp.to_identifier(name, quoted=True))
        select.set("from_", exp.From(this=exp.Table(this=exp.to_identifier(name), alias=alias)))
        where = all_of(self.where)
        select.set("where", None if where is None else exp.Where(this=where))
        for key, value in list(select.args.items()):
            if key in _ELSEWHERE or not value:
                continue
            if isinstance(value, list):
                select.set(key, [replace_columns(v, leaf) if isinstance(v, exp.Expr) else v for v in value])
            elif isinstance(value, exp.Expr):
                select.set(key, replace_columns(value, leaf))
        for join in self.joins:
            condition = join.args.get("on")
            if condition is not None:
                join.set("on", replace_columns(condition, leaf))
        select.set("joins", self.joins or None)


def read_shape(
    select: exp.Select,
    streams: Streams,
    place: Callable[[exp.Expr], Place | None],
    errors: list[SqlError],
) -> Shape | None:
    """Returns the shape of a SELECT with two or more streams; None after adding to ``errors`` if it is invalid."""
    items = list(from_items(select))
    first, second, *_ = [n for n, (item, _) in enumerate(items) if streams.is_stream(item)]
    join = items[second][1]
    assert join is not None
    sides = [(j.side or "").upper() if j is not None else "" for _, j in items]
    kinds = [(j.kind or "").upper() if j is not None else "" for _, j in items]
    kind = cast(Kind, sides[second] or "INNER")
    two = (items[first][0], items[second][0])
    aliases = (two[0].alias_or_name, two[1].alias_or_name)

    def refuse(what: str, hint: str, node: exp.Expr = two[1]) -> None:
        errors.append(NotSupported(what, hint=hint, place=place(node)))

    if kinds[second] in ("SEMI", "ANTI"):
        refuse(
            f"{kinds[second]} JOIN of two streams: what has not come yet may still come",
            "use INNER JOIN, or LEFT JOIN with WHERE … IS NULL in the query on what it fills",
        )
        return None
    before, between = items[:first], items[first + 1 : second]
    if before and any(sides[: second + 1]):
        refuse(
            "a table before two streams is joined with INNER JOIN only",
            "put the streams first: FROM a JOIN b ON … LEFT JOIN table ON …",
        )
        return None
    if between and (
        kind not in ("INNER", "LEFT") or any(s not in _ROW_BY_ROW for s in sides[first + 1 : second])
    ):
        refuse(
            f"a table between two streams and {kind} JOIN",
            "put the streams first: FROM a JOIN b ON … JOIN table ON …",
        )
        return None
    pool = _parts(join.args.get("on"))
    where = _parts(select.args["where"].this) if select.args.get("where") is not None else []
    if before:
        for _, other in items[1:second]:
            if other is not None and (other.kind or "").upper() not in ("SEMI", "ANTI"):
                pool += _parts(other.args.get("on"))
                other.set("on", None)
    shape = Shape(kind, two, aliases, [], ([], []), [], _rest(items, first, second))
    for condition in pool:
        concerns = _concerns(condition, aliases)
        if concerns is None:
            if kind != "INNER":
                refuse(
                    f"the condition of {kind} JOIN of two streams reads something else too",
                    "join the table after the streams, or in a query in parentheses",
                    condition,
                )
                return None
            shape.where.append(condition)
        elif concerns == {1} and kind in ("INNER", "LEFT"):
            shape.pushed[1].append(condition)
        elif concerns == {0} and kind in ("INNER", "RIGHT"):
            shape.pushed[0].append(condition)
        else:
            shape.on.append(condition)
    for condition in where:
        concerns = _concerns(condition, aliases)
        if kind == "INNER" and concerns == {0, 1}:
            shape.on.append(condition)
        elif concerns == {0} and kind in ("INNER", "LEFT"):
            shape.pushed[0].append(condition)
        elif concerns == {1} and kind in ("INNER", "RIGHT"):
            shape.pushed[1].append(condition)
        else:
            shape.where.append(condition)
    return shape


def _rest(items: list[tuple[exp.Expr, exp.Join | None]], first: int, second: int) -> list[exp.Join]:
    """Returns the joins of everything except the two."""
    rest: list[exp.Join] = []
    for n, (item, join) in enumerate(items):
        if n not in (first, second):
            rest.append(exp.Join(this=item) if join is None else join)
    return rest


def _parts(condition: exp.Expr | None) -> list[exp.Expr]:
    return [] if condition is None else list(conjuncts(condition))


def _concerns(condition: exp.Expr, aliases: tuple[str, str]) -> set[int] | None:
    """Returns which of the two a condition reads; None if it reads anything else, or nothing."""
    if condition.find(exp.Query):
        return None
    named = [a.lower() for a in aliases]
    tables = {c.table.lower() for c in outer_columns(condition)}
    return {named.index(t) for t in tables} if tables and tables <= set(named) else None
