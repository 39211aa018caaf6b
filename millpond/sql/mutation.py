"""Standing changes of a table as queries: what UPDATE, DELETE, MERGE and UPSERT do, found by SELECTs.

A part of a mutation is a query over the target and other tables. Its first columns say which row of the target it is
about (the key, or the row number of a table without one), the others are the new row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from sqlglot import exp

from millpond.errors import SqlError
from millpond.sql import statements as st
from millpond.sql.builder import MutationBuilder, assigned_by, inserted_by, upsert_source
from millpond.sql.catalog import Relation
from millpond.sql.fold import Fold, identity_columns
from millpond.sql.folding import fold_merge, fold_rows, fold_upsert
from millpond.sql.resolve import Resolved
from millpond.types import Schema

if TYPE_CHECKING:
    from millpond.sql.check import Checker


@dataclass(frozen=True, slots=True)
class Part:
    """``end``: the rows found are deleted. ``put``: they replace the rows that their first columns name, or, when
    ``identified`` is false, are new."""

    action: Literal["put", "end"]
    query: Resolved
    identified: bool


@dataclass(frozen=True, slots=True)
class Mutation:
    """What a statement does to one table, all parts at once."""

    target: Relation
    parts: tuple[Part, ...]


def _put(build: MutationBuilder, select: exp.Select, *, identified: bool) -> Part | None:
    """A part that puts rows: the outputs after the identity are cast to the target's types."""
    resolved = build.resolve(select)
    if resolved is None:
        return None
    skip = len(identity_columns(build.target)) if identified else 0
    tree = resolved.expression
    outputs = list(tree.expressions)
    columns = list(resolved.schema.columns)
    for i, column in enumerate(build.target.schema.columns, start=skip):
        value = build.fit(outputs[i].unalias(), column, columns[i].type)
        outputs[i] = exp.alias_(value, column.name, quoted=True)
        columns[i] = column
    tree.set("expressions", outputs)
    return Part("put", Resolved(tree, Schema(tuple(columns)), resolved.inputs), identified)


def _end(build: MutationBuilder, select: exp.Select) -> Part | None:
    resolved = build.resolve(select)
    return None if resolved is None else Part("end", resolved, True)


def check_update(checker: Checker, s: st.Update) -> Mutation | Fold | None:
    target = checker.writable(s.target, s)
    if target is None:
        return None
    build = MutationBuilder(checker, s, target, s.alias or target.name)
    if build.runs(s.source, s.joins):
        return fold_rows(build, s) if checker.running_write(s) else None
    if not checker.plain_write(s):
        return None
    outputs = build.identity() + build.new_row(s.assignments, keep=True)
    part = _put(build, build.select(outputs, s.source, s.joins, s.where), identified=True)
    return Mutation(target, (part,)) if part is not None else None


def check_delete(checker: Checker, s: st.Delete) -> Mutation | Fold | None:
    target = checker.writable(s.target, s)
    if target is None:
        return None
    build = MutationBuilder(checker, s, target, s.alias or target.name)
    if build.runs(s.source, s.joins):
        return fold_rows(build, s) if checker.running_write(s) else None
    if not checker.plain_write(s):
        return None
    part = _end(build, build.select(build.identity(), s.source, s.joins, s.where))
    return Mutation(target, (part,)) if part is not None else None


def check_truncate(checker: Checker, s: st.Truncate) -> Mutation | None:
    target = checker.writable(s.name, s)
    if target is None:
        return None
    build = MutationBuilder(checker, s, target, target.name)
    part = _end(build, build.select(build.identity(), None, (), None))
    return Mutation(target, (part,)) if part is not None else None


def check_merge(checker: Checker, s: st.Merge) -> Mutation | Fold | None:
    target = checker.writable(s.target, s)
    if target is None:
        return None
    merge = s.expression
    into = merge.this
    build = MutationBuilder(checker, s, target, into.alias or target.name)
    if build.runs(merge.args["using"]):
        return fold_merge(build, s) if checker.running_write(s) else None
    if not checker.plain_write(s):
        return None
    source, on = merge.args["using"], merge.args["on"]
    parts: list[Part | None] = []
    seen: dict[str, list[exp.Expr]] = {"matched": [], "source": [], "target": []}
    for when in merge.args["whens"].expressions:
        matched = bool(when.args.get("matched"))
        kind = "matched" if matched else "target" if when.args.get("source") else "source"
        condition = when.args.get("condition")
        guards: list[exp.Expr] = [exp.Not(this=_true(c)) for c in seen[kind]]
        if condition is not None:
            guards.append(_true(condition))
        seen[kind].append(condition if condition is not None else exp.true())
        parts.append(_merge_part(build, kind, when.args["then"], source, on, guards))
    return Mutation(target, tuple(p for p in parts if p is not None)) if None not in parts else None


def _merge_part(
    build: MutationBuilder, kind: str, then: exp.Expr, source: exp.Expr, on: exp.Expr, guards: list[exp.Expr]
) -> Part | None:
    """One WHEN. ``kind``: matched; source, whose rows have no match in the target; target, the other way round."""
    if kind == "matched":
        select = exp.Select(from_=exp.From(this=build.table()))
        select.append("joins", exp.Join(this=source.copy(), on=on.copy()))
    else:
        outer, inner = (source.copy(), build.table()) if kind == "source" else (build.table(), source.copy())
        select = exp.Select(from_=exp.From(this=outer))
        absent = exp.Select(
            expressions=[exp.alias_(exp.Literal.number(1), "one")],
            from_=exp.From(this=inner),
            where=exp.Where(this=on.copy()),
        )
        guards = [exp.Not(this=exp.Exists(this=absent)), *guards]
    if guards:
        select.set("where", exp.Where(this=exp.and_(*[g.copy() for g in guards], copy=False)))
    if isinstance(then, exp.Insert):
        if kind != "source":
            build.error(SqlError("INSERT stands after WHEN NOT MATCHED"))
            return None
        select.set("expressions", build.new_row(inserted_by(build, then, source), keep=False))
        return _put(build, select, identified=False)
    if kind == "source":
        build.error(SqlError("after WHEN NOT MATCHED only INSERT can stand"))
        return None
    if isinstance(then, exp.Update):
        select.set(
            "expressions", build.identity() + build.new_row(assigned_by(build, then, source), keep=True)
        )
        return _put(build, select, identified=True)
    select.set("expressions", build.identity())
    return _end(build, select)


def check_upsert(checker: Checker, s: st.Upsert) -> Mutation | Fold | None:
    """Rows of the query replace the rows that ON finds, else they are new."""
    target = checker.writable(s.target, s)
    if target is None:
        return None
    query = s.query.expression
    if not isinstance(query, exp.Select):
        checker.refuse("UPSERT of a set operation", s)
        return None
    build = MutationBuilder(checker, s, target, target.name)
    found = upsert_source(build, s)
    if found is None:
        return None
    source, condition, assigned = found
    if build.runs(source):
        return fold_upsert(build, *found) if checker.running_write(s) else None
    if not checker.plain_write(s):
        return None
    matched = exp.Select(
        expressions=build.identity() + build.new_row(assigned, keep=True),
        from_=exp.From(this=build.table()),
        joins=[exp.Join(this=source.copy(), on=condition.copy())],
    )
    absent = exp.Select(
        expressions=[exp.alias_(exp.Literal.number(1), "one")],
        from_=exp.From(this=build.table()),
        where=exp.Where(this=condition.copy()),
    )
    fresh = exp.Select(
        expressions=build.new_row(assigned, keep=False),
        from_=exp.From(this=source.copy()),
        where=exp.Where(this=exp.Not(this=exp.Exists(this=absent))),
    )
    parts = (_put(build, matched, identified=True), _put(build, fresh, identified=False))
    return Mutation(target, tuple(p for p in parts if p is not None)) if None not in parts else None


def _true(condition: exp.Expr) -> exp.Expr:
    """The condition, FALSE where it is NULL."""
    return exp.Coalesce(this=condition.copy(), expressions=[exp.false()])
