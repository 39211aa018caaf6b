"""Provides what every part of the parser uses: the tokens of one statement, and errors with a place."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from functools import reduce
from itertools import pairwise
from typing import NoReturn, TypeVar

from sqlglot import exp
from sqlglot.errors import ParseError
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokens import Token, TokenType

from millpond.errors import SqlError, SqlSyntaxError
from millpond.sql.text import Script

T = TypeVar("T")

_FEW = 16
"""The number of conditions between AND that remain a plain chain."""
_MAX_PRECISION = 38
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
    """Signals a mistake in the text from ``start`` to ``end``. sqlglot may catch it and try another reading."""

    def __init__(self, message: str, start: int, end: int, hint: str | None, kind: type[SqlError]):
        super().__init__(message)
        self.message = message
        self.start = start
        self.end = end
        self.hint = hint
        self.kind = kind


class BaseParser(SparkParser):
    """Parses the tokens of one statement; offsets are those of ``script.expanded``."""

    script: Script
    uris: dict[int, str]

    def load(self, tokens: list[Token], script: Script, uris: dict[int, str]) -> None:
        """Loads the tokens of one statement; ``uris`` are the unquoted ones by the offset of their token."""
        self.reset()
        self.sql = script.expanded
        self.script = script
        self.uris = uris
        self.unused_uris = {t.start: t for t in tokens if t.start in uris}
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

    def fail(
        self,
        message: str,
        token: Token | None = None,
        *,
        until: Token | None = None,
        hint: str | None = None,
        kind: type[SqlError] = SqlSyntaxError,
    ) -> NoReturn:
        """Raises at ``token``, by default the current one, or after the last one at the end."""
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

    def check_decimal(self, numbers: Sequence[str], token: Token) -> None:
        """Raises if no DECIMAL has this precision and scale; ``token`` is where the type begins."""
        precision, scale = [*numbers, "0"][:2]
        fits = precision.isdigit() and scale.isdigit() and 0 < int(precision) <= _MAX_PRECISION
        if len(numbers) > 2 or not fits or int(scale) > int(precision):
            self.fail(
                f"DECIMAL({','.join(numbers)}) is not a type",
                token,
                until=self._prev,
                hint=f"DECIMAL(p,s) has 1 to {_MAX_PRECISION} digits, s of them after the point",
            )

    def fail_unexpected(self) -> NoReturn:
        """Raises for a token that nothing could use."""
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
        hint = "WITH (…) stands last, after LIMIT" if self._is_after_options() else None
        self.fail(f"{self.shown()} is not expected here", hint=hint)

    def _is_after_options(self) -> bool:
        """Returns whether the last thing parsed is a list of options."""
        if self._prev.token_type != TokenType.R_PAREN:
            return False
        before = self._tokens[: self._index]
        opening = max((i for i, t in enumerate(before) if t.token_type == TokenType.L_PAREN), default=0)
        return opening > 0 and before[opening - 1].token_type == TokenType.WITH

    def shown(self, token: Token | None = None) -> str:
        """Returns a token as written in the text, quoted for a message."""
        token = token or self._curr
        text = self.script.slice(token.start, token.end + 1)
        return f'"{text if len(text) <= 40 else text[:40] + "…"}"'

    def raise_error(self, message: str, token: Token = None) -> None:  # type: ignore[assignment]
        """Raises an error of sqlglot's own parsing, in our words."""
        token = token or self._curr
        if match := re.fullmatch(r"Expect(?:ing|ed) (\S{1,2})", message):
            self.fail_expected(f'"{match[1]}"')
        if "table name" in message:
            self.fail_expected("the name of a table or stream")
        if match := re.match(r"Expected (TYPE|END|THEN|AS|WHEN)\b", message):
            self.fail_expected("a type" if match[1] == "TYPE" else match[1])
        if match := re.match(r"The number of provided arguments \((\d+)\).*\((\d+)\)", message):
            self.fail(f"this function has {match[1]} arguments and takes at most {match[2]}", token)
        if message.startswith("Required ") and token and token.token_type == TokenType.R_PAREN:
            self.fail(f"an argument is missing before {self.shown(token)}", token)
        if match := re.match(r"Found multiple '(.*)' clauses", message):
            self.fail(f"{match[1]} is there twice", token)
        if not token:
            self.fail("the statement is not complete")
        self.fail(f"{self.shown(token)} is not expected here", token)

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

    @property
    def previous(self) -> Token:
        """Returns the token that was read last."""
        return self._prev

    @property
    def current(self) -> Token:
        """Returns the next token; it is false at the end."""
        return self._curr

    @property
    def called(self) -> Token:
        """Returns the name of the function whose bracket was just opened."""
        return self._tokens[self._index - 2]

    def skip(self, tokens: int = 1) -> None:
        self._advance(tokens)

    def parse_argument(self) -> exp.Expr | None:
        """Parses an argument of a call, which may be a lambda."""
        return self._parse_lambda()

    def parse_arguments(self) -> list[exp.Expr]:
        return self._parse_csv(self._parse_lambda)

    def parse_operand(self) -> exp.Expr | None:
        """Parses a value without a comparison, IN or AND in it."""
        return self._parse_bitwise()

    def peek(self, ahead: int) -> Token | None:
        index = self._index + ahead
        return self._tokens[index] if index < len(self._tokens) else None

    def _to_prop_eq(self, expression: exp.Expr, index: int) -> exp.Expr:
        """Builds a field of STRUCT; the field of a struct, or the value of a map by a literal key, keeps its name."""
        if isinstance(expression, exp.Dot) and isinstance(expression.expression, exp.Identifier):
            return exp.PropertyEQ(this=expression.expression.copy(), expression=expression)
        if isinstance(expression, exp.Bracket) and len(expression.expressions) == 1:
            key = expression.expressions[0]
            if isinstance(key, exp.Literal) and key.is_string:
                return exp.PropertyEQ(this=exp.to_identifier(key.name, quoted=True), expression=expression)
        return super()._to_prop_eq(expression, index)

    def count_arguments(self) -> int:
        """Returns how many arguments there are from here, just after a bracket, to the closing bracket."""
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

    def _parse_disjunction(self) -> exp.Expr | None:
        return self._parse_chain(self._parse_conjunction, TokenType.OR, exp.Or)

    def _parse_conjunction(self) -> exp.Expr | None:
        return self._parse_chain(self._parse_equality, TokenType.AND, exp.And)

    def _parse_chain(
        self, parse: Callable[[], exp.Expr | None], word: TokenType, kind: type[exp.Connector]
    ) -> exp.Expr | None:
        """Parses the operands of AND or OR. Makes a balanced tree of many: it means the same, and is not deep."""
        parts = [parse()]
        while self._match(word):
            parts.append(parse())
        if len(parts) <= _FEW:
            return reduce(lambda a, b: self.expression(kind(this=a, expression=b)), parts)
        while len(parts) > 1:
            pairs = zip(parts[::2], parts[1::2], strict=False)
            last = parts[-1:] if len(parts) % 2 else []
            parts = [self.expression(kind(this=a, expression=b)) for a, b in pairs] + last
        return parts[0]

    def wrapped(self, parse: Callable[[], T]) -> list[T]:
        """Parses ``( item, … )`` with at least one item."""
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


def _free_values(tokens: list[Token]) -> None:
    """Makes VALUES an ordinary name if no row can follow it."""
    for token, after in pairwise(tokens):
        if token.token_type == TokenType.VALUES and after.token_type in _AFTER_A_NAME:
            token.token_type = TokenType.VAR


def as_expression(node: exp.Expr) -> exp.Expression:
    """Returns the node; sqlglot declares a wider type than it has."""
    assert isinstance(node, exp.Expression)
    return node
