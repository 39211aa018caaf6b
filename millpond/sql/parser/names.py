"""Parses names, the options of WITH (…), and sources: a name, a URI or the call that names a topic."""

from __future__ import annotations

import re

from sqlglot import exp
from sqlglot.tokens import Token, TokenType

from millpond.options import Setting
from millpond.sql.parser.base import BaseParser
from millpond.sql.uris import TOPIC_CALL, TOPICS, is_uri
from millpond.types import quote

_NAME = re.compile(r"[^\W\d][\w$]*")


class NameParser(BaseParser):
    def parse_name(self, what: str) -> str:
        """Parses a name of one part; ``what`` describes it in errors."""
        token = self._curr
        if not token:
            self.fail_expected(what)
        if token.start in self.uris:
            self.fail(f"expected {what}, found a URI")
        if token.token_type == TokenType.STRING:
            if not token.text.strip():
                self.fail(f"{what} cannot be empty")
            hint = f"names are written bare or in back-ticks: {quote(token.text)}"
            self.fail(f"expected {what}, found the string {self.shown()}", hint=hint)
        if token.token_type == TokenType.IDENTIFIER:
            self._advance()
            return self._check_quoted(token.text, token, what)
        if not re.match(r"[\w$]", token.text) or token.token_type in self.RESERVED_TOKENS:
            self.fail_expected(what)
        last = self._rest_of_name()
        return self._check_name(self.sql[token.start : last.end + 1], token, last, what)

    def parse_query_name(self) -> str:
        """Parses the name of a query, as SHOW QUERIES prints it: bare if it has no white space, else in back-ticks or
        quotes.
        """
        if not self._curr:
            self.fail_expected("the name of a query")
        first, text = self._curr, self._quoted()
        if text is None:
            self._advance()
            while self._curr and self._curr.start <= self._prev.end + 1:
                self._advance()
            text = self.sql[first.start : self._prev.end + 1]
        if not text.strip():
            self.fail("the name of a query cannot be empty", first)
        return text

    def _rest_of_name(self) -> Token:
        """Skips the tokens that follow without white space, and returns the last of them."""
        self._advance()
        while self._curr and self._curr.start <= self._prev.end + 1:
            joined = self._curr.start <= self._prev.end or self._curr.token_type == TokenType.DASH
            if (
                not joined
                and self._prev.token_type != TokenType.DASH
                and self._prev.token_type != TokenType.NUMBER
            ):
                break
            self._advance()
        return self._prev

    def _check_quoted(self, name: str, token: Token, what: str) -> str:
        """Checks a name in back-ticks: it must not be empty, or look like a URI."""
        if not name.strip():
            self.fail(f"{what} cannot be empty", token)
        if is_uri(name) or "\0" in name:
            why = "it is a URI" if is_uri(name) else "it holds the character NUL"
            self.fail(
                f'"{name}" cannot be {what}', token, hint=f"{why}; any other name is good in back-ticks"
            )
        self._one_part(what)
        return name

    def _check_name(self, name: str, first: Token, last: Token, what: str) -> str:
        if not name.strip():
            self.fail(f"{what} cannot be empty", first)
        if not _NAME.fullmatch(name):
            self.fail(
                f'"{name}" cannot be {what}',
                first,
                until=last,
                hint="a name has letters, digits and _, and does not begin with a digit; others stand in back-ticks",
            )
        self._one_part(what)
        return name

    def _one_part(self, what: str) -> None:
        if self.at_token(TokenType.DOT):
            self.fail(f"{what} has one part, without dots", hint="a name with a dot stands in back-ticks")

    def parse_names(self, what: str) -> tuple[str, ...]:
        return tuple(self.wrapped(lambda: self.parse_name(what)))

    def parse_column_name(self) -> str:
        """Parses any name that a column can have; in back-ticks, anything that is not empty."""
        token = self._curr
        if token and token.token_type == TokenType.IDENTIFIER and token.start not in self.uris:
            self._advance()
            if not token.text.strip():
                self.fail("the name of a column cannot be empty", token)
            return str(token.text)
        return self.parse_name("the name of a column")

    def parse_target(self) -> tuple[str, bool]:
        """Parses the target of INSERT INTO: a table or stream, or a URI; also returns whether it is a URI."""
        token = self._curr
        quoted = token.token_type in (TokenType.STRING, TokenType.IDENTIFIER) and is_uri(token.text)
        call = token.text.lower() == TOPIC_CALL and self._next.token_type == TokenType.L_PAREN
        if token.start not in self.uris and not quoted and not call:
            return self.parse_name("the name of a table or stream"), False
        table = self._parse_table_parts()
        if not isinstance(table, exp.Table) or not table.meta.get("uri"):
            self.fail("expected the name of a table or stream, or a URI", token)
        return table.name, True

    def at_settings(self) -> bool:
        return bool(self._match_pair(TokenType.WITH, TokenType.L_PAREN, advance=False))

    def parse_settings(self) -> tuple[Setting, ...]:
        """Parses ``WITH (key = value, …)``, if present."""
        if not self.at_settings():
            return ()
        self._advance()
        if self._next and self._next.token_type == TokenType.R_PAREN:
            self._advance(2)
            return ()
        return tuple(self.wrapped(self.parse_setting))

    def parse_setting(self) -> Setting:
        first = self._curr
        name = self._quoted() or self._bare({TokenType.EQ, TokenType.COMMA, TokenType.R_PAREN})
        if not name.strip():
            self.fail_expected("the name of an option")
        if not self.match_token(TokenType.EQ):
            self.fail_expected(f'"=" after option "{name}"')
        value = self._quoted()
        if value is None:
            value = self._bare({TokenType.COMMA, TokenType.R_PAREN})
            if not value:
                self.fail_expected(
                    f'a value for option "{name}"', hint="text stands in quotes: 'key' = 'value'"
                )
            if value.lower() in ("true", "false"):
                value = value.lower()
        return Setting(name, value, self.script.place(first.start, self._prev.end + 1))

    def _quoted(self) -> str | None:
        if not self._curr or self._curr.token_type not in (TokenType.STRING, TokenType.IDENTIFIER):
            return None
        self._advance()
        return self.uris.get(self._prev.start, str(self._prev.text))

    def _bare(self, stops: set[TokenType]) -> str:
        """Returns the text up to a stop, which must be without white space: ``a.b``, ``30s``, ``-1``."""
        first = self._curr
        last: Token | None = None
        while self._curr and self._curr.token_type not in stops:
            if last and self._curr.start > last.end + 1:
                self.fail_expected('"," or ")"', hint="text stands in quotes: 'key' = 'two words'")
            last = self._curr
            self._advance()
        return self.sql[first.start : last.end + 1] if last else ""

    def _parse_table_parts(
        self,
        schema: bool = False,
        is_db_reference: bool = False,
        wildcard: bool = False,
        fast: bool = False,
    ) -> exp.Table | exp.Dot | None:
        start = self._curr
        if start and start.token_type in (TokenType.PLACEHOLDER, TokenType.COLON):
            self.fail("a parameter stands for a value, not for a name")
        if start and start.token_type == TokenType.STRING:
            if not is_uri(start.text):
                self.fail(
                    f"{self.shown()} is neither a name nor a URI",
                    hint=f"a source is a name, a URI such as 'file:///data/x.csv', or {TOPIC_CALL}('name')",
                )
            self._advance()
            identifier = exp.to_identifier(start.text, quoted=True).update_positions(start)
            table: exp.Table | exp.Dot | None = exp.Table(this=identifier)
        else:
            table = super()._parse_table_parts(schema, is_db_reference, wildcard, fast)
        if isinstance(table, exp.Table):
            self._mark_uri(table, start)
        return table

    def _mark_uri(self, table: exp.Table, start: Token) -> None:
        name = table.this
        if isinstance(name, exp.Anonymous) and name.name.lower() == TOPIC_CALL:
            topic = name.expressions[0] if len(name.expressions) == 1 else None
            if not isinstance(topic, exp.Literal) or not topic.is_string or not topic.name.strip():
                self.fail(f"{TOPIC_CALL} takes the name of one topic: {TOPIC_CALL}('orders')", start)
            uri = exp.to_identifier(TOPICS + topic.name, quoted=True).update_positions(topic)
            table.set("this", uri)
            table.meta["uri"] = True
        elif isinstance(name, exp.Identifier) and name.args.get("quoted") and not table.args.get("db"):
            if start.start in self.uris:
                self.unused_uris.pop(start.start, None)
                name.set("this", self.uris[start.start])
            if is_uri(name.name):
                table.meta["uri"] = True
