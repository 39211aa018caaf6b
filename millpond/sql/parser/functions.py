"""Which expression a function call becomes, so that no argument is lost on the way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from sqlglot import exp
from sqlglot.parsers.spark import SparkParser

from millpond.sql.calls import CALLED
from millpond.sql.parser.base import BaseParser

Builder = Callable[..., exp.Expr]

# Functions whose expression in sqlglot stands for another one, or cannot be written back: they stay.
_AS_WRITTEN = frozenset(
    "COLLATE CURRENT_CATALOG DATE_SUB LOCALTIMESTAMP LOG10 LOG2 TO_NUMBER TO_UNIX_TIMESTAMP UNIX_DATE".split()
)

# The most arguments that the expression of a function can hold; a call with more stays as written.
_MOST_ARGUMENTS = {
    1: "ARRAY_SIZE CHAR CHARACTER_LENGTH CHAR_LENGTH INITCAP LAST_DAY LEN LENGTH MAX MIN PARSE_JSON RAND "
    "RANDOM SIZE",
    2: "BIT_GET CEIL CEILING FLOOR ILIKE LIKE MAX_BY MIN_BY PERCENTILE REGEXP_LIKE RLIKE TO_CHAR TO_JSON",
    3: "INSTR REGEXP_EXTRACT REGEXP_EXTRACT_ALL SEQUENCE",
}
_MOST = {name: most for most, names in _MOST_ARGUMENTS.items() for name in names.split()}
_FEWEST_ARGUMENTS = {"MAP_FROM_ARRAYS": 2, "REGEXP_REPLACE": 3, "DATEDIFF": 2, "DATE_DIFF": 2}

# Functions with words between their arguments, and the most arguments they take; others are read as any call.
_FEWEST_WITH_WORDS = {"SUBSTR": 2, "SUBSTRING": 2}
_WITH_WORDS = {
    **dict.fromkeys(("EXTRACT", "LISTAGG", "STRING_AGG", "TRIM"), 2),
    **dict.fromkeys(("POSITION", "SUBSTR", "SUBSTRING"), 3),
    "OVERLAY": 4,
    **dict.fromkeys(("CAST", "TRY_CAST", "DECODE", "STRUCT"), 1000),
}


def _timestamp(args: list[exp.Expr]) -> exp.Expr:
    return exp.Cast(this=args[0], to=exp.DataType(this=exp.DType.TIMESTAMPTZ, nested=False))


def _to_timestamp(args: list[exp.Expr], dialect: Any) -> exp.Expr:
    if len(args) == 1:
        return _timestamp(args)
    return cast(exp.Expr, SparkParser.FUNCTIONS["TO_TIMESTAMP"](args, dialect))


_OWN: dict[str, Builder] = {
    "APPROX_PERCENTILE": exp.ApproxQuantile.from_arg_list,
    "PERCENTILE": exp.Quantile.from_arg_list,
    "PERCENTILE_APPROX": exp.ApproxQuantile.from_arg_list,
    "TIMESTAMP": _timestamp,
    "TO_TIMESTAMP": _to_timestamp,
}


def careful_functions() -> dict[str, Builder]:
    """sqlglot's functions; a call that its expression cannot hold as a whole is an Anonymous one."""
    return {
        name: _careful(name, builder)
        for name, builder in {**SparkParser.FUNCTIONS, **_OWN}.items()
        if name not in _AS_WRITTEN
    }


def worded_functions() -> dict[str, Callable[..., exp.Expr | None]]:
    """The parsers of functions that have words between their arguments."""
    parsers = SparkParser.FUNCTION_PARSERS
    return {
        name: _limited(name, parsers[name], most) for name, most in _WITH_WORDS.items() if name in parsers
    }


def _limited(name: str, parse: Callable[..., exp.Expr | None], most: int) -> Callable[..., exp.Expr | None]:
    def parse_limited(parser: BaseParser) -> exp.Expr | None:
        count = parser.count_arguments()
        if count > most:
            parser.fail(
                f"{name} takes at most {most} argument{'s' * (most > 1)}, here are {count}", parser._prev
            )
        fewest = _FEWEST_WITH_WORDS.get(name, 0)
        built = parse(parser)
        if count < fewest and not (isinstance(built, exp.Substring) and built.args.get("start")):
            parser.fail(f"{name} takes {fewest} or {most} arguments", parser._prev)
        return None if built is None else _named(built, name)

    return parse_limited


def _named(built: exp.Expr, name: str) -> exp.Expr:
    """Keeps the name that a function was called by: what it became may stand for several."""
    built.meta[CALLED] = name.lower()
    return built


def _careful(name: str, builder: Builder) -> Builder:
    fewest, most = _FEWEST_ARGUMENTS.get(name, 0), _MOST.get(name, 1000)

    def build(args: list[exp.Expr], **dialect: Any) -> exp.Expr:
        if not fewest <= len(args) <= most:
            return exp.Anonymous(this=name, expressions=args)
        try:
            built = builder(args, **dialect)
            if all(isinstance(a, exp.Literal) or a.root() is built for a in args):
                return _named(built, name)
        except (ValueError, TypeError, AttributeError, IndexError):
            pass
        return exp.Anonymous(this=name, expressions=args)

    if "dialect" not in builder.__code__.co_varnames:  # as sqlglot asks; inspect.signature is slow at start
        return build
    return lambda args, dialect: build(args, dialect=dialect)
