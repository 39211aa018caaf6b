"""Parses ``WINDOW TUMBLING(…)``, and durations."""

from __future__ import annotations

import re
from typing import cast

from sqlglot import exp
from sqlglot.tokens import Token, TokenType

from millpond.options import parse_duration
from millpond.sql.nodes import StreamWindow, seconds_text
from millpond.sql.parser.operators import OperatorParser
from millpond.sql.statements import WindowClause, WindowKind

_WINDOWS: dict[str, WindowKind] = {
    "TUMBLING": "tumbling",
    "HOPPING": "hopping",
    "SLIDING": "hopping",
    "SESSION": "session",
}
_UNITS = {"microsecond": 1e-6, "millisecond": 1e-3, "second": 1.0, "minute": 60.0, "hour": 3600.0}
_UNITS |= {"day": 24 * _UNITS["hour"], "week": 7 * 24 * _UNITS["hour"]}
_PART = re.compile(r"\s*(\d+(?:\.\d+)?)\s+([a-z]+)", re.IGNORECASE)


class WindowParser(OperatorParser):
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
        """Parses a duration in seconds, or the expression of the time."""
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
        """Returns the last token of the argument that begins here."""
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
        """Returns the length of an interval; months and years have none."""
        seconds = _interval_seconds(node)
        if seconds is None:
            self.fail(
                "this is not a length of time of a fixed number of seconds",
                token,
                hint="write INTERVAL '5' MINUTE, INTERVAL 30 SECONDS, 5m or '5 minutes'",
            )
        return seconds


def _interval_seconds(node: exp.Expr) -> float | None:
    if isinstance(node, exp.Paren):
        return _interval_seconds(node.this)
    if isinstance(node, exp.Add):
        parts = (_interval_seconds(node.this), _interval_seconds(node.expression))
        return None if None in parts else sum(p for p in parts if p is not None)
    if not isinstance(node, exp.Interval) or not isinstance(node.this, exp.Literal):
        return None
    unit = node.args.get("unit")
    text = f"{node.this.name} {unit.name}" if unit else node.this.name
    parts_of_text = _PART.findall(text)
    if "".join(text.split()).lower() != "".join(n + u for n, u in parts_of_text).lower():
        return None
    factors = [_UNITS.get(u.lower().removesuffix("s")) for _, u in parts_of_text]
    if not factors or None in factors:
        return None
    return sum(float(n) * (f or 0.0) for (n, _), f in zip(parts_of_text, factors, strict=True))


def window_clause(node: StreamWindow) -> WindowClause:
    slide = node.args.get("slide")
    return WindowClause(
        kind=cast(WindowKind, node.name),
        time=node.args.get("time"),
        size=float(node.args["size"].name),
        slide=float(slide.name) if slide else None,
    )
