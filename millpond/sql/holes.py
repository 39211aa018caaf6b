"""Which literals of a statement other values can take the place of, without another plan.

A literal is open if it stands where only its type counts: compared with something, added to it, or stored in a column.
Anywhere else (LIMIT 5, GROUP BY 1, LIKE 'a%', a name, an argument of a function) the plan may depend on it, and holds
for that value alone.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
from sqlglot import exp

from millpond.records.values import Unfit
from millpond.sql.bind import OPEN, PARAMETER, literal
from millpond.sql.resolve import Resolved
from millpond.sql.template import Template, name_of
from millpond.sql.trees import trees_in
from millpond.sql.typing import type_of

_COMPARED = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.NullSafeNEQ)
_ADDED = (exp.Add, exp.Sub, exp.Mul)
_MATCHED = ("group", "having", "order", "distinct", "windows", "qualify")
"""Clauses whose expressions are compared with those of the outputs."""
_PLAIN_NAME = re.compile(r"[^\W\d]\w*")
_PLAIN_FLOAT = re.compile(r"-?[0-9]+\.[0-9]+")
_ZEROS = tuple(map(ord, "٠۰߀०০੦૦୦௦౦೦൦෦๐໐༠၀႐០᠐᥆᧐᪀᪐᭐᮰᱀᱐꘠꣐꤀꧐꧰꩐꯰０𐒠𐴰𑁦𑃰𑄶𑇐𑋰𑑐𑓐𑙐𑛀𑜰𑣠𑥐𑱐𑵐𑶠𖩠𖭐"))
"""The digits 0 of other scripts."""


def mark_holes(statement: Any, template: Template) -> bool:
    """Notes in the literals of a statement, or of a tree, which hole of its text's template each comes from. False if a
    hole is no literal of it: part of an interval, the length of a type, one of two texts that are written as one.
    Raises Unfit if a value is written in a way that the template does not tell: `LIMIT:n`, 007."""
    by_place = {place: at for at, place in enumerate(template.places)}
    by_start = {start: at for at, (start, _) in enumerate(template.places)}
    found: set[int] = set()
    for tree in trees_in(statement):
        for node in tree.walk():
            meta = node._meta
            if not meta:
                continue
            if PARAMETER in meta:
                at = by_start.get(meta[PARAMETER], -1)
                if at < 0:
                    raise Unfit("a parameter behind a word")
            elif isinstance(node, exp.Literal) and "start" in meta:
                at = by_place.get((meta["start"], meta["end"] + 1), -1)
                if at < 0:
                    continue
                if not _is_value(node, template.holes[at]):
                    if not node.is_string and isinstance(template.holes[at], int | Decimal):
                        raise Unfit("a number that is written in another way")
                    continue
            else:
                continue
            meta[PARAMETER] = name_of(at)
            found.add(at)
    return len(found) == len(template.holes)


def _is_value(node: exp.Literal, value: Any) -> bool:
    if node.is_string:
        return bool(node.this == value)
    return isinstance(value, int | Decimal) and str(node.this) == str(value)


def hole_of(node: exp.Expr, holes: Mapping[str, int]) -> int | None:
    """The hole that a node comes from."""
    return holes.get(str(node._meta[PARAMETER])) if node._meta and PARAMETER in node._meta else None


def holes_in(trees: Iterable[exp.Expr], count: int) -> set[int]:
    """Those of so many holes that are in a tree."""
    numbers = {name_of(at): at for at in range(count)}
    found = (hole_of(node, numbers) for tree in trees for node in tree.walk())
    return {at for at in found if at is not None}


def open_holes(trees: Iterable[exp.Expr], values: Sequence[Any]) -> dict[int, bool]:
    """The holes that other values of the same form can fill, in resolved trees; whether the form counts the digits."""
    numbers = {name_of(at): at for at in range(len(values))}
    found: dict[int, bool] = {}
    closed: set[int] = set()
    for tree in trees:
        for node in tree.walk():
            at = hole_of(node, numbers)
            if at is None:
                continue
            digits = _counts_digits(node, values[at])
            if digits is None:
                closed.add(at)
            else:
                found[at] = found.get(at, False) or digits
    return {at: digits for at, digits in found.items() if at not in closed}


def form_of(value: Any, digits: bool) -> Hashable:
    """What two values have in common whose plans are the same."""
    match value:
        case int():
            size = abs(value)
            return (
                value
                if size == 2**31 or size >= 2**63
                else (size < 2**31, value < 0, len(str(size)) if digits else 0)
            )
        case Decimal():
            return (*_precision(value), value.is_signed()) if value.is_finite() else str(value)
        case float():
            text = repr(value)
            return text.startswith("-") if _PLAIN_FLOAT.fullmatch(text) else text
        case str():
            return "\0" in value
        case datetime():
            return value.tzinfo is None, value.microsecond == 0
    return str(type(value))


@dataclass(frozen=True, slots=True)
class StandIn:
    """What stands in a tree in place of an open hole's value, so that it is found again in what is made of the tree:
    by ``pattern``. It has the type that the value has."""

    text: str
    pattern: str


def stand_in(at: int, value: Any) -> StandIn | None:
    """None for a value that is not found again: a time, or one of more numbers than can be told apart."""
    if isinstance(value, str):
        text = f"\ue907{at}\ue908"
        return StandIn(text, f"'{text}'")
    if isinstance(value, int | Decimal):
        if at >= len(_ZEROS):
            return None
        # The digits of another script are the same number for Python.
        zero = _ZEROS[at]
        text = written(value).translate({ord("0") + n: zero + n for n in range(10)})
        any_digit = f"[{chr(zero)}-{chr(zero + 9)}]"
        return StandIn(text, rf"{any_digit}(?:[{chr(zero)}-{chr(zero + 9)}.]*{any_digit})?")
    if isinstance(value, float):
        text = written(190765.25 + at)
        return StandIn(text, re.escape(text))
    return None


def written(value: Any) -> str:
    """A value other than a text as it stands in SQL, without its sign."""
    match value:
        case int():
            return str(abs(value))
        case Decimal():
            return f"{abs(value):f}"
        case float():
            return repr(abs(value))
    return literal_text(value)


def literal_text(value: Any) -> str:
    """The text in the literal of a value."""
    return str(_inner(literal(value, "a value")).this)


def put_stand_ins(query: Resolved, holes: Mapping[int, StandIn]) -> Resolved:
    """A copy of a query with what stands in for the values of its holes; its own tree then says which are open."""
    numbers = {name_of(at): at for at in holes}
    for node in query.expression.walk():
        at = hole_of(node, numbers)
        if at is not None:
            node.meta[OPEN] = at
    made = query.expression.copy()
    for node in list(made.walk()):
        if node._meta and OPEN in node._meta:
            inner = _inner(node)
            sign = "-" if str(inner.this).startswith("-") else ""
            inner.set("this", sign + holes[node.meta[OPEN]].text)
    return replace(query, expression=made)


def _inner(node: exp.Expr) -> exp.Expr:
    """The literal in what a value is bound as."""
    while not isinstance(node, exp.Literal):
        node = node.this
    return node


def _precision(value: Decimal) -> tuple[int, int]:
    digits = value.as_tuple()
    assert isinstance(digits.exponent, int)
    scale = max(0, -digits.exponent)
    return max(len(digits.digits) + max(0, digits.exponent), scale, 1), scale


def _counts_digits(node: exp.Expr, value: Any) -> bool | None:
    """Whether a literal's digits count where it stands; None if it counts itself."""
    if isinstance(value, bool) or not isinstance(value, int | Decimal | float | str | date):
        return None
    if isinstance(value, int) and abs(value) > 2**63:
        return None
    numeric = isinstance(value, int | Decimal | float)
    while isinstance(node.parent, exp.Paren | exp.Neg) or (numeric and type(node.parent) is exp.Cast):
        if isinstance(node.parent, exp.Neg) and not numeric:
            return None
        node = node.parent
    parent = node.parent
    if isinstance(parent, exp.Between | exp.In) and node.arg_key in ("low", "high", "expressions"):
        beside = [parent.this]
    elif isinstance(parent, (*_COMPARED, *_ADDED)):
        beside = [parent.expression if node.arg_key == "this" else parent.this]
    elif isinstance(parent, exp.Alias) or (
        isinstance(parent, exp.Tuple) and isinstance(parent.parent, exp.Values)
    ):
        beside = []
    else:
        return None
    types = [type_of(b) for b in beside]
    if any(t is None for t in types) or any(isinstance(b.unnest(), exp.Literal) for b in beside):
        return None
    if isinstance(value, str) and not all(pa.types.is_string(t) for t in types):
        return None
    if not _stands_alone(node, parent, value):
        return None
    return any(pa.types.is_decimal(t) for t in types)


def _stands_alone(node: exp.Expr, parent: exp.Expr, value: Any) -> bool:
    """Whether nothing is named after the literal, and no other expression has to equal the one that it is in."""
    above: exp.Expr | None = node
    clause = None
    while above is not None:
        if isinstance(above, exp.Alias) and (not _PLAIN_NAME.fullmatch(above.alias) or above.alias == value):
            return False
        if isinstance(above.parent, exp.Select | exp.SetOperation) and clause is None:
            clause = above.arg_key
            if clause == "having":
                return isinstance(parent, _COMPARED)
            if clause == "expressions" and any(above.parent.args.get(c) for c in _MATCHED):
                return False
            if clause not in ("expressions", "where", "joins", "from_", "this", "expression"):
                return False
        above = above.parent
    return True
