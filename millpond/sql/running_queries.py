"""Checks what a query over a stream may be in this version: every row of a batch by itself, joined with tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from sqlglot import exp

from millpond.errors import NotSupported, Place, SqlError
from millpond.sql.grouping import is_aggregated
from millpond.sql.nodes import PathValues
from millpond.sql.resolve import Resolved

_ENDLESS = {"order": "ORDER BY", "limit": "LIMIT", "offset": "OFFSET"}


def from_items(select: exp.Expr) -> Iterator[tuple[exp.Expr, exp.Join | None]]:
    """Yields the inputs of a SELECT in order, each with its join."""
    from_ = select.args.get("from_")
    if from_ is not None:
        yield from_.this, None
    for join in select.args.get("joins") or ():
        yield join.this, join


class Streams:
    """Finds which parts of a resolved query come from a stream."""

    def __init__(self, resolved: Resolved):
        self.views = {i.view for i in resolved.inputs if i.relation.running}
        self.ctes: dict[str, exp.Expr] = {}
        for cte in resolved.expression.find_all(exp.CTE):
            self.ctes[cte.alias.lower()] = cte.this

    def is_stream(self, item: exp.Expr) -> bool:
        """Returns whether an item of FROMis or contains a stream."""
        if isinstance(item, exp.Table):
            if item.name in self.views:
                return True
            cte = self.ctes.get(item.name.lower())
            return cte is not None and self.query_has_stream(cte)
        if isinstance(item, exp.Subquery):
            return self.query_has_stream(item.this)
        return False

    def keeps_table_rows(self, select: exp.Expr) -> bool:
        """Returns whether a join returns table rows without a match in the stream, which would be repeated in
        each batch.
        """
        seen = False
        for item, join in from_items(select):
            here = self.is_stream(item)
            side = (join.side or "").upper() if join is not None else ""
            kind = (join.kind or "").upper() if join is not None else ""
            if kind not in ("SEMI", "ANTI") and (
                (side == "FULL" and (seen or here))
                or (side == "RIGHT" and seen and not here)
                or (side == "LEFT" and here)
            ):
                return True
            seen = seen or here
        return False

    def query_has_stream(self, query: exp.Expr) -> bool:
        if isinstance(query, exp.SetOperation):
            return self.query_has_stream(query.left) or self.query_has_stream(query.right)
        if isinstance(query, exp.Subquery):
            return self.query_has_stream(query.this)
        return any(self.is_stream(item) for item, _ in from_items(query))


def check_recursion(
    resolved: Resolved, place: Callable[[exp.Expr], Place | None], at: Place | None
) -> Iterator[SqlError]:
    """Refuses a query over a stream that reads itself, before anything else follows its inputs."""
    for with_ in resolved.expression.find_all(exp.With):
        if with_.args.get("recursive"):
            yield NotSupported(
                "WITH RECURSIVE in a statement over a stream is not supported",
                hint="store the rows with CREATE TABLE … AS, and query that table",
                place=place(with_) or at,
            )


def check_running(
    resolved: Resolved, place: Callable[[exp.Expr], Place | None], at: Place | None
) -> Iterator[SqlError]:
    """Yields the reasons why a query over a stream cannot run."""
    yield from _check(resolved.expression, Streams(resolved), place, at, outermost=True)
    for lateral in resolved.expression.find_all(exp.Lateral, exp.Table):
        if not isinstance(lateral.this, exp.Identifier) and not lateral.args.get("view"):
            yield NotSupported(
                "LATERAL, or a function in FROM, in a statement over a stream is not supported",
                hint="store the rows with CREATE TABLE … AS, and query that table; LATERAL VIEW explode(…) works",
                place=place(lateral.this) or at,
            )
    for path in resolved.expression.find_all(PathValues):
        if path.meta["json"]:
            yield NotSupported(
                f"the path {path.args['text'].name} goes into JSON text, which a running statement cannot",
                hint="declare the column as STRUCT, MAP or ARRAY, or query the table that the stream fills",
                place=place(path) or at,
            )


def _check(
    query: exp.Expr,
    streams: Streams,
    place: Callable[[exp.Expr], Place | None],
    at: Place | None,
    *,
    outermost: bool = False,
) -> Iterator[SqlError]:
    def refuse(what: str, node: exp.Expr | None = None) -> NotSupported:
        return NotSupported(
            f"{what} on a stream is not supported yet",
            hint="docs/limits.md lists what this version runs",
            place=(place(node) if node is not None else None) or at,
        )

    if isinstance(query, exp.Subquery):
        yield from _check(query.this, streams, place, at)
        return
    if isinstance(query, exp.SetOperation):
        yield NotSupported(
            f"{type(query).__name__.upper()} on a stream is not supported yet",
            hint="two INSERT INTO t SELECT … make a union; keep streams in tables for the others",
            place=place(query) or at,
        )
        return
    yield from _check_subqueries(query, streams, place, at)
    if not streams.query_has_stream(query):
        return
    if is_aggregated(query) and not outermost:  # type: ignore[arg-type]
        group = query.args.get("group") or query.expressions[0]
        yield NotSupported(
            "GROUP BY in a subquery of FROM on a stream: its groups change, and rows of a stream do not",
            hint="store the aggregate with CREATE TABLE … AS, and query that table",
            place=place(group) or at,
        )
    for key, title in _ENDLESS.items():
        if query.args.get(key):
            yield NotSupported(
                f"{title} on a stream: it has no end, so that none of its rows is the last",
                hint="store the rows with CREATE TABLE … AS, and query that table; CREATE VIEW names the query",
                place=place(query.args[key]) or at,
            )
    if query.args.get("distinct"):
        yield NotSupported(
            "DISTINCT on a stream stands in the outermost SELECT, without GROUP BY and OVER",
            hint="GROUP BY the columns, or keep the rows with CREATE TABLE … AS",
            place=place(query.args["distinct"]) or at,
        )
    if is_aggregated(query) and streams.keeps_table_rows(query):  # type: ignore[arg-type]
        yield refuse("an aggregate over a join that keeps rows of a table", query.args["joins"][0].this)
    seen = 0
    for item, join in from_items(query):
        here = streams.is_stream(item)
        kind = (join.kind or "").upper() if join is not None else ""
        if kind in ("SEMI", "ANTI") and here:
            yield refuse(f"{kind} JOIN that keeps rows of a table", item)
        if here and isinstance(item, exp.Subquery):
            yield from _check(item.this, streams, place, at)
        elif here and isinstance(item, exp.Table) and item.name.lower() in streams.ctes:
            yield from _check(streams.ctes[item.name.lower()], streams, place, at)
        seen += here
    if seen > 1:
        yield NotSupported(
            "a statement that changes rows reads one stream",
            hint="make one of them first: CREATE STREAM s AS SELECT … FROM a JOIN b ON …",
            place=at,
        )


def _check_subqueries(
    query: exp.Expr, streams: Streams, place: Callable[[exp.Expr], Place | None], at: Place | None
) -> Iterator[SqlError]:
    for sub in _subqueries(query):
        if streams.query_has_stream(sub):
            yield SqlError(
                "a subquery cannot read a stream: it has no end",
                hint="subqueries read tables; keep the stream's rows in one with CREATE TABLE … AS",
                place=place(sub) or at,
            )


def _subqueries(select: exp.Expr) -> Iterator[exp.Expr]:
    """Yields queries inside the expressions of a SELECT, not those in its FROM or WITH."""
    skipped = {id(select.args.get("from_")), id(select.args.get("with_"))}
    skipped |= {id(j.this) for j in select.args.get("joins") or ()}

    def walk(node: exp.Expr) -> Iterator[exp.Expr]:
        for child in node.iter_expressions():
            if id(child) in skipped:
                continue
            if isinstance(child, exp.Select | exp.SetOperation):
                yield child
            else:
                yield from walk(child)

    yield from walk(select)
