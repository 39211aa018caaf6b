"""Queries: sqlglot's SELECT with our windows, EMIT, paths and trailing clauses."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from sqlglot import exp
from sqlglot.tokens import Token, TokenType

from millpond.options import Setting, parse_duration
from millpond.sql.nodes import AnyDepth, Index, Path, StreamWindow, seconds_text
from millpond.sql.parser.base import BaseParser
from millpond.sql.statements import Query, WindowClause, WindowKind

_WINDOWS: dict[str, WindowKind] = {
    "TUMBLING": "tumbling",
    "HOPPING": "hopping",
    "SLIDING": "hopping",
    "SESSION": "session",
}
_UNITS = {
    "microsecond": 1e-6,
    "millisecond": 1e-3,
    "second": 1.0,
    "minute": 60.0,
    "hour": 3600.0,
    "day": 86400.0,
}
_UNITS["week"] = 7 * _UNITS["day"]


@dataclass
class Tail:
    """The clauses that may end a statement, in any order."""

    emit: Literal["changes", "final"] | None = None
    settings: list[Setting] = field(default_factory=list)
    errors_into: str | None = None


class QueryParser(BaseParser):
    returning_is_clause = False

    # Where a word begins a clause of ours and so is no alias

    def _at_clause(self) -> bool:
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
        return False

    def _at_emit(self) -> bool:
        return self.at_words("EMIT", "CHANGES") or self.at_words("EMIT", "FINAL")

    def _at_stream_window(self) -> bool:
        kind, paren = self.peek(1), self.peek(2)
        return (
            self.at_words("WINDOW")
            and kind is not None
            and kind.token_type == TokenType.VAR
            and paren is not None
            and paren.token_type == TokenType.L_PAREN
        )

    def _at_named_windows(self) -> bool:
        as_ = self.peek(2)
        return self.at_words("WINDOW") and as_ is not None and as_.token_type == TokenType.ALIAS

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

    def _parse_table_hints(self) -> list[exp.Expr] | None:
        return None

    # Queries

    def _parse_projections(self) -> tuple[list[exp.Expr], list[exp.Expr] | None]:
        projections = self._parse_expressions()
        if not projections:
            self.fail_expected("what to select")
        return projections, None

    def _parse_into(self) -> exp.Into | None:
        return None

    def _parse_join(
        self, skip_join_token: bool = False, parse_bracket: bool = False, alias_tokens: Any = None
    ) -> exp.Join | None:
        join = super()._parse_join(skip_join_token, parse_bracket, alias_tokens)
        if join and self._prev.token_type == TokenType.ON:
            self.fail_expected("a condition")
        return join

    def _parse_statement(self) -> exp.Expr | None:
        """What sqlglot calls a statement is for us always a query: in a CTE, and after WITH."""
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
        """A query and the clauses that end it."""
        expression = self._parse_query_expression()
        self.parse_tail(tail, emit=True)
        window = None
        if isinstance(expression, exp.Select):
            windows = expression.args.get("windows") or []
            if windows and isinstance(windows[0], StreamWindow):
                window = _window_clause(windows[0])
                expression.set("windows", windows[1:] or None)
        return Query(expression, window, tail.emit)

    def parse_tail(self, tail: Tail, *, emit: bool = False) -> None:
        """``EMIT …``, ``WITH (…)`` and ``ERROR INTO t``, as far as they stand here."""
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

    def _parse_query_modifiers(self, this: Any) -> Any:
        this = super()._parse_query_modifiers(this)
        distinct = this.args.get("distinct") if isinstance(this, exp.Select) else None
        if isinstance(distinct, exp.Distinct) and distinct.args.get("on"):
            self.fail(
                "DISTINCT ON is not known", hint="ROW_NUMBER() OVER (PARTITION BY …) picks one row of each"
            )
        while isinstance(this, exp.Select) and self._at_clause() and self.at_words("WINDOW"):
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

    # Windows

    def _parse_stream_window(self) -> StreamWindow:
        self._advance()
        word = self._curr
        kind = _WINDOWS.get(word.text.upper())
        if kind is None:
            self.fail(
                f"{self.shown()} is not a kind of window",
                hint="windows are TUMBLING(5m), HOPPING(10m, 2m), SLIDING(10m, 2m) and SESSION(30s)",
            )
        self._advance()
        arguments = self.wrapped(self._parse_window_argument)
        time = arguments.pop(0) if isinstance(arguments[0], exp.Expression) else None
        sizes = [a for a in arguments if isinstance(a, float)]
        wanted = 2 if kind == "hopping" else 1
        if len(sizes) != len(arguments) or len(sizes) != wanted:
            takes = "a size and a slide: (10m, 2m)" if wanted == 2 else "one length of time: (5m)"
            self.fail(
                f"{word.text.upper()} takes {takes}", word, hint="a time column may stand before: (ts, 5m)"
            )
        return StreamWindow(
            this=exp.var(kind),
            time=time,
            size=exp.Literal.number(seconds_text(sizes[0])),
            slide=exp.Literal.number(seconds_text(sizes[1])) if wanted == 2 else None,
        )

    def _parse_window_argument(self) -> exp.Expression | float:
        """A length of time in seconds, or the expression of the time."""
        first = self._curr
        stop = self._argument_end()
        text = self.sql[first.start : stop.end + 1] if stop else ""
        if first and text and (text[0].isdigit() or first.token_type == TokenType.STRING):
            while self._prev is not stop:
                self._advance()
            try:
                seconds = parse_duration(first.text if first.token_type == TokenType.STRING else text)
            except ValueError as e:
                self.fail(f'"{text}" is not a length of time', first, until=stop, hint=str(e))
            return self._positive(seconds, first)
        if first and first.token_type == TokenType.INTERVAL:
            return self._positive(
                self.interval_seconds(self.expect_expression("a length of time"), first), first
            )
        return self.expect_expression("a length of time, or the time column")

    def _argument_end(self) -> Token | None:
        """The last token of the argument that begins here."""
        depth, ahead = 0, 0
        while token := self.peek(ahead):
            if token.token_type == TokenType.L_PAREN:
                depth += 1
            elif token.token_type == TokenType.R_PAREN:
                depth -= 1
            if depth < 0 or (depth == 0 and token.token_type == TokenType.COMMA):
                break
            ahead += 1
        return self.peek(ahead - 1) if ahead else None

    def _positive(self, seconds: float, token: Token) -> float:
        if seconds <= 0:
            self.fail("a length of time has to be more than nothing", token)
        return seconds

    def interval_seconds(self, node: exp.Expr, token: Token) -> float:
        """The length of an interval; months and years have none."""
        if isinstance(node, exp.Add):
            return self.interval_seconds(node.this, token) + self.interval_seconds(node.expression, token)
        if isinstance(node, exp.Interval) and node.this and node.args.get("unit"):
            unit = _UNITS.get(str(node.args["unit"].name).lower().removesuffix("s"))
            try:
                if unit is not None:
                    return float(node.this.name) * unit
            except ValueError:
                pass
        self.fail(
            "this is not a length of time of a fixed number of seconds",
            token,
            hint="write INTERVAL '5' MINUTE, INTERVAL 30 SECONDS, 5m or '5 minutes'",
        )

    # Paths

    def _parse_unary(self) -> exp.Expr | None:
        if self._curr.token_type == TokenType.STAR and self._next.token_type == TokenType.STAR:
            return self._parse_path()
        return super()._parse_unary()

    def _parse_column(self) -> exp.Expr | None:
        if self._next.token_type in (TokenType.DOT, TokenType.L_BRACKET) and self._wildcard_ahead():
            return self._parse_path()
        return super()._parse_column()

    def _wildcard_ahead(self) -> bool:
        """Whether the dotted chain that begins here has a wildcard that is not just a final ``.*``."""
        if not self._curr or self._curr.token_type not in (self.ID_VAR_TOKENS | {TokenType.IDENTIFIER}):
            return False
        ahead = 1
        while token := self.peek(ahead):
            if token.token_type == TokenType.L_BRACKET:
                star = self.peek(ahead + 1)
                if star and star.token_type == TokenType.STAR:
                    return True
                depth = 0
                while inner := self.peek(ahead):
                    depth += (inner.token_type == TokenType.L_BRACKET) - (
                        inner.token_type == TokenType.R_BRACKET
                    )
                    ahead += 1
                    if depth == 0:
                        break
            elif token.token_type == TokenType.DOT:
                after, then = self.peek(ahead + 1), self.peek(ahead + 2)
                if after and after.token_type == TokenType.STAR:
                    return then is not None and (
                        then.token_type in (TokenType.DOT, TokenType.L_BRACKET)
                        or (then.token_type == TokenType.STAR and then.start == after.end + 1)
                    )
                ahead += 2
            else:
                return False
        return False

    def _parse_path(self) -> Path:
        first = self._curr
        steps = [self._parse_step()]
        while True:
            if self.at_token(TokenType.L_BRACKET):
                self._advance()
                star = self.match_token(TokenType.STAR)
                steps.append(Index(this=exp.Star() if star else self.expect_expression("an index or *")))
                if not self.match_token(TokenType.R_BRACKET):
                    self.fail_expected('"]"')
            elif self.match_token(TokenType.DOT):
                steps.append(self._parse_step())
            else:
                break
        path = Path(expressions=steps)
        return path.update_positions(start=first.start, end=self._prev.end, line=first.line, col=first.col)

    def _parse_step(self) -> exp.Expression:
        if self.match_token(TokenType.STAR):
            return AnyDepth() if self.match_token(TokenType.STAR) else exp.Star()
        step = self._parse_id_var(any_token=True)
        if not isinstance(step, exp.Identifier):
            self.fail_expected("a field, * or **")
        return step


def _window_clause(node: StreamWindow) -> WindowClause:
    slide = node.args.get("slide")
    return WindowClause(
        kind=cast(WindowKind, node.name),
        time=node.args.get("time"),
        size=float(node.args["size"].name),
        slide=float(slide.name) if slide else None,
    )
