"""Builds the expression of a function from the arguments of a call. ValueError says that it cannot represent them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlglot import exp
from sqlglot.parsers.spark import SparkParser

from millpond.sql.functions.base import Builder

explode_outer: Builder = SparkParser.FUNCTIONS["EXPLODE_OUTER"]


def arguments(kind: type[exp.Expr], *keys: str, **fixed: Any) -> Builder:
    """Returns a builder of an expression whose arguments go to these keys, in order."""

    def build(args: list[exp.Expr]) -> exp.Expr:
        names = keys or ("this",)
        if len(args) > len(names):
            raise ValueError("more arguments than the expression has")
        return kind(**dict(zip(names, args, strict=False)), **fixed)

    return build


def several(kind: type[exp.Expr], **fixed: Any) -> Builder:
    """Returns a builder of an expression with a first argument and others."""
    return lambda args: kind(this=args[0], expressions=args[1:], **fixed)


def listed(kind: type[exp.Expr]) -> Builder:
    """Returns a builder of an expression with any arguments."""
    return lambda args: kind(expressions=args)


def bare(kind: type[exp.Expr]) -> Builder:
    """Returns a builder of an expression without arguments."""
    return lambda args: kind()


def named_struct(args: list[exp.Expr]) -> exp.Expr:
    names, values = args[::2], args[1::2]
    if not all(isinstance(n, exp.Literal) and n.is_string for n in names):
        raise ValueError("a name that is not written out")
    pairs = zip(names, values, strict=True)
    fields = [exp.PropertyEQ(this=exp.to_identifier(n.name, quoted=True), expression=v) for n, v in pairs]
    return exp.Struct(expressions=fields)


def ignoring_nulls(kind: type[exp.Expr]) -> Builder:
    """Turns FIRST(x, true) into FIRST(x) IGNORE NULLS."""

    def build(args: list[exp.Expr]) -> exp.Expr:
        if len(args) == 2:
            if not isinstance(args[1], exp.Boolean):
                raise ValueError("whether NULLs count is written out")
            found = kind(this=args[0])
            ignored = args.pop().this  # sqlglot compares the remaining number with what the expression takes
            return exp.IgnoreNulls(this=found) if ignored else found
        return kind(this=args[0])

    return build


def binary(kind: type[exp.Expr]) -> Callable[..., exp.Expr]:
    """Returns the operator with two operands that a function is another name of."""
    return lambda left, right: kind(this=left, expression=right)


def negated(value: exp.Expr) -> exp.Expr:
    return exp.Neg(this=exp.Paren(this=value))
