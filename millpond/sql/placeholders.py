"""Finds the literals of a statement that other values can replace without a new plan.

A literal is open if only its type matters in its place: compared with something, added to it, or stored in a column.
Anywhere else (LIMIT 5, GROUP BY 1, LIKE 'a%', a name, an argument of a function) the plan may depend on it, and is
valid for that value only.
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
from millpond.sql.notes import notes_of
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
    """Marks in the literals of a statement, or of a tree, which hole of its text's template each comes from. Returns
    False if a hole is not a literal of it: part of an interval, the length of a type, one of two adjacent texts. Raises
    Unfit if a value is written in a form that the template does not distinguish: `LIMIT:n`, 007.
    """
    by_place = {place: at for at, place in enumerate(template.places)}
    by_start = {start: at for at, (start, _) in enumerate(template.places)}
    found: set[int] = set()
    for tree in trees_in(statement):
        for node in tree.walk():
            meta = notes_of(node)
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
            node.meta[PARAMETER] = name_of(at)
            found.add(at)
    return len(found) == len(template.holes)


def _is_value(node: exp.Literal, value: Any) -> bool:
    if node.is_string:
        return bool(node.this == value)
    return isinstance(value, int | Decimal) and str(node.this) == str(value)


def hole_of(node: exp.Expr, holes: Mapping[str, int]) -> int | None:
    """Returns the hole that a node comes from."""
    notes = notes_of(node)
    return holes.get(str(notes[PARAMETER])) if PARAMETER in notes else None


def holes_in(trees: Iterable[exp.Expr], count: int) -> set[int]:
    """Returns which of the first ``count`` holes are in the trees."""
    numbers = {name_of(at): at for at in range(count)}
    found = (hole_of(node, numbers) for tree in trees for node in tree.walk())
    return {at for at in found if at is not None}


def open_holes(trees: Iterable[exp.Expr], values: Sequence[Any]) -> dict[int, bool]:
    """Returns the holes that other values of the same form can fill, in resolved trees, each with whether its digits
    are part of the form.
    """
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
    """Returns what two values with the same plan have in common."""
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
    """Represents the placeholder in a tree for an open hole's value, of the same type. ``pattern`` finds it again in
    what is generated from the tree.
    """

    text: str
    pattern: str


def stand_in(at: int, value: Any) -> StandIn | None:
    """Returns the stand-in for a value; None if it could not be found again: a time, or a number after too many
    others.
    """
    if isinstance(value, str):
        text = f"\ue907{at}\ue908"
        return StandIn(text, f"'{text}'")
    if isinstance(value, int | Decimal):
        if at >= len(_ZEROS):
            return None
        # Python reads the digits of another script as the same number.
        zero = _ZEROS[at]
        text = written(value).translate({ord("0") + n: zero + n for n in range(10)})
        any_digit = f"[{chr(zero)}-{chr(zero + 9)}]"
        return StandIn(text, rf"{any_digit}(?:[{chr(zero)}-{chr(zero + 9)}.]*{any_digit})?")
    if isinstance(value, float):
        text = written(190765.25 + at)
        return StandIn(text, re.escape(text))
    return None


def written(value: Any) -> str:
    """Returns a value other than a text as written in SQL, without its sign."""
    match value:
        case int():
            return str(abs(value))
        case Decimal():
            return f"{abs(value):f}"
        case float():
            return repr(abs(value))
    return literal_text(value)


def literal_text(value: Any) -> str:
    """Returns the text in the literal of a value."""
    return str(_inner(literal(value, "a value")).this)


def put_stand_ins(query: Resolved, holes: Mapping[int, StandIn]) -> Resolved:
    """Returns a copy of a query with stand-ins for the values of its holes; its own tree then says which are open."""
    numbers = {name_of(at): at for at in holes}
    for node in query.expression.walk():
        at = hole_of(node, numbers)
        if at is not None:
            node.meta[OPEN] = at
    made = query.expression.copy()
    for node in list(made.walk()):
        if OPEN in notes_of(node):
            inner = _inner(node)
            sign = "-" if str(inner.this).startswith("-") else ""
            inner.set("this", sign + holes[node.meta[OPEN]].text)
    return replace(query, expression=made)


def _inner(node: exp.Expr) -> exp.Expr:
    """Returns the literal inside the expression that a value is bound as."""
    while not isinstance(node, exp.Literal):
        node = node.this
    return node


def _precision(value: Decimal) -> tuple[int, int]:
    digits = value.as_tuple()
    assert isinstance(digits.exponent, int)
    scale = max(0, -digits.exponent)
    return max(len(digits.digits) + max(0, digits.exponent), scale, 1), scale


def _counts_digits(node: exp.Expr, value: Any) -> bool | None:
    """Returns whether a literal's digits matter in its place; None if the value itself matters."""
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
        other_operands = [parent.this]
    elif isinstance(parent, (*_COMPARED, *_ADDED)):
        other_operands = [parent.expression if node.arg_key == "this" else parent.this]
    elif isinstance(parent, exp.Alias) or (
        isinstance(parent, exp.Tuple) and isinstance(parent.parent, exp.Values)
    ):
        other_operands = []
    else:
        return None
    types = [type_of(b) for b in other_operands]
    if any(t is None for t in types) or any(isinstance(b.unnest(), exp.Literal) for b in other_operands):
        return None
    if isinstance(value, str) and not all(pa.types.is_string(t) for t in types):
        return None
    if not _stands_alone(node, parent, value):
        return None
    return any(pa.types.is_decimal(t) for t in types)


def _stands_alone(node: exp.Expr, parent: exp.Expr, value: Any) -> bool:
    """Returns whether nothing is named after the literal, and its expression need not equal another one."""
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
