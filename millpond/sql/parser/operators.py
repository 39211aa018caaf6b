"""Parses operators, with the precedence of Spark's grammar.

From the loosest: OR; AND; NOT; one predicate (IS, IN, BETWEEN, LIKE, RLIKE); comparisons; ``|``; ``^``; ``&``; shifts;
``+ - ||``; ``* / % DIV``; signs and ``~``. Each level is read from left to right.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

from sqlglot import exp
from sqlglot.tokens import TokenType

from millpond.sql.parser.numbers import suffixed
from millpond.sql.parser.paths import PathParser

_COMPARISONS: Mapping[TokenType, type[exp.Expr]] = {
    TokenType.EQ: exp.EQ,
    TokenType.NEQ: exp.NEQ,
    TokenType.NULLSAFE_EQ: exp.NullSafeEQ,
    TokenType.GT: exp.GT,
    TokenType.GTE: exp.GTE,
    TokenType.LT: exp.LT,
    TokenType.LTE: exp.LTE,
}
_BITS: tuple[tuple[TokenType, type[exp.Expr]], ...] = (
    (TokenType.PIPE, exp.BitwiseOr),
    (TokenType.CARET, exp.BitwiseXor),
    (TokenType.AMP, exp.BitwiseAnd),
)
_TERMS: Mapping[TokenType, type[exp.Expr]] = {
    TokenType.PLUS: exp.Add,
    TokenType.DASH: exp.Sub,
    TokenType.DPIPE: exp.DPipe,
}
_SHIFTS = (
    ((TokenType.LT, TokenType.LT), "SHIFTLEFT"),
    ((TokenType.GT, TokenType.GT, TokenType.GT), "SHIFTRIGHTUNSIGNED"),
    ((TokenType.GT, TokenType.GT), "SHIFTRIGHT"),
)


def call(name: str, *arguments: exp.Expr) -> exp.Anonymous:
    """Returns a call of a function by its name."""
    return exp.Anonymous(this=name, expressions=list(arguments))


class OperatorParser(PathParser):
    def _operand(self, parse: Callable[[], exp.Expr | None]) -> exp.Expr:
        found = parse()
        if found is None:
            self.fail_expected("a value")
        return found

    def _parse_equality(self, parse_is: bool = True) -> exp.Expr | None:
        if self.match_token(TokenType.NOT):
            return exp.Not(this=self._operand(self._parse_equality))
        value = self._parse_comparison()
        return None if value is None else self._predicate(value)

    def _parse_range(self, this: exp.Expr | None = None, parse_is: bool = False) -> exp.Expr | None:
        value = this or self._parse_bitwise()
        return None if value is None else self._predicate(value)

    def _predicate(self, value: exp.Expr) -> exp.Expr:
        """Returns the value, or a predicate on it."""
        index = self._index
        negated = self._match_not()
        if self._match_set((TokenType.LIKE, TokenType.ILIKE)):
            return self._like(value, negated)
        if self._match_set((TokenType.RLIKE,)):
            found: exp.Expr = exp.RegexpLike(this=value, expression=self._operand(self._parse_comparison))
        elif self.match_token(TokenType.BETWEEN):
            found = self._between(value)
        elif self.match_token(TokenType.IN):
            found = self._parse_in(value)
        elif not negated and self.match_token(TokenType.IS):
            return self._is(value)
        else:
            self._retreat(index)
            return value
        return exp.Not(this=found) if negated else found

    def _between(self, value: exp.Expr) -> exp.Expr:
        low = self._operand(self._parse_comparison)
        if not self.match_token(TokenType.AND):
            self.fail_expected("AND")
        return exp.Between(this=value, low=low, high=self._operand(self._parse_comparison))

    def _like(self, value: exp.Expr, negated: bool) -> exp.Expr:
        kind = exp.ILike if self._prev.token_type == TokenType.ILIKE else exp.Like
        if self._match_set((TokenType.ANY, TokenType.SOME, TokenType.ALL)):
            every = self._prev.token_type == TokenType.ALL
            patterns = exp.Tuple(expressions=self.wrapped(lambda: self.expect_expression("a pattern")))
            several = exp.All(this=patterns) if every else exp.Any(this=patterns)
            return kind(this=value, expression=several, negate=negated or None)
        found = kind(this=value, expression=self._operand(self._parse_comparison), negate=negated or None)
        if not self.match_token(TokenType.ESCAPE):
            return found
        if not self.at_token(TokenType.STRING):
            self.fail_expected("a character in quotes")
        return exp.Escape(this=found, expression=self._operand(self._parse_primary))

    def _match_not(self) -> bool:
        """Returns whether NOT precedes a predicate, and skips it. ``!`` is allowed only before a condition."""
        word = self._curr
        if not self.match_token(TokenType.NOT):
            return False
        if word.text == "!":
            self.fail('"!" stands before a condition', word, hint="write NOT")
        return True

    def _is(self, value: exp.Expr) -> exp.Expr:
        negated = self._match_not()
        if self.match_words("DISTINCT", "FROM"):
            kind = exp.NullSafeEQ if negated else exp.NullSafeNEQ
            return kind(this=value, expression=self._operand(self._parse_comparison))
        found: exp.Expr
        if self.match_words("UNKNOWN") or self.match_token(TokenType.NULL):
            found = exp.Is(this=value, expression=exp.Null())
        elif self._match_set((TokenType.TRUE, TokenType.FALSE)):
            found = exp.Is(this=value, expression=exp.Boolean(this=self._prev.token_type == TokenType.TRUE))
        else:
            self.fail_expected("NULL, TRUE, FALSE, UNKNOWN or DISTINCT FROM")
        return exp.Not(this=found) if negated else found

    def _parse_comparison(self, this: exp.Expr | None = None) -> exp.Expr | None:
        value = this or self._parse_bitwise()
        while value is not None and self._match_set(_COMPARISONS):
            kind = _COMPARISONS[self._prev.token_type]
            value = kind(this=value, expression=self._operand(self._parse_bitwise))
        return value

    def _parse_bitwise(self) -> exp.Expr | None:
        return self._bits(0)

    def _bits(self, level: int) -> exp.Expr | None:
        if level == len(_BITS):
            return self._shifts()
        token, kind = _BITS[level]
        value = self._bits(level + 1)
        while value is not None and self.match_token(token):
            value = kind(this=value, expression=self._operand(lambda: self._bits(level + 1)))
        return value

    def _shifts(self) -> exp.Expr | None:
        value = self._parse_term()
        while value is not None:
            for tokens, name in _SHIFTS:
                if self._together(tokens):
                    self._advance(len(tokens))
                    value = call(name, value, self._operand(self._parse_term))
                    break
            else:
                break
        return value

    def _together(self, tokens: tuple[TokenType, ...]) -> bool:
        """Returns whether these tokens come next, without white space between them."""
        found = [self.peek(i) for i in range(len(tokens))]
        if [t and t.token_type for t in found] != list(tokens):
            return False
        return all(a and b and b.start == a.end + 1 for a, b in pairwise(found))

    def _parse_term(self, parse_mod: bool = True) -> exp.Expr | None:
        value = self._parse_factor()
        while value is not None:
            if self._match_set(_TERMS):
                kind = _TERMS[self._prev.token_type]
                value = kind(this=value, expression=self._operand(self._parse_factor))
            elif self.match_token(TokenType.COLLATE):
                value = exp.Collate(this=value, expression=self._operand(self._parse_factor))
                self._normalize_collate(value)
            else:
                break
        return value

    def _parse_unary(self) -> exp.Expr | None:
        if self.match_token(TokenType.DASH):
            if self.at_token(TokenType.NUMBER):
                number = suffixed(self, negative=True)
                if number is not None:
                    return self._parse_column_ops(number)
                following = self.peek(1)
                if following and following.token_type == TokenType.DCOLON:
                    # The sign belongs to the number: -5::STRING is a text.
                    return self._parse_column_ops(exp.Neg(this=self._operand(self._parse_primary)))
            return exp.Neg(this=self._operand(self._parse_unary))
        if self.match_token(TokenType.PLUS):
            return call("POSITIVE", self._operand(self._parse_unary))
        if self.match_token(TokenType.TILDE):
            return exp.BitwiseNot(this=self._operand(self._parse_unary))
        if self.at_token(TokenType.NUMBER):
            number = suffixed(self, negative=False)
            if number is not None:
                return self._parse_column_ops(number)
        return super()._parse_unary()

    def _parse_types(self, check_func: bool = False, *args: Any, **kwargs: Any) -> exp.Expr | None:
        """Parses a type, except where ``ARRAY(`` begins a call: sqlglot would first read it as a type of types."""
        if check_func and self._next and self._next.token_type == TokenType.L_PAREN and self._curr:
            if self._curr.token_type in (TokenType.ARRAY, TokenType.MAP, TokenType.STRUCT):
                return None
        token = self._curr
        found = super()._parse_types(check_func, *args, **kwargs)
        if (
            isinstance(found, exp.DataType)
            and found.this == exp.DType.DECIMAL
            and found.expressions
            and token
        ):
            self.check_decimal([p.name for p in found.expressions], token)
        return found
