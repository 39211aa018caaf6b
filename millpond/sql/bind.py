"""Replaces the parameters `?` and `:name` with typed literals in the tree. No text is concatenated."""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, TypeVar, cast

from sqlglot import exp

from millpond.errors import InvalidRecord, SqlError
from millpond.sql.limits import OWN, TextLimits
from millpond.sql.notes import notes_of
from millpond.sql.statements import Statement
from millpond.sql.trees import trees_in

Params = Sequence[Any] | Mapping[str, Any] | None
S = TypeVar("S", Statement, exp.Expr)
PARAMETER = "parameter"
"""The key in a literal's meta that says which parameter it came from: by its offset in the text, or the name of its
hole.
"""
OPEN = "open"
"""The key in the meta of a literal in a plan that says which of the values supplied at run time replaces it."""


class Binder:
    """Hands out the values of one call; every value must be used, and every placeholder must have one."""

    def __init__(self, params: Params, limits: TextLimits = OWN):
        self._limits = limits
        self._words = self._length = 0
        self._named = {k.lower(): v for k, v in params.items()} if isinstance(params, Mapping) else {}
        self._listed: list[Any] = [] if params is None or isinstance(params, Mapping) else list(params)
        self._next = 0
        self._used: set[str] = set()

    def bind(self, statement: S) -> S:
        """Returns the statement with its placeholders replaced."""
        if not any(tree.find(exp.Placeholder) for tree in trees_in(statement)):
            return statement
        copied = _copy(statement)
        found = [p for tree in trees_in(copied) for p in tree.find_all(exp.Placeholder)]
        found.sort(key=lambda p: notes_of(p).get("start", 0))
        swaps = {id(p): self._value(p) for p in found}
        for placeholder in found:
            swaps[id(placeholder)].meta[PARAMETER] = notes_of(placeholder).get("start", 0)
        return cast(S, _swap(copied, swaps))

    def _value(self, node: exp.Placeholder) -> exp.Expr:
        name = node.name
        if name and name != "?":
            if name.lower() not in self._named:
                raise SqlError(f'parameter ":{name}" has no value', hint=f'params={{"{name}": …}}')
            self._used.add(name.lower())
            return self._counted(literal(self._named[name.lower()], f":{name}"))
        if self._next >= len(self._listed):
            raise SqlError(
                f"there are more ? than values: {len(self._listed)} given", hint="params=[…] in order"
            )
        self._next += 1
        return self._counted(literal(self._listed[self._next - 1], f"? number {self._next}"))

    def _counted(self, value: exp.Expr) -> exp.Expr:
        """Returns the value. Raises if all values together, with repeats, make the statement too large."""
        for node in value.walk():
            self._words += 1
            if isinstance(node, exp.Literal | exp.HexString):
                self._length += len(node.this)
        limits = self._limits
        for count, most, what in (
            (self._length, limits.length, "characters"),
            (self._words, limits.words, "values"),
        ):
            if count > most:
                raise SqlError(
                    f"the parameters, where they stand, come to more than {most:,} {what}",
                    hint="name each once, in WITH or a subquery; rows go to a stream or a file",
                )
        return value

    def finish(self) -> None:
        """Raises if a value was given that nothing uses."""
        if self._next < len(self._listed):
            raise SqlError(f"{len(self._listed)} values are given, the text has {self._next} ?")
        unused = set(self._named) - self._used
        if unused:
            raise SqlError(f'parameter "{sorted(unused)[0]}" is not in the text')


def literal(value: Any, what: str) -> exp.Expr:
    """Returns a Python value as a typed literal."""
    match value:
        case None:
            return exp.Null()
        case bool():
            return exp.true() if value else exp.false()
        case int():
            if -(2**31) <= value < 2**31:
                return _number(str(value))
            if -(2**63) <= value < 2**63:
                return _cast(exp.Literal.string(str(value)), "BIGINT")
            if abs(value) >= 10**38:
                raise InvalidRecord(f"{what}: the number has more than 38 digits, which no type holds")
            return _cast(exp.Literal.string(str(value)), "DECIMAL(38,0)")
        case float():
            return _cast(exp.Literal.string(repr(value)), "DOUBLE")
        case Decimal():
            digits = value.as_tuple()
            exponent = digits.exponent
            if not isinstance(exponent, int):
                raise InvalidRecord(f"{what}: {value} is not a decimal number")
            scale = max(0, -exponent)
            precision = max(len(digits.digits) + max(0, exponent), scale, 1)
            if precision > 38:  # before its digits are expanded: an exponent may be a billion
                raise InvalidRecord(
                    f"{what}: {value:.3e} has {precision:,} digits, and a DECIMAL has at most 38"
                )
            return _cast(exp.Literal.string(f"{value:f}"), f"DECIMAL({precision},{scale})")
        case str():
            return exp.Literal.string(value)
        case bytes():
            return exp.HexString(this=value.hex())
        case dt.datetime():
            kind = "TIMESTAMP_NTZ" if value.tzinfo is None else "TIMESTAMP"
            timestamp = value if value.tzinfo is None else value.astimezone(dt.UTC).replace(tzinfo=None)
            text = timestamp.isoformat(sep=" ") + ("" if value.tzinfo is None else "+00:00")
            return _cast(exp.Literal.string(text), kind)
        case dt.date():
            return _cast(exp.Literal.string(value.isoformat()), "DATE")
        case list() | tuple():
            return exp.Array(expressions=[literal(v, what) for v in value])
    raise InvalidRecord(f"{what}: a {type(value).__name__} cannot be a parameter")


def _number(text: str) -> exp.Expr:
    if text.startswith("-"):
        return exp.Paren(this=exp.Neg(this=exp.Literal.number(text[1:])))
    return exp.Literal.number(text)


def _cast(value: exp.Expr, to: str) -> exp.Expr:
    return exp.Cast(this=value, to=exp.DataType.build(to, dialect="spark"))


def _copy(value: Any) -> Any:
    if isinstance(value, exp.Expr):
        return value.copy()
    if isinstance(value, tuple):
        return tuple(_copy(v) for v in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        changes = {f.name: _copy(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return dataclasses.replace(value, **changes)
    return value


def _swap(value: Any, swaps: Mapping[int, exp.Expr]) -> Any:
    if isinstance(value, exp.Expr):
        if id(value) in swaps:
            return swaps[id(value)]
        for node in list(value.find_all(exp.Placeholder)):
            node.replace(swaps[id(node)])
        return value
    if isinstance(value, tuple):
        return tuple(_swap(v, swaps) for v in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        changes = {f.name: _swap(getattr(value, f.name), swaps) for f in dataclasses.fields(value)}
        return dataclasses.replace(value, **changes)
    return value
