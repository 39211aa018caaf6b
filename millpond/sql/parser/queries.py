"""Parses queries: sqlglot's SELECT, with EMIT and the clauses that end a statement."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from sqlglot import exp
from sqlglot.tokens import TokenType

from millpond.options import Setting
from millpond.sql.nodes import IN_PARENTHESES, StreamWindow
from millpond.sql.parser.functions import UNITS
from millpond.sql.parser.versions import at_version, whole_version
from millpond.sql.parser.windows import WindowParser, window_clause
from millpond.sql.statements import Query

_ENDS_NAME = (TokenType.COMMA, TokenType.FROM, TokenType.DOT, TokenType.R_PAREN, TokenType.ALIAS)


_PART = r"[+-]?\s*(\d+(\.\d*)?|\.\d+)\s+(year|month|week|day|hour|minute|second|millisecond|microsecond)s?"
_INTERVAL = re.compile(rf"\s*(interval\s+)?{_PART}(\s+{_PART})*\s*", re.IGNORECASE | re.ASCII)
_NUMBERS = re.compile(r"[\s\d.:+-]+", re.ASCII)
"""What may be in quotes after INTERVAL: numbers with units or, before a unit, numbers alone."""
_OF_QUERIES: dict[TokenType, type[exp.Expr]] = {
    TokenType.EXISTS: exp.Exists,
    TokenType.ANY: exp.Any,
    TokenType.SOME: exp.Any,
    TokenType.ALL: exp.All,
}
_TEXTS = (TokenType.STRING, TokenType.RAW_STRING)
_COMPARISONS = (TokenType.EQ, TokenType.NEQ, TokenType.GT, TokenType.GTE, TokenType.LT, TokenType.LTE)
_AFTER_NAME = (
    *_COMPARISONS,
    TokenType.IS,
    TokenType.IN,
    TokenType.BETWEEN,
    TokenType.LIKE,
    TokenType.SLASH,
    TokenType.MOD,
    TokenType.DPIPE,
    TokenType.AMP,
    TokenType.PIPE,
    TokenType.CARET,
    TokenType.DCOLON,
)
"""What cannot begin an expression."""


@dataclass
class Tail:
    """Contains the clauses that may end a statement, in any order."""

    emit: Literal["changes", "final"] | None = None
    settings: list[Setting] = field(default_factory=list)
    errors_into: str | None = None


class QueryParser(WindowParser):
    returning_is_clause = False
    _joining = False

    def _at_clause(self) -> bool:
        """Returns whether a clause of ours begins here, so that its first word is not an alias."""
        token = self._curr
        if not token or token.token_type != TokenType.VAR:
            return False
        match token.text.upper():
            case "EMIT":
                return self._at_emit()
            case "ERROR":
                return self.at_words("ERROR", "INTO")
            case "RETURNING":
                return self.returning_is_clause
            case "WINDOW":
                return self._at_stream_window() or self._at_named_windows()
            case "QUALIFY":
                return self._at_qualify()
        return False

    def _at_qualify(self) -> bool:
        """Returns whether QUALIFY begins a condition; otherwise it is a name."""
        following = self.peek(1)
        ends = (
            TokenType.COMMA,
            TokenType.R_PAREN,
            TokenType.DOT,
            TokenType.JOIN,
            TokenType.ON,
            TokenType.USING,
        )
        return (
            self.at_words("QUALIFY")
            and following is not None
            and following.token_type not in (*ends, *self.QUERY_MODIFIER_TOKENS, *self.SET_OPERATIONS)
            and following.token_type not in (*self.JOIN_SIDES, *self.JOIN_KINDS, *self.JOIN_METHODS)
        )

    def _at_emit(self) -> bool:
        return self.at_words("EMIT", "CHANGES") or self.at_words("EMIT", "FINAL")

    def _parse_table_alias(self, alias_tokens: Collection[TokenType] | None = None) -> exp.TableAlias | None:
        if self._no_alias() or self.at_words("EMIT"):
            return None
        alias = super()._parse_table_alias(alias_tokens)
        self._check_alias(alias)
        return alias

    def _parse_alias(self, this: exp.Expr | None, explicit: bool = False) -> exp.Expr | None:
        star = isinstance(this, exp.Star) or (
            isinstance(this, exp.Column) and isinstance(this.this, exp.Star)
        )
        if star or self._no_alias():
            return this
        aliased = super()._parse_alias(this, explicit)
        self._check_alias(aliased if isinstance(aliased, (exp.Alias, exp.Aliases)) else None)
        return aliased

    def _check_alias(self, alias: exp.Expr | None) -> None:
        if alias is None and self._prev.token_type == TokenType.ALIAS:
            self.fail_expected("a name after AS")

    def _no_alias(self) -> bool:
        parameter = self._curr.token_type in (TokenType.COLON, TokenType.PLACEHOLDER)
        return parameter or self._at_clause()

    def _parse_version(self) -> exp.Version | None:
        start = self._curr.start if at_version(self) else None
        return None if start is None else whole_version(self, super()._parse_version(), start)

    def _parse_table_hints(self) -> list[exp.Expr] | None:
        return None

    def _parse_projections(self) -> tuple[list[exp.Expr], list[exp.Expr] | None]:
        projections = self._parse_expressions()
        if not projections:
            self.fail_expected("what to select")
        return projections, None

    def _parse_unary(self) -> exp.Expr | None:
        return self._parse_of_queries() or super()._parse_unary()

    def _parse_of_queries(self) -> exp.Expr | None:
        """Parses `EXISTS ((SELECT …) UNION …)` and `x = ANY ((SELECT …) …)`, which look like functions: as a function,
        the first has a second argument, and the others do not follow a comparison.
        """
        found = [self.peek(i) for i in range(3)]
        kinds = [token.token_type for token in found if token]
        made = _OF_QUERIES.get(kinds[0]) if kinds else None
        if made is None or kinds[1:] != [TokenType.L_PAREN, TokenType.L_PAREN]:
            return None
        if made is not exp.Exists and self._prev.token_type not in _COMPARISONS:
            return None
        index, ahead = self._index, 3
        while (token := self.peek(ahead)) and token.token_type == TokenType.L_PAREN:
            ahead += 1
        if token is None or token.token_type not in (TokenType.SELECT, TokenType.WITH, TokenType.VALUES):
            return None
        self._advance(2)
        query = self._parse_query_expression()
        if not self.at_token(TokenType.R_PAREN):
            self._retreat(index)
            return None
        self._advance()
        return self.expression(made(this=query))

    def _parse_primary(self) -> exp.Expr | None:
        """Joins adjacent strings, raw ones too, into one string."""
        first = self._curr
        found = super()._parse_primary()
        texts = [e.name for e in found.expressions] if isinstance(found, exp.Concat) else []
        if isinstance(found, exp.Literal) and first and first.token_type in _TEXTS:
            texts = [found.name]
        while texts and self._match_set(_TEXTS):
            texts.append(self._prev.text)
        return exp.Literal.string("".join(texts)).update_positions(first) if len(texts) > 1 else found

    def _parse_atom(self) -> exp.Expr | None:
        following = self.peek(1)
        adjacent = self._curr.token_type in _TEXTS and following and following.token_type in _TEXTS
        return None if adjacent else super()._parse_atom()

    def _parse_lambda(self, alias: bool = False) -> exp.Expr | None:
        self._name_all(0, (*_ENDS_NAME, *_AFTER_NAME, TokenType.STAR))
        return super()._parse_lambda(alias)

    def _parse_star_op(self, *keywords: str) -> list[exp.Expr] | None:
        if self._curr and self._curr.text.upper() in keywords:
            following = self.peek(1)
            if following is None or following.token_type != TokenType.L_PAREN:
                return None  # EXCEPT begins the next query
            if self._curr.text.upper() not in ("EXCEPT", "REPLACE"):
                self.fail_unexpected()
        return super()._parse_star_op(*keywords)

    def _name_all(self, at: int, ends: Collection[TokenType]) -> None:
        """Makes ALL before SELECT, GROUP BY or an argument the name of a column, if one of these tokens follows."""
        word, following, third = self.peek(at), self.peek(at + 1), self.peek(at + 2)
        if word and following and word.token_type == TokenType.ALL and following.token_type in ends:
            if following.token_type != TokenType.STAR or (third and third.token_type != TokenType.R_PAREN):
                word.token_type = TokenType.VAR

    def _parse_group(self, skip_group_by_token: bool = False) -> exp.Group | None:
        if self.at_token(TokenType.GROUP_BY):
            self._name_all(1, (TokenType.COMMA,))
            every = self.peek(1)
            if every is not None and every.token_type == TokenType.ALL:
                # It is alone. sqlglot would read UNION (…) after it as a call to group by.
                self._advance(2)
                return self.expression(exp.Group(all=True, expressions=[]))
        group = super()._parse_group(skip_group_by_token)
        if group is not None and not any(group.args.values()):
            self.fail_expected("what to group by")
        return group

    def _parse_interval(self, *args: Any, **kwargs: Any) -> exp.Add | exp.Interval | None:
        text, unit = self.peek(1), self.peek(2)
        if self.at_token(TokenType.INTERVAL) and text and text.token_type == TokenType.STRING:
            with_unit = unit is not None and unit.text.upper().rstrip("S") in UNITS
            if not (_NUMBERS if with_unit else _INTERVAL).fullmatch(text.text):
                hint = "write INTERVAL '2' DAY, INTERVAL '1 2:3:4' DAY TO SECOND or INTERVAL '2 days 3 hours'"
                self.fail(f"{self.shown(text)} is no interval", text, hint=hint)
        interval = super()._parse_interval(*args, **kwargs)
        ranged = interval is not None and any(interval.find_all(exp.IntervalSpan))
        if ranged and isinstance(interval, exp.Add):
            self.fail("an interval of the form a TO b stands alone", self._prev)
        if isinstance(interval, exp.Interval) and isinstance(interval.this, (exp.Star, exp.Null)):
            self.fail("expected a number and a unit after INTERVAL", self._prev)
        if isinstance(interval, exp.Add):
            return exp.Paren(this=interval)  # type: ignore[return-value]
        return interval

    def _parse_in(self, this: exp.Expr | None, alias: bool = False) -> exp.In:
        if not self.at_token(TokenType.L_PAREN):
            self.fail_expected('"(" after IN')
        made = super()._parse_in(this, alias)
        query = made.args.get("query")
        if isinstance(query, exp.Subquery) and isinstance(query.this, exp.Subquery):
            # `IN ((SELECT …))` is a list of one value, that of the subquery.
            made.set("query", None)
            made.set("expressions", [query.this])
        return made

    def _parse_into(self) -> exp.Into | None:
        return None

    def _parse_join(
        self, skip_join_token: bool = False, parse_bracket: bool = False, alias_tokens: Any = None
    ) -> exp.Join | None:
        comma = self._curr if self._curr and self._curr.token_type == TokenType.COMMA else None
        before, self._joining = self._joining, True
        try:
            join = super()._parse_join(skip_join_token, parse_bracket, alias_tokens)
        finally:
            self._joining = before
        if comma and (join is None or not join.this):
            self.fail_expected('an input after ","')
        if comma and join:
            join.meta["comma"] = True
        if join and self._prev.token_type == TokenType.ON:
            self.fail_expected("a condition")
        return join

    def _parse_joins(self, alias_tokens: Any = None) -> Iterator[exp.Join]:
        """Parses the joins of a FROM. sqlglot also looks for joins after an input without a condition, for `a JOIN b
        JOIN c ON … ON …`, which Spark does not have; trying that doubles the time for every further input.
        """
        return iter(()) if self._joining else super()._parse_joins(alias_tokens)

    def _parse_table(self, *args: Any, **kwargs: Any) -> exp.Expr | None:
        before, self._joining = self._joining, False
        try:
            return super()._parse_table(*args, **kwargs)
        finally:
            self._joining = before

    def _parse_select(self, *args: Any, **kwargs: Any) -> exp.Expr | None:
        before, self._joining = self._joining, False
        self._name_all(1, (*_ENDS_NAME, *_AFTER_NAME))
        try:
            return super()._parse_select(*args, **kwargs)
        finally:
            self._joining = before

    def _parse_value(self, values: bool = True) -> exp.Tuple | None:
        """Parses a row of VALUES. A row without parentheses has no alias: what follows AS names the whole."""
        if self.at_token(TokenType.L_PAREN):
            return super()._parse_value(values)
        found = self._parse_disjunction()
        return self.expression(exp.Tuple(expressions=[found])) if found else None

    def _parse_derived_table_values(self, *args: Any, **kwargs: Any) -> exp.Values | None:
        """Parses VALUES as an input, also in parentheses, unless these contain more."""
        at_parenthesis, index = self.at_token(TokenType.L_PAREN), self._index
        if at_parenthesis and self._match_pair(TokenType.L_PAREN, TokenType.VALUES):
            self._parse_csv(self._parse_value)
            alone = self.at_token(TokenType.R_PAREN)
            self._retreat(index)
            if not alone:
                return None
        found = super()._parse_derived_table_values(*args, **kwargs)
        if found is not None and at_parenthesis:
            found.meta[IN_PARENTHESES] = True
        return found

    def _parse_statement(self) -> exp.Expr | None:
        """Parses what sqlglot calls a statement, which for us is always a query: in a CTE, and after WITH."""
        return self._parse_query_expression()

    def _parse_query_expression(self) -> exp.Expression:
        query = self._parse_select(nested=True, parse_set_operation=False)
        query = self._parse_query_modifiers(self._parse_set_operations(query))
        if isinstance(query, exp.Values):
            query = self._values_to_select(query)
        if not isinstance(query, (exp.Select, exp.SetOperation, exp.Subquery)):
            self.fail_expected("a query")
        return query

    def parse_query(self, tail: Tail) -> Query:
        """Parses a query and the clauses that end it."""
        expression = self._parse_query_expression()
        self.parse_tail(tail, emit=True)
        window = None
        if isinstance(expression, exp.Select):
            windows = expression.args.get("windows") or []
            if windows and isinstance(windows[0], StreamWindow):
                window = window_clause(windows[0])
                expression.set("windows", windows[1:] or None)
        return Query(expression, window, tail.emit)

    def parse_tail(self, tail: Tail, *, emit: bool = False) -> None:
        """Parses ``EMIT …``, ``WITH (…)`` and ``ERROR INTO t``, as far as present."""
        while True:
            if self.at_settings():
                tail.settings.extend(self.parse_settings())
            elif emit and self._at_emit():
                if tail.emit:
                    self.fail("EMIT is there twice")
                self._advance(2)
                tail.emit = "changes" if self._prev.text.upper() == "CHANGES" else "final"
            elif emit and self.at_words("EMIT"):
                self._advance()
                self.fail_expected("CHANGES or FINAL")
            elif self.at_words("ERROR", "INTO"):
                if tail.errors_into:
                    self.fail("ERROR INTO is there twice")
                self._advance(2)
                tail.errors_into = self.parse_name("the name of a table")
            else:
                return

    def _at_window_or_qualify(self) -> bool:
        return self.at_words("WINDOW") or self.at_words("QUALIFY")

    def _parse_query_modifiers(self, this: Any) -> Any:
        this = super()._parse_query_modifiers(this)
        distinct = this.args.get("distinct") if isinstance(this, exp.Select) else None
        if isinstance(distinct, exp.Distinct) and distinct.args.get("on"):
            self.fail(
                "DISTINCT ON is not known", hint="ROW_NUMBER() OVER (PARTITION BY …) picks one row of each"
            )
        while isinstance(this, exp.Select) and self._at_clause() and self._at_window_or_qualify():
            if self.at_words("QUALIFY"):
                if this.args.get("qualify"):
                    self.fail("QUALIFY is there twice")
                self._advance()
                this.set("qualify", exp.Qualify(this=self.expect_expression("a condition")))
                this = super()._parse_query_modifiers(this)
                continue
            if any(isinstance(w, StreamWindow) for w in this.args.get("windows") or []):
                self.fail("WINDOW is there twice")
            if self._at_stream_window():
                this.set("windows", [self._parse_stream_window(), *(this.args.get("windows") or [])])
            else:
                self._advance()
                for window in self._parse_csv(self._parse_named_window):
                    this.append("windows", window)
            this = super()._parse_query_modifiers(this)
        return this
