"""Parses CREATE, DROP, ALTER and TRUNCATE."""

from __future__ import annotations

from sqlglot.tokens import TokenType

from millpond.errors import UnknownName, did_you_mean
from millpond.sql.parser.alter import parse_action
from millpond.sql.parser.columns import ColumnParser, Columns
from millpond.sql.parser.queries import Tail
from millpond.sql.statements import (
    AlterTable,
    CreateIndex,
    CreateStream,
    CreateTable,
    CreateView,
    Drop,
    DropColumn,
    DropKind,
    RenameColumn,
    RenameTable,
    Statement,
    Truncate,
)

_KINDS: dict[str, DropKind] = {
    "STREAM": "stream",
    "TABLE": "table",
    "VIEW": "view",
    "MATERIALIZED": "materialized view",
    "QUERY": "query",
    "INDEX": "index",
}


class DefinitionParser(ColumnParser):
    def parse_create(self) -> Statement:
        or_replace = self.match_words("OR", "REPLACE")
        kind = self._parse_kind([k for k in _KINDS if k != "QUERY"])
        if_not_exists = self.match_words("IF", "NOT", "EXISTS")
        if or_replace and if_not_exists:
            self.fail("OR REPLACE and IF NOT EXISTS exclude each other", self._prev)
        if kind == "index":
            if or_replace:
                self.fail("an index cannot be replaced", hint="DROP INDEX it first")
            return self._parse_create_index(if_not_exists)
        if kind == "stream":
            return self._parse_create_stream(or_replace, if_not_exists)
        if kind == "table":
            return self._parse_create_table(or_replace, if_not_exists)
        return self._parse_create_view(kind == "materialized view", or_replace, if_not_exists)

    def _parse_kind(self, known: list[str]) -> DropKind:
        if not self._curr:
            self.fail_expected(", ".join(known))
        token, word = self._curr, self._curr.text.upper()
        if word not in known:
            self.fail(
                f"{self.shown()} is not something that can stand here",
                hint=did_you_mean(word, known, f"expected one of {', '.join(known)}"),
                kind=UnknownName,
            )
        self._advance()
        if word == "MATERIALIZED" and not self.match_words("VIEW"):
            self.fail_expected("VIEW after MATERIALIZED")
        return _KINDS[token.text.upper()]

    def _parse_create_stream(self, or_replace: bool, if_not_exists: bool) -> CreateStream:
        name = self.parse_name("the name of a stream")
        first = self._curr
        found = self.parse_columns() if self.at_token(TokenType.L_PAREN) else Columns()
        if found.key:
            self.fail("a stream has no primary key", first, hint="keep the last row of a key in a table")
        tail = Tail()
        self.parse_tail(tail)
        query = self.parse_query(tail) if self.match_words("AS") else None
        if not query and not found.columns and not tail.settings:
            self.fail_expected("columns, WITH or AS")
        return CreateStream(
            name,
            tuple(found.columns),
            found.watermark,
            query,
            tuple(tail.settings),
            if_not_exists,
            or_replace,
            tail.errors_into,
        )

    def _parse_create_table(self, or_replace: bool, if_not_exists: bool) -> CreateTable:
        name = self.parse_name("the name of a table")
        first = self._curr
        found = self.parse_columns() if self.at_token(TokenType.L_PAREN) else Columns()
        if found.watermark:
            self.fail("WATERMARK stands in the columns of a stream, not of a table", first)
        tail = Tail()
        self.parse_tail(tail)
        query = self.parse_query(tail) if self.match_words("AS") else None
        if not query and not found.columns and not found.key and not tail.settings:
            self.fail_expected("columns, WITH or AS")
        if query is None and found.key and not found.columns:
            self.fail_expected("AS, since only the primary key is given")
        return CreateTable(
            name,
            tuple(found.columns),
            found.key,
            query,
            tuple(tail.settings),
            if_not_exists,
            or_replace,
            tail.errors_into,
        )

    def _parse_create_view(self, materialized: bool, or_replace: bool, if_not_exists: bool) -> CreateView:
        name = self.parse_name("the name of a view")
        names: list[str] = []
        key: tuple[str, ...] = ()
        if self.at_token(TokenType.L_PAREN):
            first = self._curr
            for item in self.wrapped(self._parse_view_item):
                if isinstance(item, str):
                    names.append(item)
                elif key or not materialized:
                    self.fail("a primary key stands once, and only in a materialized view", first)
                else:
                    key = item
        tail = Tail()
        self.parse_tail(tail)
        self.expect_words("AS")
        query = self.parse_query(tail)
        return CreateView(
            name,
            tuple(names),
            query,
            materialized,
            tuple(tail.settings),
            or_replace,
            if_not_exists,
            key,
            tail.errors_into,
        )

    def _parse_view_item(self) -> str | tuple[str, ...]:
        if self.match_token(TokenType.PRIMARY_KEY):
            return tuple(self.wrapped(self.parse_column_name))
        return self.parse_column_name()

    def _parse_create_index(self, if_not_exists: bool) -> CreateIndex:
        name = self.parse_name("the name of an index")
        self.expect_words("ON")
        table = self.parse_name("the name of a table")
        return CreateIndex(name, table, tuple(self.wrapped(self.parse_column_name)), if_not_exists)

    def parse_drop(self) -> Drop:
        kind = self._parse_kind(list(_KINDS))
        if_exists = self.match_words("IF", "EXISTS")
        name = self.parse_query_name() if kind == "query" else self.parse_name(f"the name of a {kind}")
        return Drop(kind, name, if_exists, self.match_words("CASCADE"))

    def parse_truncate(self) -> Truncate:
        if self.at_words("TABLE") and self._next:
            self._advance()
        return Truncate(self.parse_name("the name of a table"))

    def parse_alter(self) -> AlterTable:
        self.expect_words("TABLE")
        name = self.parse_name("the name of a table")
        action = parse_action(self)
        takes = isinstance(action, DropColumn | RenameColumn | RenameTable)
        return AlterTable(name, action, takes and self.match_words("CASCADE"))
