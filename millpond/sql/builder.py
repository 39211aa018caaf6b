"""Builds the parts that every statement on the rows of a table has in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import pyarrow as pa
from sqlglot import exp

from millpond.errors import Error, SqlError, TypeMismatch, UnknownName, did_you_mean
from millpond.sql import statements as st
from millpond.sql.assign import assignable, build_type, check_count
from millpond.sql.catalog import Catalog, Relation
from millpond.sql.defaults import default_of, is_default
from millpond.sql.fold import identity_columns
from millpond.sql.grouping import contains_aggregate
from millpond.sql.resolve import Resolved, Resolver
from millpond.sql.typing import type_of
from millpond.types import Column, Schema, type_name

_OLD = "__old_"


class Resolving(Protocol):
    """Resolves queries against a catalog, and collects the errors."""

    catalog: Catalog
    errors: list[Error]

    def resolver(self, catalog: Catalog | None = None) -> Resolver: ...


class MutationBuilder:
    """Builds the queries of one statement on one target."""

    def __init__(self, checker: Resolving, statement: st.Statement, target: Relation, alias: str):
        self.checker = checker
        self.statement = statement
        self.target = target
        self.alias = alias
        # The target is also read as itself, with its row numbers, under a name that no text can contain.
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
                stored_in=target.stored_in,
            )
        )

    def table(self) -> exp.Table:
        """Returns the target as an item of FROM."""
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
        """Returns every column of the target: the assigned value, else the old one (``keep``) or its default."""
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
            elif contains_aggregate(value):
                values[column.name] = exp.Null()
                at = self.checker.resolver(self.catalog).place(value)
                where, hint = "SET" if keep else "VALUES", "use a subquery: (SELECT … FROM …)"
                self.error(SqlError(f"an aggregate cannot stand in {where}", place=at, hint=hint))
            else:
                values[column.name] = default_of(column) if is_default(value) else value.copy()
        row: list[exp.Expr] = []
        for column in self.target.schema:
            given = values.get(column.name)
            if given is None:
                given = self.column(column.name) if keep else default_of(column)
            row.append(exp.alias_(exp.Paren(this=given), column.name, quoted=True))
        return row

    def error(self, error: SqlError) -> None:
        error.place = error.place or self.statement.place
        self.checker.errors.append(error)

    def report(self, error: SqlError, node: exp.Expr) -> None:
        """Reports an error at a place in the text."""
        error.place = self.resolver.place(node)
        self.error(error)

    def select(
        self,
        outputs: list[exp.Expr],
        source: exp.Expr | None,
        joins: Sequence[exp.Join],
        where: exp.Expr | None,
    ) -> exp.Select:
        """Selects from the target together with the source of a statement."""
        select = exp.Select(expressions=outputs, from_=exp.From(this=self.table()))
        if source is not None:
            select.append("joins", exp.Join(this=source.copy(), kind="CROSS"))
        for join in joins:
            select.append("joins", join.copy())
        if where is not None:
            select.set("where", exp.Where(this=where.copy()))
        return select

    def fit(self, value: exp.Expr, column: Column, source: pa.DataType | None = None) -> exp.Expr:
        """Casts the value to the type of the column that stores it."""
        source = source or type_of(value)
        if not assignable(source, column.type):
            self.error(
                TypeMismatch(
                    f'column "{column.name}" is {type_name(column.type)}, the value is {type_name(source)}',
                    hint=f"CAST(… AS {type_name(column.type)})",
                )
            )
        if source != column.type and column.type is not None:
            return exp.Cast(this=value.copy(), to=build_type(column.type))
        return value

    def resolve(self, select: exp.Select) -> Resolved | None:
        self.resolver = self.checker.resolver(self.catalog)
        resolved = self.resolver.resolve(select)
        self.checker.errors.extend(self.resolver.errors)
        return None if self.resolver.errors else resolved

    def runs(self, source: exp.Expr | None, joins: Sequence[exp.Join] = ()) -> bool:
        """Returns whether the source of the statement is or contains a stream."""
        if source is None:
            return False
        select = exp.Select(expressions=[exp.alias_(exp.true(), "x")], from_=exp.From(this=source.copy()))
        for join in joins:
            select.append("joins", exp.Join(this=join.this.copy(), kind="CROSS"))
        return self.checker.resolver(self.catalog).resolve(select).running


def assigned_by(build: MutationBuilder, then: exp.Update, source: exp.Expr) -> list[tuple[str, exp.Expr]]:
    if isinstance(then.args.get("expressions"), exp.Star) or any(
        isinstance(e, exp.Star) for e in then.expressions
    ):
        return _all_of(build, source)
    return [(e.this.name, e.expression) for e in then.expressions]


def inserted_by(build: MutationBuilder, then: exp.Insert, source: exp.Expr) -> list[tuple[str, exp.Expr]]:
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
    """Expands `UPDATE SET *` and `INSERT *`: the source's columns of the same names."""
    alias = exp.to_identifier(source.alias_or_name, quoted=True)
    return [
        (c.name, exp.Column(this=exp.to_identifier(c.name, quoted=True), table=alias.copy()))
        for c in build.target.schema
    ]


UpsertSource = tuple[exp.Subquery, exp.Expr, list[tuple[str, exp.Expr]]]


def upsert_source(build: MutationBuilder, s: st.Upsert) -> UpsertSource | None:
    """Returns the query with its outputs as __v0, __v1, … and whatever else ON reads from its inputs as __o0, __o1, …;
    ON over these; and the values for the columns of the target.
    """
    query = s.query.expression
    resolved = build.resolve(query)  # type: ignore[arg-type]
    if resolved is None:
        return None
    names = [c.name for c in build.target.schema] if not s.columns else list(s.columns)
    wrong = check_count(len(resolved.schema), names, "the query", s.place)
    if wrong is not None:
        build.error(wrong)
        return None
    inner, condition = query.copy(), s.on.copy()
    renamed = [f"__v{i}" for i in range(len(names))]
    outputs = [o.unalias() for o in resolved.expression.expressions]
    for i, column in enumerate(
        c for c in list(condition.find_all(exp.Column)) if c.table.lower() != build.alias.lower()
    ):
        given = next((n for n, o in enumerate(outputs) if _names(column, o)), None)
        if given is None:
            inner.append("expressions", exp.alias_(column.copy(), f"__o{i}", quoted=True))
            renamed.append(f"__o{i}")
        column.replace(_out(f"__o{i}" if given is None else f"__v{given}"))
    columns = [exp.to_identifier(n, quoted=True) for n in renamed]
    alias = exp.TableAlias(this=exp.to_identifier("__source", quoted=True), columns=columns)
    source = exp.Subquery(this=inner, alias=alias)
    return source, condition, [(n, _out(f"__v{i}")) for i, n in enumerate(names)]


def _names(column: exp.Column, output: exp.Expr) -> bool:
    """Returns whether a column as written is this output of the resolved query."""
    return (
        isinstance(output, exp.Column)
        and output.name.lower() == column.name.lower()
        and column.table.lower() in ("", output.table.lower())
    )


def _out(name: str) -> exp.Column:
    return exp.Column(
        this=exp.to_identifier(name, quoted=True), table=exp.to_identifier("__source", quoted=True)
    )
