"""Parses text into statements."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

from sqlglot import exp
from sqlglot.errors import ParseError, TokenError
from sqlglot.tokens import Token, TokenType

from millpond import allowance
from millpond.errors import CheckFailed, Place, SqlError, SqlSyntaxError
from millpond.sql.dialect import Millpond
from millpond.sql.limits import (
    CLIENTS,
    OWN,
    TextLimits,
    check_count,
    check_length,
    check_tokens,
    check_tree,
    too_deep,
)
from millpond.sql.parser.base import Failure
from millpond.sql.parser.statement import MillpondParser
from millpond.sql.statements import Statement
from millpond.sql.text import Piece, Script, pieces
from millpond.sql.uris import mask_uris

_CALLS = 5_000
"""The depth of nested calls that Python allows: enough for statements as deep as ``OWN`` allows, in every step."""
_UNCLOSED = {"string": "this string is never closed", "name": "this name is never closed"}


@dataclass(frozen=True)
class Parsed:
    """Contains the statements that could be parsed, and the errors of those that could not, both in text order."""

    statements: tuple[Statement, ...]
    errors: tuple[SqlError, ...]
    script: Script

    def require(self) -> tuple[Statement, ...]:
        """Returns the statements, or raises the error: the only one, or CheckFailed with all of them."""
        if len(self.errors) == 1:
            raise self.errors[0]
        if self.errors:
            raise CheckFailed(self.errors)
        return self.statements


def parse(text: str, env: Mapping[str, str] | None = None, limits: TextLimits = OWN) -> Parsed:
    """Parses every statement; after a mistake, parsing continues after the next semicolon.

    ``env`` contains the values of ``${NAME}``, by default the environment of the process. A text that is longer than
    ``limits`` allows is not read at all.
    """
    try:
        check_length(text, limits)
    except SqlSyntaxError as error:
        return Parsed((), (error,), Script("", ""))
    script = Script.of(text, env)
    tokens, uris, unreadable = _tokenize(script)
    found: list[Statement] = []
    errors: list[tuple[int, SqlError]] = [*script.errors, *unreadable]
    broken = [offset for offset, _ in errors]
    parser = _parser()
    chunks = _chunks(tokens, len(script.expanded))
    try:
        check_count([chunk for chunk, _ in chunks], limits, script)
    except SqlSyntaxError as error:
        return Parsed((), (error,), script)
    for chunk, end in chunks:
        start = chunk[0].start
        if any(start <= offset <= end for offset in broken):
            continue
        allowance.check()
        try:
            check_tokens(chunk, limits, script)
            parser.load(chunk, script, uris)
            statement = parser.parse_statement()
            check_tree(statement, limits, script)
            found.append(statement)
        except Failure as e:
            errors.append((e.start, _error(e, script)))
        except SqlSyntaxError as error:
            error.place = error.place or script.place(start, chunk[0].end + 1)
            errors.append((start, error))
        except RecursionError:
            errors.append((start, too_deep(limits, script.place(start, start + 1))))
    return Parsed(tuple(found), tuple(e for _, e in sorted(errors, key=lambda e: e[0])), script)


def parse_one_statement(text: str, env: Mapping[str, str] | None = None) -> Statement:
    """Returns the statement of a text that contains exactly one."""
    statements = parse(text, env).require()
    if len(statements) != 1:
        place = statements[1].place if statements else Place.of(text, 0)
        raise SqlSyntaxError(f"expected one statement, found {len(statements)}", place=place)
    return statements[0]


def parse_condition(text: str, limits: TextLimits = CLIENTS) -> exp.Expression:
    """Parses a condition such as ``tier = 'GOLD' AND age > 65``; variables are not replaced."""
    check_length(text, limits)
    script = Script(text, text)
    tokens, uris, unreadable = _tokenize(script)
    if unreadable:
        raise unreadable[0][1]
    check_tokens(tokens, limits, script)
    parser = _parser()
    try:
        parser.load(tokens, script, uris)
        condition = parser.parse_whole_condition()
    except Failure as e:
        raise _error(e, script) from None
    except RecursionError:
        raise too_deep(limits, script.place(0, 1)) from None
    try:
        check_tree(condition, limits, script)
    except SqlSyntaxError as error:
        error.place = error.place or script.place(0, 1)
        raise
    return condition


@cache
def _dialect() -> Millpond:
    # A level of brackets takes about twenty calls of the parser. All are Python calls, which need no C stack.
    sys.setrecursionlimit(max(sys.getrecursionlimit(), _CALLS))
    return Millpond()


def _parser() -> MillpondParser:
    return MillpondParser(dialect=_dialect())


def tokenize(script: Script) -> list[Token]:
    """Returns the tokens of a text that could be parsed."""
    return _tokenize(script)[0]


def _tokenize(script: Script) -> tuple[list[Token], dict[int, str], list[tuple[int, SqlError]]]:
    """Returns the tokens, the unquoted URIs by offset, and what could not be read by offset."""
    text = script.expanded
    found = list(pieces(text))
    spans = [(p.start, p.end) for p in found if p.kind == "uri"]
    uris = {start: text[start:end] for start, end in spans}
    masked = mask_uris(text, spans)
    errors: list[tuple[int, SqlError]] = []
    if unclosed := next((p for p in found if not p.closed), None):
        errors.append(_unclosed(unclosed, script))
        masked = masked[: unclosed.start]
    try:
        return _dialect().tokenize(masked), uris, errors
    except TokenError:
        tokens, unreadable = _tokenize_parts(masked, found, script)
        return tokens, uris, errors + unreadable


def _tokenize_parts(
    text: str, found: list[Piece], script: Script
) -> tuple[list[Token], list[tuple[int, SqlError]]]:
    """Tokenizes statement by statement, so that unreadable text affects only its own statement."""
    ends = [i + 1 for p in found if p.kind == "code" for i in range(p.start, p.end) if text[i : i + 1] == ";"]
    tokens: list[Token] = []
    errors: list[tuple[int, SqlError]] = []
    for start, end in pairwise([0, *ends, len(text)]):
        try:
            part = _dialect().tokenize(text[start:end])
        except TokenError:
            at = start + len(text[start:end]) - len(text[start:end].lstrip())
            message = "this statement has a string or number that cannot be read"
            errors.append((at, SqlSyntaxError(message, place=script.place(at, end))))
            continue
        for token in part:
            token.start += start
            token.end += start
        tokens += part
    return tokens, errors


def _unclosed(piece: Piece, script: Script) -> tuple[int, SqlSyntaxError]:
    message = _UNCLOSED.get(piece.kind, "this comment is never closed")
    return piece.start, SqlSyntaxError(message, place=script.place(piece.start, piece.start + 1))


def _chunks(tokens: list[Token], length: int) -> list[tuple[list[Token], int]]:
    """Returns the tokens of each statement, and the offset where it ends."""
    chunks: list[tuple[list[Token], int]] = []
    current: list[Token] = []
    for token in tokens:
        if token.token_type != TokenType.SEMICOLON:
            current.append(token)
        elif current:
            chunks.append((current, token.start))
            current = []
    return [*chunks, (current, length)] if current else chunks


def _error(failure: ParseError, script: Script) -> SqlError:
    assert isinstance(failure, Failure)
    return failure.kind(failure.message, hint=failure.hint, place=script.place(failure.start, failure.end))
