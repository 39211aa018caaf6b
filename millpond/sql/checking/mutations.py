"""Checks UPDATE, DELETE, MERGE, UPSERT and TRUNCATE: SELECTs find what they change in a table."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from sqlglot import exp

from millpond.errors import SqlError
from millpond.options import unknown_option
from millpond.sql import statements as st
from millpond.sql.builder import MutationBuilder, assigned_by, inserted_by, upsert_source
from millpond.sql.catalog import Relation
from millpond.sql.checking.queries import Queries
from millpond.sql.fold import Fold, identity_columns
from millpond.sql.folding import fold_merge, fold_rows, fold_upsert
from millpond.sql.materialized_view import follows_its_query
from millpond.sql.mutation import Mutation, Part
from millpond.sql.options import RUNNING_OPTIONS
from millpond.sql.reserved_names import is_shadow
from millpond.sql.resolve import Resolved
from millpond.sql.statement_text import title
from millpond.types import Schema

_Rows = TypeVar("_Rows", st.Update, st.Delete)


def _put(build: MutationBuilder, select: exp.Select, *, identified: bool) -> Part | None:
    """Returns a part that puts rows: casts the outputs after the identity to the target's types."""
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


def update_part(build: MutationBuilder, s: st.Update) -> Part | None:
    """Returns the part of an UPDATE, which puts rows, computed once."""
    outputs = build.identity() + build.new_row(s.assignments, keep=True)
    return _put(build, build.select(outputs, s.source, s.joins, s.where), identified=True)


def delete_part(build: MutationBuilder, s: st.Delete) -> Part | None:
    """Returns the part of a DELETE, which deletes rows, computed once."""
    return _end(build, build.select(build.identity(), s.source, s.joins, s.where))


def check_update(checker: Queries, s: st.Update) -> Mutation | Fold | None:
    return _check_rows(checker, s, update_part)


def check_delete(checker: Queries, s: st.Delete) -> Mutation | Fold | None:
    return _check_rows(checker, s, delete_part)


def _check_rows(
    checker: Queries, s: _Rows, part_of: Callable[[MutationBuilder, _Rows], Part | None]
) -> Mutation | Fold | None:
    """Checks a statement on the rows that its WHERE finds, which runs once or on a stream."""
    target = _writable(checker, s.target, s)
    if target is None:
        return None
    build = MutationBuilder(checker, s, target, s.alias or target.name)
    if build.runs(s.source, s.joins):
        _refuse_for_running(checker, s)
        return fold_rows(build, s)
    _refuse_for_once(checker, s)
    part = part_of(build, s)
    return Mutation(target, (part,)) if part is not None else None


def check_truncate(checker: Queries, s: st.Truncate) -> Mutation | None:
    target = _writable(checker, s.name, s)
    if target is None:
        return None
    build = MutationBuilder(checker, s, target, target.name)
    part = _end(build, build.select(build.identity(), None, (), None))
    return Mutation(target, (part,)) if part is not None else None


def check_merge(checker: Queries, s: st.Merge) -> Mutation | Fold | None:
    target = _writable(checker, s.target, s)
    if target is None:
        return None
    merge = s.expression
    into = merge.this
    build = MutationBuilder(checker, s, target, into.alias or target.name)
    if build.runs(merge.args["using"]):
        _refuse_for_running(checker, s)
        return fold_merge(build, s)
    _refuse_for_once(checker, s)
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
    """Builds the part of one WHEN. ``kind``: matched; source (source rows without a match in the target); target (the
    reverse).
    """
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


def check_upsert(checker: Queries, s: st.Upsert) -> Mutation | Fold | None:
    """Checks UPSERT: rows of the query replace the rows that ON finds; the others are new."""
    target = _writable(checker, s.target, s)
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
        _refuse_for_running(checker, s)
        return fold_upsert(build, *found)
    _refuse_for_once(checker, s)
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
    """Returns the condition, with FALSE in place of NULL."""
    return exp.Coalesce(this=condition.copy(), expressions=[exp.false()])


def _writable(checker: Queries, name: str, s: st.Statement) -> Relation | None:
    """Returns the table that a statement changes."""
    target = checker.catalog.find(name)
    if target is None:
        checker.errors.append(checker.catalog.unknown(name, "table", s.place))
    elif target.kind != "table":
        checker.errors.append(
            SqlError(f'"{target.name}" is a {target.kind}: its rows cannot be changed', place=s.place)
        )
        return None
    elif target.live or is_shadow(target.name):
        checker.errors.append(follows_its_query(target.name, s.place))
        return None
    elif target.is_open:
        return None
    return target


def _refuse_for_once(checker: Queries, s: st.Update | st.Delete | st.Merge | st.Upsert) -> None:
    """Refuses clauses that only a statement driven by a stream can have."""
    if s.settings:
        raise unknown_option(title(s), (), s.settings[0])
    if isinstance(s, st.Update | st.Delete) and s.returning_into:
        checker.errors.append(
            SqlError(
                "RETURNING … INTO belongs to a statement that a stream drives",
                hint="name the stream: UPDATE t SET … FROM stream s WHERE …",
                place=s.place,
            )
        )


def _refuse_for_running(checker: Queries, s: st.Update | st.Delete | st.Merge | st.Upsert) -> None:
    """Reads the options of a statement driven by a stream, and refuses those that it cannot have."""
    left = checker.running_settings(s.settings, title(s))
    if left:
        raise unknown_option(title(s), RUNNING_OPTIONS, left[0])
