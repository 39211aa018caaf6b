"""Limits the size of a text, before and after it is parsed; each error has its place.

Refuses what would take a parser, a checker or an engine too long, or exceed its stack. Chains of AND and OR do not
count as depth: the parser makes balanced trees of them, which mean the same.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

from sqlglot import exp
from sqlglot.tokens import Token, TokenType

from millpond.errors import Place, SqlSyntaxError
from millpond.sql.notes import notes_of
from millpond.sql.text import Script

T = TokenType
_OPENING = frozenset((T.L_PAREN, T.L_BRACKET, T.L_BRACE, T.CASE))
_CLOSING = frozenset((T.R_PAREN, T.R_BRACKET, T.R_BRACE, T.END))
_CHAINED = frozenset(
    (T.PLUS, T.DASH, T.STAR, T.SLASH, T.PERCENT, T.DIV, T.DPIPE, T.PIPE, T.AMP, T.CARET, T.TILDE, T.NOT)
    + (T.DOT, T.DCOLON, T.L_BRACKET, T.EQ, T.NEQ, T.LT, T.GT, T.LTE, T.GTE, T.NULLSAFE_EQ, T.IS)
    + (T.LIKE, T.ILIKE, T.RLIKE, T.BETWEEN, T.COLLATE)
)
"""Operators that make an expression one level deeper each time one follows another."""
_BREAKS = frozenset(
    (T.COMMA, T.AND, T.OR, T.SELECT, T.FROM, T.WHERE, T.GROUP_BY, T.HAVING, T.ORDER_BY, T.LIMIT, T.JOIN, T.ON)
    + (T.WHEN, T.THEN, T.ELSE, T.VALUES, T.SET)
)
"""Tokens where another expression begins."""
_NESTED: tuple[tuple[tuple[type[exp.Expr], ...], int, str], ...] = (
    ((exp.Select,), 30, "queries"),
    ((exp.Lambda,), 5, "lambda functions"),
    ((exp.DataType,), 30, "types"),
    ((exp.Array, exp.Struct, exp.Map, exp.VarMap), 30, "arrays, maps and structs"),
)
"""Constructs whose time grows faster than their nesting, in Millpond or in an engine: the maximum levels of each."""
_ANY_NESTED = tuple(kind for kinds, _, _ in _NESTED for kind in kinds)
_DIGITS = 38
_LARGEST = Decimal(sys.float_info.max)
_NODES = 3
"""The number of tree nodes that one level of the text can be: a subquery in FROM is this many."""
_ROUGHLY = re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`|--[^\n]*|\w+|[^\s\w]")
_TOLERANCE = 2
"""Operators of two characters count twice when words are only counted roughly."""
_SETS = frozenset((T.UNION, T.EXCEPT, T.INTERSECT))


@dataclass(frozen=True, slots=True)
class TextLimits:
    """Limits a text (``length``, in characters) and each statement in it."""

    length: int = 64 * 1024 * 1024
    words: int = 2_000_000
    """Words, numbers, texts and operators."""
    depth: int = 150
    """Levels of an expression: brackets, calls, operators in a row."""
    inputs: int = 1_000
    """Tables and subqueries that it reads."""
    statements: int = 100_000
    """Statements of a text."""


OWN = TextLimits()
"""For the text of an app."""
CLIENTS = TextLimits(length=1_000_000, words=25_000, depth=100, inputs=50, statements=100)
"""For texts of clients over HTTP."""


def check_length(text: str, limits: TextLimits) -> None:
    """Raises for a text that is too long to process."""
    if len(text) > limits.length:
        raise SqlSyntaxError(
            f"the text has {len(text):,} characters, and at most {limits.length:,} are read",
            hint="send it in parts; rows go by parameters, a stream or a file",
            place=Place.of(text[: limits.length + 1], limits.length),
        )
    # The tokenizer takes one or two microseconds per character; this simpler scan takes far less.
    for count, word in enumerate(_ROUGHLY.finditer(text)):
        if count > _TOLERANCE * limits.words:
            raise SqlSyntaxError(
                f"the text has more than {limits.words:,} words and signs, which are the most that are read",
                hint="send it in parts; rows go by parameters, a stream or a file",
                place=Place.of(text, word.start(), word.end()),
            )


def check_count(chunks: Sequence[Sequence[Token]], limits: TextLimits, script: Script) -> None:
    """Raises for a text with too many statements."""
    if len(chunks) > limits.statements:
        token = chunks[limits.statements][0]
        raise SqlSyntaxError(
            f"the text has {len(chunks):,} statements, and at most {limits.statements:,} are read",
            hint="send it in parts",
            place=script.place(token.start, token.end + 1),
        )


def check_tokens(tokens: Sequence[Token], limits: TextLimits, script: Script) -> None:
    """Raises for a statement that is too long, or whose brackets are too deep, before it is parsed."""
    if len(tokens) > limits.words:
        token = tokens[limits.words]
        raise SqlSyntaxError(
            f"this statement has {len(tokens):,} words and signs, and at most {limits.words:,} are read",
            hint="send it in parts; rows go by parameters, a stream or a file",
            place=script.place(token.start, token.end + 1),
        )
    chains, sets = [0], [0]
    for token in tokens:
        kind = token.token_type
        if kind is T.NUMBER:
            _check_number(token, script)
        if kind in _CHAINED:
            chains[-1] += 1
        elif kind in _BREAKS:
            chains[-1] = 0
        elif kind in _SETS:
            sets[-1] += 1
        if kind in _OPENING:
            chains.append(0)
            sets.append(0)
        elif kind in _CLOSING and len(chains) > 1:
            chains.pop()
            sets.pop()
        if len(chains) > limits.depth or chains[-1] > limits.depth or sets[-1] > limits.depth:
            raise too_deep(limits, script.place(token.start, token.end + 1))


def _check_number(token: Token, script: Script) -> None:
    """Raises for a number that no type can represent."""
    if len(token.text) <= _DIGITS and "e" not in token.text.lower():
        return
    digits, _, exponent = token.text.lower().partition("e")
    if not exponent:
        significant = digits.replace(".", "").lstrip("0")
        if len(significant) <= _DIGITS:
            return
        what = f"has {len(significant):,} digits, and a DECIMAL has at most {_DIGITS}"
    else:
        try:
            if Decimal(token.text) <= _LARGEST:
                return
        except InvalidOperation:  # not a number, or an exponent with more digits than Decimal accepts
            if exponent.startswith("-") or not exponent.lstrip("+").isdecimal():
                return
        what = "is out of the range of DOUBLE, 1.7976931348623157e308 at the most"
    raise SqlSyntaxError(
        f'the number "{token.text[:20]}{"…" if len(token.text) > 20 else ""}" {what}',
        hint="write it as a text, or in parts",
        place=script.place(token.start, token.end + 1),
    )


def too_deep(limits: TextLimits, place: Place | None) -> SqlSyntaxError:
    return SqlSyntaxError(
        f"this is nested too deeply: an expression has at most {limits.depth} levels",
        hint="take a part out into WITH or a view; use IN (…), concat(…) or an array instead of a long chain",
        place=place,
    )


def check_tree(value: Any, limits: TextLimits, script: Script, level: int = 0) -> None:
    """Raises if a parsed statement, or an expression, is nested too deeply or reads too much."""
    if isinstance(value, exp.Expr):
        _check_tree(value, limits, script)
    elif isinstance(value, tuple):
        for item in value:
            check_tree(item, limits, script, level)
    elif is_dataclass(value) and not isinstance(value, Place | type):
        if level > limits.depth:
            raise too_deep(limits, getattr(value, "place", None))
        for field in fields(value):
            check_tree(getattr(value, field.name), limits, script, level + 1)


def _check_tree(tree: exp.Expr, limits: TextLimits, script: Script) -> None:
    inputs = 0
    waiting: list[tuple[exp.Expr, int, tuple[int, ...]]] = [(tree, 0, (0,) * len(_NESTED))]
    while waiting:
        node, depth, inside = waiting.pop()
        if isinstance(node, _ANY_NESTED):
            inside = tuple(
                n + isinstance(node, kinds) for n, (kinds, _, _) in zip(inside, _NESTED, strict=True)
            )
            for count, (_, most, what) in zip(inside, _NESTED, strict=True):
                if count > most:
                    raise _nested(what, most, _place(node, script))
        if depth > _NODES * limits.depth:
            raise too_deep(limits, _place(node, script))
        inputs += isinstance(node, exp.Table | exp.Subquery)
        if inputs > limits.inputs:
            raise SqlSyntaxError(
                f"this statement reads more than {limits.inputs:,} tables and subqueries",
                hint="take a part of it out into a view",
                place=_place(node, script),
            )
        waiting += [(child, depth + 1, inside) for child in node.iter_expressions()]


def _nested(what: str, most: int, place: Place | None) -> SqlSyntaxError:
    return SqlSyntaxError(
        f"{what} are nested too deeply: at most {most} levels are read",
        hint="take a part out into WITH or a view",
        place=place,
    )


def _place(node: exp.Expr, script: Script) -> Place | None:
    """Returns the place of a node, or of what is around it."""
    near: exp.Expr | None = node
    while near is not None:
        meta = notes_of(near)
        if "start" in meta:
            return script.place(meta["start"], meta["end"] + 1)
        near = near.parent
    return None
