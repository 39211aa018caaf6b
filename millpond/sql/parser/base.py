"""What every part of the parser uses: tokens, errors with a place, names, settings."""

from __future__ import annotations

import re
from collections.abc import Callable
from difflib import get_close_matches
from itertools import pairwise
from typing import NoReturn, TypeVar

from sqlglot import exp
from sqlglot.errors import ParseError
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokens import Token, TokenType

from millpond.errors import SqlError, SqlSyntaxError
from millpond.options import Setting
from millpond.sql.statements import PlacedSetting
from millpond.sql.text import Script
from millpond.sql.uris import is_uri

T = TypeVar("T")

_NAME = re.compile(r"[^\W\d][\w$]*")
_CLAUSES = (
    "FROM WHERE GROUP HAVING ORDER LIMIT OFFSET UNION WINDOW EMIT WITH JOIN ON USING SET VALUES SELECT "
    "RETURNING INTO AS INTERSECT EXCEPT CASCADE"
).split()
_AFTER_A_NAME = frozenset(
    {
        *(
            TokenType.COMMA,
            TokenType.R_PAREN,
            TokenType.DOT,
            TokenType.FROM,
            TokenType.ALIAS,
            TokenType.L_BRACKET,
        ),
        *(
            TokenType.EQ,
            TokenType.NEQ,
            TokenType.LT,
            TokenType.LTE,
            TokenType.GT,
            TokenType.GTE,
            TokenType.IS,
        ),
        *(TokenType.PLUS, TokenType.STAR, TokenType.SLASH, TokenType.ORDER_BY, TokenType.ASC, TokenType.DESC),
    }
)


class Failure(ParseError):
    """A mistake in the text from ``start`` to ``end``. sqlglot may catch it and try another reading."""

    def __init__(self, message: str, start: int, end: int, hint: str | None, kind: type[SqlError]):
        super().__init__(message)
        self.message = message
        self.start = start
        self.end = end
        self.hint = hint
        self.kind = kind


class BaseParser(SparkParser):
    """Tokens are those of one statement; offsets are those of ``script.expanded``."""

    script: Script
    uris: dict[int, str]

    def load(self, tokens: list[Token], script: Script, uris: dict[int, str]) -> None:
        """Takes the tokens of one statement; ``uris`` are the unquoted ones by the offset of their token."""
        self.reset()
        self.sql = script.expanded
        self.script = script
        self.uris = uris
        self.unused_uris = {t.start: t for t in tokens if t.start in uris}
        self.sources_end = False
        _free_values(tokens)
        self._chunks = [tokens]
        self._advance_chunk()
        self._check_brackets(tokens)

    def _check_brackets(self, tokens: list[Token]) -> None:
        closing = {TokenType.R_PAREN: "(", TokenType.R_BRACKET: "[", TokenType.R_BRACE: "{"}
        opened: list[Token] = []
        for token in tokens:
            if token.token_type in (TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE):
                opened.append(token)
            elif token.token_type in closing:
                if not opened or opened[-1].text != closing[token.token_type]:
                    self.fail(f'"{token.text}" closes nothing', token)
                opened.pop()
        if opened:
            self.fail(f'"{opened[-1].text}" is never closed', opened[-1])

    # Errors

    def fail(
        self,
        message: str,
        token: Token | None = None,
        *,
        until: Token | None = None,
        hint: str | None = None,
        kind: type[SqlError] = SqlSyntaxError,
    ) -> NoReturn:
        """Raises at ``token``, by default the current one, or behind the last one at the end."""
        token = token or self._curr
        if token:
            raise Failure(message, token.start, (until or token).end + 1, hint, kind)
        end = self._tokens[-1].end + 1 if self._tokens else 0
        raise Failure(message, end, end + 1, hint, kind)

    def fail_expected(self, what: str, hint: str | None = None) -> NoReturn:
        """Raises: ``what`` was expected at the current token."""
        if self._curr:
            self.fail(f"expected {what}, found {self.shown()}", hint=hint)
        self.fail(f"expected {what}, but the statement ends here", hint=hint)

    def fail_unexpected(self) -> NoReturn:
        """Raises for a token that nothing could make use of."""
        word = self._prev.text.upper()
        if word in ("GROUP", "ORDER"):
            self.fail_expected("BY")
        for token in (self._curr, self._prev):
            if token and token.token_type == TokenType.VAR:
                near = get_close_matches(token.text.upper(), _CLAUSES, n=1, cutoff=0.75)
                if near and near[0] != token.text.upper():
                    self.fail(
                        f"{self.shown()} is not expected here",
                        hint=f'did you mean "{near[0]}" instead of "{token.text}"?',
                    )
        self.fail(f"{self.shown()} is not expected here")

    def shown(self, token: Token | None = None) -> str:
        """A token as it stands in the text, quoted for a message."""
        token = token or self._curr
        text = self.script.slice(token.start, token.end + 1)
        return f'"{text if len(text) <= 40 else text[:40] + "…"}"'

    def raise_error(self, message: str, token: Token = None) -> None:  # type: ignore[assignment]
        """Called by sqlglot's own parsing: its message is told in our words."""
        token = token or self._curr
        if match := re.fullmatch(r"Expect(?:ing|ed) (\S{1,2})", message):
            self.fail_expected(f'"{match[1]}"')
        if "table name" in message:
            self.fail_expected("the name of a table or stream")
        if match := re.match(r"Expected (TYPE|END|THEN|AS|WHEN)\b", message):
            self.fail_expected("a type" if match[1] == "TYPE" else match[1])
        if match := re.match(r"Found multiple '(.*)' clauses", message):
            self.fail(f"{match[1]} is there twice", token)
        if not token:
            self.fail("the statement is not complete")
        self.fail(f"{self.shown(token)} is not expected here", token)

    # Tokens

    def at_words(self, *words: str) -> bool:
        return bool(self._match_text_seq(*words, advance=False))

    def match_words(self, *words: str) -> bool:
        return bool(self._match_text_seq(*words))

    def expect_words(self, *words: str) -> None:
        if not self.match_words(*words):
            self.fail_expected(" ".join(words))

    def at_token(self, kind: TokenType) -> bool:
        return bool(self._curr) and self._curr.token_type == kind

    def match_token(self, kind: TokenType) -> bool:
        return bool(self._match(kind))

    def expect_open(self) -> None:
        if not self.match_token(TokenType.L_PAREN):
            self.fail_expected('"("')

    def expect_close(self) -> None:
        if not self.match_token(TokenType.R_PAREN):
            self.fail_expected('")" or ","')

    def peek(self, ahead: int) -> Token | None:
        index = self._index + ahead
        return self._tokens[index] if index < len(self._tokens) else None

    def count_arguments(self) -> int:
        """How many arguments stand between here, just behind a bracket, and the bracket that closes it."""
        depth, commas, ahead = 0, 0, 0
        while token := self.peek(ahead):
            if token.token_type in (TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE):
                depth += 1
            elif token.token_type in (TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE):
                depth -= 1
            if depth < 0:
                break
            commas += depth == 0 and token.token_type == TokenType.COMMA
            ahead += 1
        return commas + 1 if ahead else 0

    def _parse_csv(self, parse_method: Callable[[], T | None], sep: TokenType = TokenType.COMMA) -> list[T]:
        first = parse_method()
        items = [] if first is None else [first]
        while self._match(sep):
            item = parse_method()
            if item is None:
                self.fail_expected('something after ","')
            items.append(item)
        return items

    def wrapped(self, parse: Callable[[], T]) -> list[T]:
        """``( item, … )`` with at least one item."""
        self.expect_open()
        items = [parse()]
        while self.match_token(TokenType.COMMA):
            items.append(parse())
        self.expect_close()
        return items

    def expect_expression(self, what: str) -> exp.Expression:
        found = self._parse_disjunction()
        if found is None:
            self.fail_expected(what)
        return as_expression(found)

    # Names

    def parse_name(self, what: str) -> str:
        """A name of one part; ``what`` says of what, for errors."""
        token = self._curr
        if not token:
            self.fail_expected(what)
        if token.start in self.uris:
            self.fail(f"expected {what}, found a URI")
        if token.token_type == TokenType.STRING:
            hint = f"names are written bare or in back-ticks: `{token.text}`" if token.text.strip() else None
            self._check_name(token.text, token, token, what)
            self.fail(f"expected {what}, found the string {self.shown()}", hint=hint)
        if token.token_type == TokenType.IDENTIFIER:
            self._advance()
            return self._check_name(token.text, token, token, what)
        if not re.match(r"[\w$]", token.text) or token.token_type in self.RESERVED_TOKENS:
            self.fail_expected(what)
        last = self._rest_of_name()
        return self._check_name(self.sql[token.start : last.end + 1], token, last, what)

    def _rest_of_name(self) -> Token:
        """Passes the tokens that stand together without white space; the last of them."""
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

    def _check_name(self, name: str, first: Token, last: Token, what: str) -> str:
        if not name.strip():
            self.fail(f"{what} cannot be empty", first)
        if not _NAME.fullmatch(name):
            self.fail(
                f'"{name}" cannot be {what}',
                first,
                until=last,
                hint="a name has letters, digits and _, and does not begin with a digit",
            )
        if self.at_token(TokenType.DOT):
            self.fail(f"{what} has one part, without dots")
        return name

    def parse_names(self, what: str) -> tuple[str, ...]:
        return tuple(self.wrapped(lambda: self.parse_name(what)))

    def parse_column_name(self) -> str:
        """Any name that a column can have; in back-ticks it may hold anything but nothing."""
        token = self._curr
        if token and token.token_type == TokenType.IDENTIFIER and token.start not in self.uris:
            self._advance()
            if not token.text.strip():
                self.fail("the name of a column cannot be empty", token)
            return str(token.text)
        return self.parse_name("the name of a column")

    def parse_target(self) -> tuple[str, bool]:
        """What INSERT INTO names: a table or stream, or a URI; whether it is a URI."""
        token = self._curr
        quoted = token.token_type in (TokenType.STRING, TokenType.IDENTIFIER) and is_uri(token.text)
        call = token.text.lower() == "kafka_topic" and self._next.token_type == TokenType.L_PAREN
        if token.start not in self.uris and not quoted and not call:
            return self.parse_name("the name of a table or stream"), False
        table = self._parse_table_parts()
        if not isinstance(table, exp.Table) or not table.meta.get("uri"):
            self.fail("expected the name of a table or stream, or a URI", token)
        return table.name, True

    # Settings

    def at_settings(self) -> bool:
        return bool(self._match_pair(TokenType.WITH, TokenType.L_PAREN, advance=False))

    def parse_settings(self) -> tuple[Setting, ...]:
        """``WITH (key = value, …)`` if it stands here."""
        if not self.at_settings():
            return ()
        self._advance()
        if self._next and self._next.token_type == TokenType.R_PAREN:
            self._advance(2)
            return ()
        return tuple(self.wrapped(self._parse_setting))

    def _parse_setting(self) -> Setting:
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
        return PlacedSetting(name, value, self.script.place(first.start, self._prev.end + 1))

    def _quoted(self) -> str | None:
        if not self._curr or self._curr.token_type not in (TokenType.STRING, TokenType.IDENTIFIER):
            return None
        self._advance()
        return self.uris.get(self._prev.start, str(self._prev.text))

    def _bare(self, stops: set[TokenType]) -> str:
        """The text up to a stop, which has to stand together: ``a.b``, ``30s``, ``-1``."""
        first = self._curr
        last: Token | None = None
        while self._curr and self._curr.token_type not in stops:
            if last and self._curr.start > last.end + 1:
                self.fail_expected('"," or ")"', hint="text stands in quotes: 'key' = 'two words'")
            last = self._curr
            self._advance()
        return self.sql[first.start : last.end + 1] if last else ""

    # Sources

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
                    hint="a source is a name, a URI such as 'file:///data/x.csv', or kafka_topic('name')",
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
        if isinstance(name, exp.Anonymous) and name.name.lower() == "kafka_topic":
            topic = name.expressions[0] if len(name.expressions) == 1 else None
            if not isinstance(topic, exp.Literal) or not topic.is_string or not topic.name.strip():
                self.fail("kafka_topic takes the name of one topic: kafka_topic('orders')", start)
            uri = exp.to_identifier(f"kafka://{topic.name}", quoted=True).update_positions(topic)
            table.set("this", uri)
            table.meta["uri"] = True
        elif isinstance(name, exp.Identifier) and name.args.get("quoted") and not table.args.get("db"):
            if start.start in self.uris:
                self.unused_uris.pop(start.start, None)
                name.set("this", self.uris[start.start])
            if is_uri(name.name):
                table.meta["uri"] = True


def _free_values(tokens: list[Token]) -> None:
    """Makes VALUES an ordinary name where no row can follow it."""
    for token, after in pairwise(tokens):
        if token.token_type == TokenType.VALUES and after.token_type in _AFTER_A_NAME:
            token.token_type = TokenType.VAR


def as_expression(node: exp.Expr) -> exp.Expression:
    """The node; sqlglot types it more widely than it is."""
    assert isinstance(node, exp.Expression)
    return node
