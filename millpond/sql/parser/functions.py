"""Parses function calls.

A call remains as written: ``exp.Anonymous`` with the function's name and its arguments in Spark's order, so that
nothing is lost on the way to Spark. Only aggregates, window functions, and conditionals (COALESCE, IF) have expressions
of their own, because other parts of Millpond look for them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

from sqlglot import exp
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokens import Token, TokenType

from millpond.sql.calls import CALLED
from millpond.sql.functions import by_name, function_classes, wrong_number
from millpond.sql.functions._builders import arguments
from millpond.sql.functions.base import Builder
from millpond.sql.parser.base import BaseParser

_WITH_UNITS = frozenset("DATEADD DATE_ADD TIMESTAMPADD DATEDIFF DATE_DIFF TIMEDIFF TIMESTAMPDIFF".split())
UNITS = frozenset("YEAR QUARTER MONTH WEEK DAY DAYOFYEAR HOUR MINUTE SECOND MILLISECOND MICROSECOND".split())


@cache
def own_functions() -> dict[str, Builder]:
    """Returns the functions that have an expression of their own. A call that the expression cannot fully represent
    remains as written.
    """
    found: dict[str, Builder] = {}
    for name, row in by_name().items():
        if row.node is not None and name.upper() not in worded_functions():
            builder = row.build or arguments(row.node, *row.keys)
            found[name.upper()] = _whole(
                name.upper(), row.name.upper() if name in row.ours else name.upper(), builder
            )
    return found


def _whole(name: str, sparks_name: str, builder: Builder) -> Builder:
    def as_written(args: list[exp.Expr]) -> exp.Expr:
        return exp.Anonymous(this=sparks_name, expressions=args)

    def build(args: list[exp.Expr]) -> exp.Expr:
        first = args[0] if args else None
        if isinstance(first, exp.Distinct) and len(first.expressions) > 1 and name != "COUNT":
            return as_written(args)
        try:
            built = builder(args)
        except (ValueError, IndexError):
            return as_written(args)
        if all(a.root() is built or isinstance(a, exp.Boolean | exp.Literal) for a in args):
            built.meta[CALLED] = name.lower()
            return built
        return as_written(args)

    return build


@cache
def worded_functions() -> dict[str, Callable[..., exp.Expr | None]]:
    """Returns the parsers of functions that may have words between their arguments."""
    parsers = SparkParser.FUNCTION_PARSERS
    return {
        **{name: _limited(name, parsers[name]) for name in ("LISTAGG", "STRING_AGG")},
        **{name: parsers[name] for name in ("CAST", "TRY_CAST", "EXTRACT", "TRIM")},
        "OVERLAY": _with_words("OVERLAY", ("PLACING", "FROM", "FOR")),
        "POSITION": _with_words("POSITION", ("IN",)),
        "SUBSTR": _with_words("SUBSTR", ("FROM", "FOR")),
        "SUBSTRING": _with_words("SUBSTRING", ("FROM", "FOR")),
        **{name: _with_unit(name) for name in _WITH_UNITS},
    }


def check_count(parser: BaseParser, name: str, count: int, token: Token | None = None) -> None:
    """Refuses a call with a number of arguments that the function does not take. A forbidden function is refused as
    such, whatever its arguments.
    """
    wrong = None if function_classes().get(name.lower()) == "outside" else wrong_number(name, count)
    if wrong is not None:
        parser.fail(wrong, token or parser.previous)


def _limited(name: str, parse: Callable[..., exp.Expr | None]) -> Callable[..., exp.Expr | None]:
    def parse_limited(parser: BaseParser) -> exp.Expr | None:
        check_count(parser, name, parser.count_arguments(), parser.called)
        built = parse(parser)
        if built is not None:
            built.meta[CALLED] = name.lower()
        return built

    return parse_limited


def _with_words(name: str, words: Sequence[str]) -> Callable[..., exp.Expr]:
    """Parses ``SUBSTRING(x FROM 2 FOR 3)`` as ``SUBSTRING(x, 2, 3)``."""

    def parse(parser: BaseParser) -> exp.Expr:
        called = parser.called
        args: list[exp.Expr] = []
        if not parser.at_token(TokenType.R_PAREN):
            args = [parser.parse_operand() if "IN" in words else parser.parse_argument()]  # type: ignore[list-item]
        for word in words:
            if parser.match_words(word):
                args.append(parser.expect_expression(f"a value after {word}"))
        while parser.match_token(TokenType.COMMA):
            args.append(parser.expect_expression('a value after ","'))
        if any(a is None for a in args):
            parser.fail_expected("a value")
        check_count(parser, name, len(args), called)
        return exp.Anonymous(this=name, expressions=args)

    return parse


def _with_unit(name: str) -> Callable[..., exp.Expr]:
    """Parses ``DATEADD(MONTH, 1, d)``: the first argument is the name of a unit."""

    def parse(parser: BaseParser) -> exp.Expr:
        called, first, after = parser.called, parser.current, parser.peek(1)
        args: list[exp.Expr] = []
        bare = first and first.token_type != TokenType.STRING and first.text.upper() in UNITS
        if bare and after and after.token_type == TokenType.COMMA:
            parser.skip(2)
            args.append(exp.Var(this=first.text.upper()))
        args += parser.parse_arguments()
        check_count(parser, name, len(args), called)
        if len(args) == 3 and not isinstance(args[0], exp.Var):
            units = ", ".join(sorted(UNITS))
            parser.fail(f"{first.text} is not a unit", first, hint=f"units, without quotes: {units}")
        return exp.Anonymous(this=name, expressions=args)

    return parse
