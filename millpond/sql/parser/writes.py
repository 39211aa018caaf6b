"""Parses INSERT, UPSERT, UPDATE, DELETE and MERGE."""

from __future__ import annotations

from sqlglot import exp
from sqlglot.tokens import TokenType

from millpond.sql.parser.base import as_expression
from millpond.sql.parser.definitions import DefinitionParser
from millpond.sql.parser.queries import Tail
from millpond.sql.statements import Delete, Insert, Merge, Query, Update, Upsert

_QUERY_STARTS = (TokenType.SELECT, TokenType.FROM, TokenType.WITH, TokenType.VALUES, TokenType.L_PAREN)


class WriteParser(DefinitionParser):
    def parse_insert(self) -> Insert:
        self.match_words("INTO")
        target, is_uri = self.parse_target()
        columns = self._parse_column_list()
        tail = Tail()
        self.parse_tail(tail)
        query: Query | None = None
        values: tuple[tuple[exp.Expression, ...], ...] = ()
        if self.match_token(TokenType.VALUES):
            values = tuple(self._parse_csv(self._parse_row_values))
            self.parse_tail(tail)
            self._check_widths(columns, values)
        elif self._curr and self._curr.token_type in _QUERY_STARTS:
            query = self.parse_query(tail)
        else:
            self.fail_expected("VALUES or a query")
        return Insert(target, is_uri, columns, query, values, tuple(tail.settings), tail.errors_into)

    def _parse_column_list(self) -> tuple[str, ...]:
        """Parses ``(a, b)`` unless the brackets contain a query."""
        inside = self.peek(1)
        if not self.at_token(TokenType.L_PAREN) or (inside and inside.token_type in _QUERY_STARTS):
            return ()
        return tuple(self.wrapped(self.parse_column_name))

    def _parse_row_values(self) -> tuple[exp.Expression, ...]:
        if self.at_token(TokenType.L_PAREN):
            return tuple(self.wrapped(lambda: self.expect_expression("a value")))
        return (self.expect_expression("a value"),)

    def _check_widths(self, columns: tuple[str, ...], rows: tuple[tuple[exp.Expression, ...], ...]) -> None:
        width = len(columns) or len(rows[0])
        for number, row in enumerate(rows, 1):
            if len(row) != width:
                wanted = f"{width} columns are named" if columns else f"the first has {width}"
                self.fail(f"row {number} of VALUES has {len(row)} values, but {wanted}", self._prev)

    def parse_upsert(self) -> Upsert:
        self.expect_words("INTO")
        target = self.parse_name("the name of a table")
        columns = self._parse_column_list()
        tail = Tail()
        query = self.parse_query(tail)
        if not self.match_token(TokenType.ON):
            self.fail_expected("ON and the condition that finds the row to change")
        on = self.expect_expression("a condition")
        self.parse_tail(tail)
        return Upsert(target, query, on, tuple(tail.settings), tail.errors_into, columns)

    def parse_update(self) -> Update:
        self.returning_is_clause = True
        target = self.parse_name("the name of a table")
        alias = self._parse_target_alias("SET")
        self.expect_words("SET")
        assignments = tuple(self._parse_csv(lambda: self._parse_assign(target, alias)))
        source, joins = self._parse_source("FROM")
        where = self._parse_condition_after_where()
        tail = Tail()
        returning, into = self._parse_returning_into(tail)
        return Update(
            target,
            alias,
            assignments,
            source,
            joins,
            where,
            returning,
            into,
            tuple(tail.settings),
            tail.errors_into,
        )

    def parse_delete(self) -> Delete:
        self.returning_is_clause = True
        self.expect_words("FROM")
        target = self.parse_name("the name of a table")
        alias = self._parse_target_alias("FROM", "USING", "WHERE", "RETURNING", "WITH")
        source, joins = self._parse_source("FROM", "USING")
        where = self._parse_condition_after_where()
        tail = Tail()
        returning, into = self._parse_returning_into(tail)
        return Delete(
            target, alias, source, joins, where, returning, into, tuple(tail.settings), tail.errors_into
        )

    def _parse_target_alias(self, *clauses: str) -> str | None:
        if self.match_token(TokenType.ALIAS):
            return self.parse_name("an alias")
        if not self._curr or self._at_clause() or any(self.at_words(c) for c in clauses):
            return None
        if self._curr.token_type not in (TokenType.VAR, TokenType.IDENTIFIER):
            return None
        return self.parse_name("an alias")

    def _parse_assign(self, target: str, alias: str | None) -> tuple[str, exp.Expression]:
        first = self._curr
        column = self._parse_column()
        if not isinstance(column, exp.Column) or isinstance(column.this, exp.Star):
            self.fail_expected("the name of a column", hint="SET column = value")
        allowed = {target.lower(), (alias or target).lower()}
        if column.args.get("db") or (column.table and column.table.lower() not in allowed):
            self.fail(
                f'"{column.sql("spark")}" is not a column of "{target}"',
                first,
                until=self._prev,
                hint="SET changes whole columns of the table that UPDATE names",
            )
        if not self.match_token(TokenType.EQ):
            self.fail_expected('"="')
        return column.name, self.expect_expression("a value")

    def _parse_source(self, *words: str) -> tuple[exp.Expression | None, tuple[exp.Join, ...]]:
        if not any(self.match_words(w) for w in words):
            return None, ()
        source = self._parse_table()
        if not isinstance(source, (exp.Table, exp.Subquery)):
            self.fail_expected("a stream, a table or a query in brackets")
        return source, tuple(self._parse_joins())

    def _parse_condition_after_where(self) -> exp.Expression | None:
        if not self.match_token(TokenType.WHERE):
            return None
        return self.expect_expression("a condition")

    def _parse_returning_into(self, tail: Tail) -> tuple[tuple[exp.Expression, ...], str | None]:
        self.parse_tail(tail)
        if not self.match_words("RETURNING"):
            return (), None
        returning = tuple(as_expression(e) for e in self._parse_expressions())
        if not returning:
            self.fail_expected("what to return")
        if not self.match_words("INTO"):
            self.fail_expected("INTO and the name of a stream")
        into = self.parse_name("the name of a stream")
        self.parse_tail(tail)
        return returning, into

    def parse_merge(self) -> Merge:
        self.expect_words("INTO")
        target = self._parse_table()
        if not isinstance(target, exp.Table) or target.meta.get("uri"):
            self.fail_expected("the name of a table", hint=None)
        self.expect_words("USING")
        using = self._parse_table()
        if using is None:
            self.fail_expected("a stream, a table or a query in brackets")
        self.expect_words("ON")
        on = self.expect_expression("a condition")
        whens = []
        while self.match_token(TokenType.WHEN):
            whens.append(self._parse_when())
        if not whens:
            self.fail_expected("WHEN MATCHED or WHEN NOT MATCHED")
        merge = exp.Merge(this=target, using=using, on=on, whens=exp.Whens(expressions=whens))
        tail = Tail()
        self.parse_tail(tail)
        return Merge(target.name, merge, tuple(tail.settings), tail.errors_into)

    def _parse_when(self) -> exp.When:
        matched = not self.match_token(TokenType.NOT)
        self.expect_words("MATCHED")
        by_source = False
        if not matched and self.match_words("BY"):
            by_source = self.match_words("SOURCE")
            if not by_source:
                self.expect_words("TARGET")
        condition = self.expect_expression("a condition") if self.match_token(TokenType.AND) else None
        self.expect_words("THEN")
        inserts = not matched and not by_source
        then: exp.Expression
        if inserts:
            self.expect_words("INSERT")
            then = self._parse_merge_insert()
        elif self.match_words("DELETE"):
            then = exp.var("DELETE")
        elif self.match_words("UPDATE"):
            then = self._parse_merge_update()
        else:
            self.fail_expected("UPDATE or DELETE")
        return exp.When(matched=matched, source=by_source or None, condition=condition, then=then)

    def _parse_merge_insert(self) -> exp.Insert:
        if self.match_token(TokenType.STAR):
            return exp.Insert(this=exp.Star())
        columns = None
        if self.at_token(TokenType.L_PAREN):
            columns = exp.Tuple(expressions=self.wrapped(self._expect_column))
        self.expect_words("VALUES")
        first = self._curr
        values = self.wrapped(lambda: self.expect_expression("a value"))
        if columns and len(columns.expressions) != len(values):
            self.fail(f"{len(columns.expressions)} columns are named, but {len(values)} values given", first)
        return exp.Insert(this=columns, expression=exp.Tuple(expressions=values))

    def _expect_column(self) -> exp.Expression:
        column = self._parse_column()
        if not isinstance(column, exp.Column):
            self.fail_expected("the name of a column")
        return column

    def _parse_merge_update(self) -> exp.Update:
        if self.match_token(TokenType.STAR):
            return exp.Update(expressions=exp.Star())
        self.expect_words("SET")
        if self.match_token(TokenType.STAR):
            return exp.Update(expressions=exp.Star())
        return exp.Update(expressions=self._parse_csv(self._parse_merge_assignment))

    def _parse_merge_assignment(self) -> exp.EQ:
        column = self._expect_column()
        if not self.match_token(TokenType.EQ):
            self.fail_expected('"="')
        return exp.EQ(this=column, expression=self.expect_expression("a value"))
