"""Implements 'on.miss': what happens to a row of the stream without a match in a table.

It concerns the joins of the SELECT that reads the stream, with tables, by an equality: there, a matching row of the
table has a key that is not NULL.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from sqlglot import exp

from millpond.errors import InvalidOption
from millpond.sql.assign import build_type
from millpond.sql.conjuncts import conjuncts, outer_columns, replace_columns
from millpond.sql.resolve import Resolved
from millpond.sql.running_queries import from_items
from millpond.types import Column, Schema

SEQ = "_seq"
MissQuery = tuple[Resolved, tuple[str, ...]]
"""A query for rows without a match, and the tables that it reports."""
_HINT = "it is for INNER and LEFT joins of the stream with tables, ON table.column = …"


WAIT = 60.0
"""Seconds that a row waits for its match, without 'on.miss.timeout'."""


@dataclass(frozen=True)
class MissOptions:
    """Contains 'on.miss' (None: the join decides), how long 'retry' waits, and what happens after that."""

    mode: str | None
    timeout: float
    fallback: str

    @property
    def last(self) -> str | None:
        """Returns what finally happens to a row without a match."""
        return self.fallback if self.mode == "retry" else self.mode


def miss_options(values: Mapping[str, Any]) -> MissOptions:
    """Reads the options of a statement. Raises InvalidOption."""
    mode = values.get("on.miss")
    for name in ("on.miss.timeout", "on.miss.fallback"):
        if values.get(name) is not None and mode != "retry":
            raise InvalidOption(f"option \"{name}\" needs 'on.miss' = 'retry'")
    timeout = values.get("on.miss.timeout")
    fallback = values.get("on.miss.fallback") or ("error" if mode == "retry" else "")
    return MissOptions(mode, WAIT if timeout is None else timeout, fallback)


def check_misses(
    resolved: Resolved | None, how: MissOptions, defaults: Mapping[str, str]
) -> tuple[Resolved, MissQuery] | None:
    """Returns the query of a statement that treats misses this way, and the one that finds them; None if the join
    decides. Without ``resolved``, the statement cannot have 'on.miss'. Raises InvalidOption.
    """
    if defaults and how.last != "default":
        first = next(iter(defaults))
        raise InvalidOption(f"option \"default.{first}\" needs 'on.miss' = 'default'")
    if how.mode is None:
        return None
    if resolved is None:
        raise InvalidOption("'on.miss' is for queries: this statement changes rows", hint="leave it out")
    misses = miss_query(resolved)
    if how.last in ("error", "fail"):
        return resolved, misses
    return with_misses(resolved, how.last or "", defaults), misses


@dataclass(frozen=True)
class _Joined:
    join: exp.Join
    alias: str
    table: str
    key: exp.Column


def with_misses(resolved: Resolved, mode: str, defaults: Mapping[str, str]) -> Resolved:
    """Returns the query that treats a miss as ``mode`` says: 'null', 'drop' or 'default'. Raises InvalidOption."""
    made = Resolved(resolved.expression.copy(), resolved.schema, resolved.inputs)
    select = _reading(made)
    joined = _joined(made, select)
    side = "" if mode == "drop" else "LEFT"
    for j in joined:
        j.join.set("side", side or None)
        j.join.set("kind", None)
    if mode == "default":
        _put_defaults(made, select, joined, defaults)
    return made


def miss_query(resolved: Resolved) -> MissQuery:
    """Returns a query for the rows of the stream without a match: ``_seq``, and for each of the named tables whether it
    is the one without a match. Raises InvalidOption.
    """
    made = Resolved(resolved.expression.copy(), resolved.schema, resolved.inputs)
    select = _reading(made)
    joined = _joined(made, select)
    stream = _stream_item(made, select)
    for j in joined:
        j.join.set("side", "LEFT")
        j.join.set("kind", None)
    missed = [_is_null(j.key) for j in joined]
    conditions: list[exp.Expr] = [exp.paren(exp.or_(*[m.copy() for m in missed], copy=False), copy=False)]
    where = select.args.get("where")
    if where is not None:
        conditions += [
            part.copy()
            for part in conjuncts(where.this)
            if not part.find(exp.Select) and all(c.table.lower() == stream for c in outer_columns(part))
        ]
    seq = exp.Column(this=exp.to_identifier(SEQ, quoted=True), table=exp.to_identifier(stream, quoted=True))
    seq.meta["dtype"] = pa.int64()
    query = exp.Select(
        expressions=[
            exp.alias_(seq, "missed", quoted=True),
            *[exp.alias_(m, f"m{i}", quoted=True) for i, m in enumerate(missed)],
        ],
        from_=select.args["from_"],
        joins=select.args.get("joins"),
        where=exp.Where(this=exp.and_(*conditions, copy=False)),
    )
    columns = [Column("missed", pa.int64())] + [Column(f"m{i}", pa.bool_()) for i in range(len(joined))]
    return Resolved(query, Schema(tuple(columns)), resolved.inputs), tuple(j.table for j in joined)


def _reading(resolved: Resolved) -> exp.Select:
    """Returns the SELECT that reads the stream, if only renaming SELECTs surround it."""
    views = {i.view for i in resolved.inputs if i.relation.running}
    select: exp.Expr = resolved.expression
    while True:
        while isinstance(select, exp.Subquery):
            select = select.this
        if not isinstance(select, exp.Select):
            break
        items = list(from_items(select))
        if any(isinstance(i, exp.Table) and i.name in views for i, _ in items):
            return select
        if len(items) != 1 or not isinstance(items[0][0], exp.Subquery):
            break
        select = items[0][0]
    raise InvalidOption("'on.miss' cannot be used in this query", hint=_HINT)


def _stream_item(resolved: Resolved, select: exp.Select) -> str:
    views = {i.view for i in resolved.inputs if i.relation.running}
    return next(
        i.alias.lower() for i, _ in from_items(select) if isinstance(i, exp.Table) and i.name in views
    )


def _joined(resolved: Resolved, select: exp.Select) -> list[_Joined]:
    names = {i.view: i.relation.name for i in resolved.inputs if i.relation.kind == "table"}
    found: list[_Joined] = []
    for item, join in from_items(select):
        if not isinstance(item, exp.Table) or item.name not in names:
            continue
        side = (join.side or "").upper() if join is not None else "FROM"
        kind = (join.kind or "").upper() if join is not None else ""
        key = next(_keys(join.args.get("on"), item.alias), None) if join is not None else None
        if side not in ("", "LEFT") or kind not in ("", "INNER", "OUTER") or key is None or join is None:
            raise InvalidOption(
                f"'on.miss' cannot tell whether a row of table \"{names[item.name]}\" was found", hint=_HINT
            )
        found.append(_Joined(join, item.alias, names[item.name], key))
    if not found:
        raise InvalidOption("'on.miss' needs a join with a table", hint=_HINT)
    return found


def _keys(condition: exp.Expr | None, alias: str) -> Iterator[exp.Column]:
    for part in conjuncts(condition) if condition is not None else ():
        if isinstance(part, exp.EQ):
            for side, other in ((part.this, part.expression), (part.expression, part.this)):
                column = side.unnest()
                if isinstance(column, exp.Column) and column.table.lower() == alias.lower():
                    if all(c.table.lower() != alias.lower() for c in outer_columns(other)):
                        yield column


def _is_null(key: exp.Column) -> exp.Expr:
    return exp.Is(this=key.copy(), expression=exp.Null())


def _put_defaults(
    resolved: Resolved, select: exp.Select, joined: list[_Joined], defaults: Mapping[str, str]
) -> None:
    keys = {j.alias.lower(): j.key for j in joined}
    used: set[str] = set()

    def leaf(column: exp.Column) -> exp.Expr:
        key = keys.get(column.table.lower())
        value = defaults.get(column.name.lower())
        if key is None or value is None:
            return column.copy()
        used.add(column.name.lower())
        dtype = column.meta.get("dtype")
        default = exp.Cast(this=exp.Literal.string(value), to=build_type(dtype or pa.string()))
        return exp.Case(ifs=[exp.If(this=_is_null(key), true=default)], default=column.copy())

    for name in ("expressions", "group", "having", "where"):
        part = select.args.get(name)
        if isinstance(part, list):
            select.set(name, [replace_columns(p, leaf) for p in part])
        elif part is not None:
            select.set(name, replace_columns(part, leaf))
    left = sorted(set(defaults) - used)
    if left:
        raise InvalidOption(
            f'option "default.{left[0]}": the query uses no column of that name of a joined table', hint=_HINT
        )
