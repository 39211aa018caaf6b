"""Standing changes of a table as queries: what UPDATE, DELETE, MERGE and UPSERT do, found by SELECTs.

A part of a mutation is a query over the target and other tables. Its first columns say which row of the target it is
about (the key, or the row number of a table without one), the others are the new row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import pyarrow as pa
from sqlglot import exp

from millpond.changes import ROW
from millpond.errors import SqlError, TypeMismatch, UnknownName, did_you_mean
from millpond.sql import statements as st
from millpond.sql.assign import assignable, build_type, check_count
from millpond.sql.catalog import Catalog, Relation
from millpond.sql.resolve import Resolved
from millpond.types import Column, Schema, type_name

if TYPE_CHECKING:
    from millpond.sql.check import Checker

_OLD = "__old_"


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


def identity_columns(target: Relation) -> tuple[Column, ...]:
    """The columns by which a row of the target is known."""
    if target.schema.key:
        return tuple(c for k in target.schema.key if (c := target.schema.find(k)) is not None)
    return (Column(ROW, pa.int64(), nullable=False),)


class MutationBuilder:
    """Makes the queries of one statement on one target."""

    def __init__(self, checker: Checker, statement: st.Statement, target: Relation, alias: str):
        self.checker = checker
        self.statement = statement
        self.target = target
        self.alias = alias
        # The target is also read as itself, with its row numbers, under a name that no text can spell.
        self.hidden = f"__target of {target.name}"
        columns = (
            target.schema.columns
            if target.schema.key
            else (*target.schema.columns, *identity_columns(target))
        )
        self.catalog: Catalog = checker.catalog.copy()
        self.catalog.add(
            Relation(
                self.hidden,
                "table",
                Schema(columns, target.schema.key),
                rows_of=target.name,
                place=target.place,
            )
        )

    def table(self) -> exp.Table:
        """The target as an item of FROM."""
        return exp.Table(
            this=exp.to_identifier(self.hidden, quoted=True),
            alias=exp.TableAlias(this=exp.to_identifier(self.alias, quoted=True)),
        )

    def column(self, name: str) -> exp.Column:
        return exp.Column(
            this=exp.to_identifier(name, quoted=True), table=exp.to_identifier(self.alias, quoted=True)
        )

    def identity(self) -> list[exp.Expr]:
        return [
            exp.alias_(self.column(c.name), _OLD + c.name, quoted=True) for c in identity_columns(self.target)
        ]

    def new_row(self, assigned: Sequence[tuple[str, exp.Expr]], *, keep: bool) -> list[exp.Expr]:
        """Every column of the target: what is assigned, else what it was (``keep``) or NULL."""
        values: dict[str, exp.Expr] = {}
        for name, value in assigned:
            column = self.target.schema.find(name)
            if column is None:
                known = self.target.schema.names
                self.error(
                    UnknownName(
                        f'column "{name}" is not in table "{self.target.name}"',
                        hint=did_you_mean(name, known, f"its columns: {', '.join(known)}"),
                    )
                )
            elif column.name in values:
                self.error(SqlError(f'column "{column.name}" is assigned twice'))
            else:
                values[column.name] = value.copy()
        row: list[exp.Expr] = []
        for column in self.target.schema:
            given = values.get(column.name)
            if given is None:
                given = self.column(column.name) if keep else exp.Null()
            row.append(exp.alias_(exp.Paren(this=given), column.name, quoted=True))
        return row

    def error(self, error: SqlError) -> None:
        error.place = error.place or self.statement.place
        self.checker.errors.append(error)

    def put(self, select: exp.Select, *, identified: bool) -> Part | None:
        """A part that puts rows: the outputs after the identity are cast to the target's types."""
        resolved = self._resolve(select)
        if resolved is None:
            return None
        skip = len(identity_columns(self.target)) if identified else 0
        tree = resolved.expression
        outputs = list(tree.expressions)
        columns = list(resolved.schema.columns)
        for i, column in enumerate(self.target.schema.columns, start=skip):
            source = columns[i].type
            value = outputs[i].unalias()
            if not assignable(source, column.type):
                self.error(
                    TypeMismatch(
                        f'column "{column.name}" is {type_name(column.type)}, the value is {type_name(source)}',
                        hint=f"CAST(… AS {type_name(column.type)})",
                    )
                )
            if source != column.type and column.type is not None:
                value = exp.Cast(this=value.copy(), to=build_type(column.type))
            outputs[i] = exp.alias_(value, column.name, quoted=True)
            columns[i] = column
        tree.set("expressions", outputs)
        return Part("put", Resolved(tree, Schema(tuple(columns)), resolved.inputs), identified)

    def end(self, select: exp.Select) -> Part | None:
        resolved = self._resolve(select)
        return None if resolved is None else Part("end", resolved, True)

    def _resolve(self, select: exp.Select) -> Resolved | None:
        checker = self.checker
        resolver = checker.resolver(self.catalog)
        resolved = resolver.resolve(select)
        checker.errors.extend(resolver.errors)
        if resolver.errors:
            return None
        if resolved.running:
            checker.refuse(f"a running {type(self.statement).__name__.upper()}", self.statement)
            return None
        return resolved


def check_update(checker: Checker, s: st.Update) -> Mutation | None:
    target = checker.writable(s.target, s)
    if target is None or not checker.plain_write(s):
        return None
    build = MutationBuilder(checker, s, target, s.alias or target.name)
    outputs = build.identity() + build.new_row(s.assignments, keep=True)
    part = build.put(_select(outputs, build, s.source, s.joins, s.where), identified=True)
    return Mutation(target, (part,)) if part is not None else None


def check_delete(checker: Checker, s: st.Delete) -> Mutation | None:
    target = checker.writable(s.target, s)
    if target is None or not checker.plain_write(s):
        return None
    build = MutationBuilder(checker, s, target, s.alias or target.name)
    part = build.end(_select(build.identity(), build, s.source, s.joins, s.where))
    return Mutation(target, (part,)) if part is not None else None


def check_truncate(checker: Checker, s: st.Truncate) -> Mutation | None:
    target = checker.writable(s.name, s)
    if target is None:
        return None
    build = MutationBuilder(checker, s, target, target.name)
    part = build.end(_select(build.identity(), build, None, (), None))
    return Mutation(target, (part,)) if part is not None else None


def check_merge(checker: Checker, s: st.Merge) -> Mutation | None:
    target = checker.writable(s.target, s)
    if target is None or not checker.plain_write(s):
        return None
    merge = s.expression
    into = merge.this
    build = MutationBuilder(checker, s, target, into.alias or target.name)
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
        select.set("expressions", build.new_row(_inserted(build, then, source), keep=False))
        return build.put(select, identified=False)
    if kind == "source":
        build.error(SqlError("after WHEN NOT MATCHED only INSERT can stand"))
        return None
    if isinstance(then, exp.Update):
        select.set("expressions", build.identity() + build.new_row(_assigned(build, then, source), keep=True))
        return build.put(select, identified=True)
    select.set("expressions", build.identity())
    return build.end(select)


def _assigned(build: MutationBuilder, then: exp.Update, source: exp.Expr) -> list[tuple[str, exp.Expr]]:
    if isinstance(then.args.get("expressions"), exp.Star) or any(
        isinstance(e, exp.Star) for e in then.expressions
    ):
        return _all_of(build, source)
    return [(e.this.name, e.expression) for e in then.expressions]


def _inserted(build: MutationBuilder, then: exp.Insert, source: exp.Expr) -> list[tuple[str, exp.Expr]]:
    if isinstance(then.this, exp.Star):
        return _all_of(build, source)
    names = (
        [c.name for c in then.this.expressions] if then.this is not None else list(build.target.schema.names)
    )
    values = list(then.expression.expressions)
    wrong = check_count(len(values), names, "INSERT", build.statement.place)
    if wrong is not None:
        build.error(wrong)
        return []
    return list(zip(names, values, strict=True))


def _all_of(build: MutationBuilder, source: exp.Expr) -> list[tuple[str, exp.Expr]]:
    """`UPDATE SET *`, `INSERT *`: the source's columns of the same names."""
    alias = exp.to_identifier(source.alias_or_name, quoted=True)
    return [
        (c.name, exp.Column(this=exp.to_identifier(c.name, quoted=True), table=alias.copy()))
        for c in build.target.schema
    ]


def check_upsert(checker: Checker, s: st.Upsert) -> Mutation | None:
    """Rows of the query replace the rows that ON finds, else they are new."""
    target = checker.writable(s.target, s)
    if target is None or not checker.plain_write(s):
        return None
    query = s.query.expression
    if not isinstance(query, exp.Select):
        checker.refuse("UPSERT of a set operation", s)
        return None
    build = MutationBuilder(checker, s, target, target.name)
    names = [c.name for c in target.schema] if not s.columns else list(s.columns)
    wrong = check_count(len(query.expressions), names, "the query", s.place)
    if wrong is not None and not any(e.is_star for e in query.expressions):
        build.error(wrong)
        return None
    source, condition = _upsert_source(query, s.on, names, build.alias)
    assigned: list[tuple[str, exp.Expr]] = [(n, _out(f"__v{i}")) for i, n in enumerate(names)]
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
    parts = (build.put(matched, identified=True), build.put(fresh, identified=False))
    return Mutation(target, tuple(p for p in parts if p is not None)) if None not in parts else None


def _upsert_source(
    query: exp.Select, on: exp.Expr, names: list[str], target: str
) -> tuple[exp.Subquery, exp.Expr]:
    """The query with its outputs as __v0, __v1, … and what ON takes from its inputs as __o0, __o1, …"""
    inner = query.copy()
    condition = on.copy()
    outputs = [exp.alias_(e.unalias(), f"__v{i}", quoted=True) for i, e in enumerate(inner.expressions)]
    for i, column in enumerate(
        c for c in list(condition.find_all(exp.Column)) if c.table.lower() != target.lower()
    ):
        outputs.append(exp.alias_(column.copy(), f"__o{i}", quoted=True))
        column.replace(_out(f"__o{i}"))
    inner.set("expressions", outputs)
    return exp.Subquery(
        this=inner, alias=exp.TableAlias(this=exp.to_identifier("__source", quoted=True))
    ), condition


def _out(name: str) -> exp.Column:
    return exp.Column(
        this=exp.to_identifier(name, quoted=True), table=exp.to_identifier("__source", quoted=True)
    )


def _select(
    outputs: list[exp.Expr],
    build: MutationBuilder,
    source: exp.Expr | None,
    joins: Sequence[exp.Join],
    where: exp.Expr | None,
) -> exp.Select:
    select = exp.Select(expressions=outputs, from_=exp.From(this=build.table()))
    if source is not None:
        select.append("joins", exp.Join(this=source.copy(), kind="CROSS"))
    for join in joins:
        select.append("joins", join.copy())
    if where is not None:
        select.set("where", exp.Where(this=where.copy()))
    return select


def _true(condition: exp.Expr) -> exp.Expr:
    """The condition, FALSE where it is NULL."""
    return exp.Coalesce(this=condition.copy(), expressions=[exp.false()])
