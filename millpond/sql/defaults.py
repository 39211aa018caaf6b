"""Gives columns their DEFAULT: a constant expression, stored as SQL."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import pyarrow as pa
from sqlglot import exp

from millpond.errors import NotSupported, SqlError, TypeMismatch
from millpond.sql import statements as st
from millpond.sql.assign import assignable, build_type
from millpond.sql.catalog import Catalog
from millpond.sql.dialect import sql_of
from millpond.sql.grouping import contains_aggregate, contains_window
from millpond.sql.materialized_view import changing_functions
from millpond.sql.parse import parse
from millpond.sql.resolve import Resolved
from millpond.sql.resolve.resolver import Resolver
from millpond.sql.typing import type_of
from millpond.types import Column, Schema, type_name


def declared_columns(
    columns: Sequence[st.ColumnDef], resolver: Resolver, query: st.Query | None = None
) -> tuple[Column, ...]:
    """Returns the columns of a table, which a ``query`` fills or not. Raises the error of a DEFAULT."""
    if query is not None:
        return columns_without_defaults(columns, "one that a query fills")
    return tuple(Column(c.name, c.type, c.nullable, default=_checked(c, resolver)) for c in columns)


def columns_without_defaults(columns: Sequence[st.ColumnDef], what: str) -> tuple[Column, ...]:
    """Returns the columns of something else than a table that statements fill. Raises the error of a DEFAULT."""
    for column in columns:
        if column.default is not None:
            raise SqlError(
                f'column "{column.name}" has a DEFAULT: that is for tables without a query, not for {what}',
                place=column.place,
            )
    return tuple(Column(c.name, c.type, c.nullable) for c in columns)


def _checked(column: st.ColumnDef, resolver: Resolver) -> str | None:
    given = column.default
    if given is None:
        return None
    what = f'the DEFAULT of column "{column.name}"'
    if given.find(exp.Column, exp.Query, exp.Placeholder, exp.Parameter):
        raise SqlError(f"{what} is not a constant", place=column.place)
    value = resolver.value(given.copy())
    if resolver.errors:
        raise resolver.errors[0]
    if contains_aggregate(value) or contains_window(value):
        raise SqlError(f"{what} is not a constant", place=column.place)
    changing = next(iter(changing_functions(value)), None)
    if changing is not None:
        raise NotSupported(
            f"{what} calls {changing}(), which returns another value each time",
            hint="give that value in the statement that inserts",
            place=column.place,
        )
    source, t = type_of(value), pa.types
    timed = t.is_date(column.type) or t.is_timestamp(column.type)
    if not assignable(source, column.type) and not (timed and source is not None and t.is_string(source)):
        raise TypeMismatch(
            f"{what} is {type_name(source)}, the column is {type_name(column.type)}", place=column.place
        )
    return sql_of(given)


def default_of(column: Column) -> exp.Expr:
    """Returns the value that a row has in a column for which it is given none: not resolved yet, in its type."""
    if column.default is None:
        return exp.Null()
    value = _parsed(column.default).copy()
    return value if column.type is None else exp.Cast(this=value, to=build_type(column.type))


def is_default(value: exp.Expr) -> bool:
    """Returns whether a value is the word DEFAULT."""
    named = isinstance(value, exp.Column) and not value.table and isinstance(value.this, exp.Identifier)
    return named and value.name.upper() == "DEFAULT" and not value.this.args.get("quoted")


def without_last(columns: Sequence[str], given: int, target: Schema) -> list[str]:
    """Returns the first columns, as many as are given, if the others have a DEFAULT; else all."""
    rest = [target.find(name) for name in columns[given:]]
    return list(columns[:given] if rest and all(c is not None and c.default for c in rest) else columns)


def defaults_query(columns: Sequence[Column]) -> Resolved | None:
    """Returns a query for the values of all columns that have a DEFAULT; None if none has."""
    outputs = [exp.alias_(default_of(c), c.name, quoted=True) for c in columns if c.default is not None]
    if not outputs:
        return None
    return Resolver(Catalog()).resolve(exp.Select(expressions=outputs))


@lru_cache(maxsize=1024)
def _parsed(text: str) -> exp.Expr:
    (statement,) = parse(f"SELECT {text}").require()
    assert isinstance(statement, st.Select)
    found: exp.Expr = statement.query.expression.expressions[0].unalias()
    return found
