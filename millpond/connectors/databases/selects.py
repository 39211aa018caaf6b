"""Writes the SELECTs over a table or a query of a database."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.sql import quoted_name

from millpond.connectors.databases.sqltext import (
    bound,
    check_condition,
    check_query,
    named,
    order_of,
    params_of,
)
from millpond.errors import InvalidOption
from millpond.predicates import All, Any_, Compare, IsNull, OneOf, Predicate
from millpond.types import Column, Schema

Wire = Callable[[Column], "sa.ColumnElement[Any]"]


class Rows:
    """Represents the rows that the options name. Names are quoted, values are bound."""

    def __init__(self, table: str | None, values: Mapping[str, Any], dialect: str):
        self.query: str | None = values["query"]
        self.poll_query: str | None = values["poll.query"]
        self.table = table or values["table"]
        self.schema: str | None = values["schema"]
        self._values = values
        self._dialect = dialect
        if self.table is not None and self.query is not None:
            raise InvalidOption(
                'options "table" and "query" name rows in two ways', hint="leave one of them out"
            )
        if self.table is None and self.query is None and self.poll_query is None:
            raise InvalidOption("no table is named", hint="'table' = '…' or 'query' = 'SELECT …'")
        if self.table is not None and self.schema is None and "." in self.table:
            self.schema, _, self.table = self.table.partition(".")
        if self.schema is not None and self.table is None:
            raise InvalidOption('option "schema" is for a table', hint="name it in the query")
        self.params = params_of(values["query.params"])
        if self.params is not None and self.query is None:
            raise InvalidOption(
                'option "query.params" is for a query', hint="'query' = 'SELECT … WHERE a = ?'"
            )
        for option, text in (("query", self.query), ("poll.query", self.poll_query)):
            if text is not None:
                check_query(option, text, dialect)
        if values["where"] is not None:
            check_condition("where", values["where"], dialect)

    @property
    def what(self) -> str:
        """Returns its name for people."""
        if self.table is None:
            return "the query"
        return f'table "{self.schema}.{self.table}"' if self.schema else f'table "{self.table}"'

    def relation(
        self, columns: Sequence[str] = (), since: Any = None, *, poll: bool = False
    ) -> sa.FromClause:
        """Returns what follows FROM. With ``poll`` that is the query for what is new ``since`` a value."""
        if poll and self.poll_query is not None:
            text = bound("poll.query", self.poll_query, [since], self._dialect)
        elif self.query is not None:
            text = bound("query", self.query, self.params, self._dialect)
        elif self.table is not None:
            schema = quoted_name(self.schema, True) if self.schema else None
            return sa.table(quoted_name(self.table, True), *map(named, columns), schema=schema)
        else:
            assert self.poll_query is not None
            text = bound("poll.query", self.poll_query, [since], self._dialect)
        return text.columns(*map(named, columns)).subquery("millpond_rows")

    def select(
        self,
        schema: Schema,
        wire: Wire,
        *conditions: sa.ColumnElement[bool],
        since: Any = None,
        poll: bool = False,
        ordered: bool = True,
    ) -> sa.Select[Any]:
        """Returns the SELECT of the columns of a schema, of the rows that match the conditions and those of the
        options.
        """
        statement = sa.select(*(_as(wire(c), c.name) for c in schema))
        statement = statement.select_from(self.relation(schema.names, since, poll=poll))
        statement = statement.where(*self._where(), *conditions)
        if ordered and self._values["order.by"] is not None:
            statement = statement.order_by(*order_of(self._values["order.by"], schema.names))
        if ordered and self._values["limit"] is not None:
            statement = statement.limit(self._values["limit"])
        return statement

    def one(self, expression: Any, *conditions: Any, since: Any = None, poll: bool = False) -> sa.Select[Any]:
        """Returns the SELECT of one value of all rows."""
        statement = sa.select(expression).select_from(self.relation((), since, poll=poll))
        return statement.where(*self._where(), *conditions)

    def _where(self) -> list[Any]:
        where = self._values["where"]
        # On separate lines: a comment at its end must not hide the bracket.
        return (
            [sa.text("(\n" + bound("where", where, None, self._dialect).text + "\n)")]
            if where is not None
            else []
        )

    @property
    def cut(self) -> bool:
        """Returns whether only some of the rows are read, as many as ``limit`` says."""
        return self._values["limit"] is not None


def _as(expression: sa.ColumnElement[Any], name: str) -> sa.ColumnElement[Any]:
    plain = isinstance(expression, sa.ColumnClause) and expression.name == name
    return expression if plain else expression.label(quoted_name(name, True))


def condition(
    predicate: Predicate, value_of: Callable[[str], sa.ColumnElement[Any]] = named
) -> sa.ColumnElement[bool]:
    """Returns a condition that all databases understand alike; ``value_of`` returns the expression of a column."""
    match predicate:
        case Compare(column, operator, value):
            found: sa.ColumnElement[bool] = value_of(column).op(operator if operator != "!=" else "<>")(value)
            return found
        case IsNull(column, is_null):
            return value_of(column).is_(None) if is_null else value_of(column).is_not(None)
        case OneOf():
            return condition(predicate.spelled_out, value_of)
        case All(parts):
            return sa.and_(*(condition(p, value_of) for p in parts))
        case Any_(parts):
            return sa.or_(*(condition(p, value_of) for p in parts))
