"""Function calls.

A call stays as it is written: ``exp.Anonymous`` with the function's name and its arguments in Spark's order, so that
nothing is lost on the way to Spark. Only aggregates, functions of windows, and choices (COALESCE, IF) have expressions
of their own, since other parts of Millpond look for them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sqlglot import exp
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokens import Token, TokenType

from millpond.sql.calls import CALLED
from millpond.sql.functions import function_classes, wrong_number
from millpond.sql.parser.base import BaseParser

Builder = Callable[[list[exp.Expr]], exp.Expr]


def _this(kind: type[exp.Expr], *keys: str, **fixed: Any) -> Builder:
    """An expression whose arguments go to these keys, in order."""

    def build(args: list[exp.Expr]) -> exp.Expr:
        names = keys or ("this",)
        if len(args) > len(names):
            raise ValueError("more arguments than the expression has")
        return kind(**dict(zip(names, args, strict=False)), **fixed)

    return build


def _several(kind: type[exp.Expr], **fixed: Any) -> Builder:
    """An expression of a first argument and others."""
    return lambda args: kind(this=args[0], expressions=args[1:], **fixed)


def _named_struct(args: list[exp.Expr]) -> exp.Expr:
    names, values = args[::2], args[1::2]
    if not all(isinstance(n, exp.Literal) and n.is_string for n in names):
        raise ValueError("a name that is not written out")
    pairs = zip(names, values, strict=True)
    fields = [exp.PropertyEQ(this=exp.to_identifier(n.name, quoted=True), expression=v) for n, v in pairs]
    return exp.Struct(expressions=fields)


def _nulls(kind: type[exp.Expr]) -> Builder:
    """FIRST(x, true) is FIRST(x) IGNORE NULLS."""

    def build(args: list[exp.Expr]) -> exp.Expr:
        if len(args) == 2:
            if not isinstance(args[1], exp.Boolean):
                raise ValueError("whether NULLs count is written out")
            found = kind(this=args[0])
            return exp.IgnoreNulls(this=found) if args[1].this else found
        return kind(this=args[0])

    return build


_REGRESSIONS = "AVGX AVGY COUNT INTERCEPT R2 SLOPE SXX SXY SYY".split()
_OWN: dict[str, Builder] = {
    **{f"REGR_{n}": _this(getattr(exp, f"Regr{n.capitalize()}"), "this", "expression") for n in _REGRESSIONS},
    "ANY": _this(exp.LogicalOr),
    "ANY_VALUE": _nulls(exp.AnyValue),
    "APPROX_COUNT_DISTINCT": _this(exp.ApproxDistinct, "this", "accuracy"),
    "APPROX_PERCENTILE": _this(exp.ApproxQuantile, "this", "quantile", "accuracy"),
    "ARRAY": lambda args: exp.Array(expressions=args),
    "ARRAY_AGG": _this(exp.ArrayAgg, nulls_excluded=True),
    "AVG": _this(exp.Avg),
    "BIT_AND": _this(exp.BitwiseAndAgg),
    "BIT_OR": _this(exp.BitwiseOrAgg),
    "BIT_XOR": _this(exp.BitwiseXorAgg),
    "BOOL_AND": _this(exp.LogicalAnd),
    "BOOL_OR": _this(exp.LogicalOr),
    "COALESCE": _several(exp.Coalesce),
    "COLLECT": _this(exp.ArrayAgg, nulls_excluded=True),
    "COLLECT_LIST": _this(exp.ArrayAgg, nulls_excluded=True),
    "COLLECT_SET": _this(exp.ArrayUniqueAgg),
    "CORR": _this(exp.Corr, "this", "expression"),
    "COUNT": lambda args: exp.Count(this=args[0], expressions=args[1:], big_int=True),
    "COUNT_IF": _this(exp.CountIf),
    "COVAR": _this(exp.CovarSamp, "this", "expression"),
    "COVAR_POP": _this(exp.CovarPop, "this", "expression"),
    "COVAR_SAMP": _this(exp.CovarSamp, "this", "expression"),
    "CUME_DIST": lambda args: exp.CumeDist(expressions=args),
    "CURDATE": lambda args: exp.CurrentDate(),
    "CURRENT_DATE": lambda args: exp.CurrentDate(),
    "CURRENT_TIMESTAMP": lambda args: exp.CurrentTimestamp(),
    "DENSE_RANK": lambda args: exp.DenseRank(expressions=args),
    "EVERY": _this(exp.LogicalAnd),
    "EXPLODE": _this(exp.Explode),
    "EXPLODE_OUTER": SparkParser.FUNCTIONS["EXPLODE_OUTER"],
    "FIRST": _nulls(exp.First),
    "FIRST_VALUE": _nulls(exp.FirstValue),
    "GREATEST": _several(exp.Greatest, ignore_nulls=True),
    "IF": _this(exp.If, "this", "true", "false"),
    "IFNULL": _several(exp.Coalesce),
    "KURTOSIS": _this(exp.Kurtosis),
    "LAG": _this(exp.Lag, "this", "offset", "default"),
    "LAST": _nulls(exp.Last),
    "LAST_VALUE": _nulls(exp.LastValue),
    "LEAD": _this(exp.Lead, "this", "offset", "default"),
    "LEAST": _several(exp.Least, ignore_nulls=True),
    "MAX": _this(exp.Max),
    "MAX_BY": _this(exp.ArgMax, "this", "expression"),
    "MEAN": _this(exp.Avg),
    "MEDIAN": _this(exp.Median),
    "MIN": _this(exp.Min),
    "MIN_BY": _this(exp.ArgMin, "this", "expression"),
    "MODE": _this(exp.Mode, "this", "deterministic"),
    "NAMED_STRUCT": _named_struct,
    "NTH_VALUE": _this(exp.NthValue, "this", "offset"),
    "NTILE": _this(exp.Ntile),
    "NULLIF": _this(exp.Nullif, "this", "expression"),
    "NVL": _several(exp.Coalesce),
    "NVL2": _this(exp.Nvl2, "this", "true", "false"),
    "PERCENTILE": _this(exp.Quantile, "this", "quantile"),
    "PERCENTILE_APPROX": _this(exp.ApproxQuantile, "this", "quantile", "accuracy"),
    "PERCENTILE_CONT": _this(exp.PercentileCont),
    "PERCENTILE_DISC": _this(exp.PercentileDisc),
    "PERCENT_RANK": lambda args: exp.PercentRank(expressions=args),
    "POSEXPLODE": _this(exp.Posexplode),
    "POSEXPLODE_OUTER": _this(exp.PosexplodeOuter),
    "RANK": lambda args: exp.Rank(expressions=args),
    "ROW_NUMBER": lambda args: exp.RowNumber(),
    "SKEWNESS": _this(exp.Skewness),
    "SOME": _this(exp.LogicalOr),
    "STD": _this(exp.Stddev),
    "STDDEV": _this(exp.Stddev),
    "STDDEV_POP": _this(exp.StddevPop),
    "STDDEV_SAMP": _this(exp.StddevSamp),
    "STRUCT": lambda args: exp.Struct(expressions=args),
    "SUM": _this(exp.Sum),
    "VARIANCE": _this(exp.Variance),
    "VAR_POP": _this(exp.VariancePop),
    "VAR_SAMP": _this(exp.Variance),
}
_SPARKS_NAMES = {"COLLECT": "COLLECT_LIST", "COVAR": "COVAR_SAMP"}
"""What Spark calls the functions that it does not know by their name here."""
_WITH_UNITS = frozenset("DATEADD DATE_ADD TIMESTAMPADD DATEDIFF DATE_DIFF TIMEDIFF TIMESTAMPDIFF".split())
UNITS = frozenset("YEAR QUARTER MONTH WEEK DAY DAYOFYEAR HOUR MINUTE SECOND MILLISECOND MICROSECOND".split())


def own_functions() -> dict[str, Builder]:
    """The functions that have an expression of their own. A call that it cannot hold whole stays as it is written."""
    return {name: _whole(name, builder) for name, builder in _OWN.items()}


def _whole(name: str, builder: Builder) -> Builder:
    def as_written(args: list[exp.Expr]) -> exp.Expr:
        return exp.Anonymous(this=_SPARKS_NAMES.get(name, name), expressions=args)

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


def worded_functions() -> dict[str, Callable[..., exp.Expr | None]]:
    """The parsers of functions that may have words between their arguments."""
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
    """Refuses a call with a number of arguments that the function does not take. What nobody may call is refused for
    that, whatever its arguments."""
    wrong = None if function_classes().get(name.lower()) == "outside" else wrong_number(name, count)
    if wrong is not None:
        parser.fail(wrong, token or parser._prev)


def _limited(name: str, parse: Callable[..., exp.Expr | None]) -> Callable[..., exp.Expr | None]:
    def parse_limited(parser: BaseParser) -> exp.Expr | None:
        check_count(parser, name, parser.count_arguments(), parser._tokens[parser._index - 2])
        built = parse(parser)
        if built is not None:
            built.meta[CALLED] = name.lower()
        return built

    return parse_limited


def _with_words(name: str, words: Sequence[str]) -> Callable[..., exp.Expr]:
    """``SUBSTRING(x FROM 2 FOR 3)`` is ``SUBSTRING(x, 2, 3)``."""

    def parse(parser: BaseParser) -> exp.Expr:
        called = parser._tokens[parser._index - 2]
        args: list[exp.Expr] = []
        if not parser.at_token(TokenType.R_PAREN):
            args = [parser._parse_bitwise() if "IN" in words else parser._parse_lambda()]  # type: ignore[list-item]
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
    """``DATEADD(MONTH, 1, d)``: the first argument is the name of a unit."""

    def parse(parser: BaseParser) -> exp.Expr:
        called, first, after = parser._tokens[parser._index - 2], parser._curr, parser.peek(1)
        args: list[exp.Expr] = []
        bare = first and first.token_type != TokenType.STRING and first.text.upper() in UNITS
        if bare and after and after.token_type == TokenType.COMMA:
            parser._advance(2)
            args.append(exp.Var(this=first.text.upper()))
        args += parser._parse_csv(parser._parse_lambda)
        check_count(parser, name, len(args), called)
        if len(args) == 3 and not isinstance(args[0], exp.Var):
            units = ", ".join(sorted(UNITS))
            parser.fail(f"{first.text} is not a unit", first, hint=f"units, without quotes: {units}")
        return exp.Anonymous(this=name, expressions=args)

    return parse
