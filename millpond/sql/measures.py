"""Measures of functions whose result may be larger than all of their arguments together (``sql/growth.py``)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import date
from math import inf, isnan, log2
from typing import Protocol

from sqlglot import exp

from millpond.sql.calls import arguments_of, called

ELEMENTS = 100
"""The number of elements that a list of a row is assumed to have."""
CELL = 16
"""The bytes of a number, and of an element beside its value."""
_LONG_UNITS = ("DAY", "WEEK", "MONTH", "QUARTER", "YEAR")
_WIDTH = re.compile(r"%[^a-zA-Z%]*?(\d{3,})")
_UNITS = {
    "microsecond": 1e-6,
    "millisecond": 1e-3,
    "second": 1,
    "minute": 60,
    "hour": 3600,
    "day": 86400,
    "week": 604800,
}
_LENGTH = re.compile(rf"'?(\d+(?:\.\d+)?)'?\s*({'|'.join(_UNITS)})")
_PROPORTIONAL: set[Callable[..., Size]] = set()


@dataclass(slots=True)
class Size:
    """Represents a size: a number of bytes, plus a multiple of the value of each column."""

    fixed: float = 0
    cells: Counter[str] = field(default_factory=Counter)

    def times(self, n: float) -> Size:
        cells: Counter[str] = Counter(
            {name: int(min(count * n, 1 << 60)) for name, count in self.cells.items()}
        )
        return Size(self.fixed * n, cells)

    @property
    def most(self) -> int:
        return max(self.cells.values(), default=0)


class Measure(Protocol):
    """Measures a statement."""

    def size(self, node: exp.Expr) -> Size:
        """Returns an upper bound for the size of what a node creates."""

    def number(self, node: exp.Expr) -> float:
        """Returns an upper bound for a numeric argument. Raises NotSupported if the text does not determine one."""

    def distance(self, node: exp.Expr) -> float:
        """Returns an upper bound for how far a numeric argument is from 0. Raises NotSupported if there is none."""


def total(parts: Sequence[Size]) -> Size:
    cells: Counter[str] = Counter()
    for part in parts:
        cells.update(part.cells)
    return Size(sum(p.fixed for p in parts), cells)


def bounds(node: exp.Expr) -> tuple[float, float]:
    """Returns the least and the greatest value that a number can have, as far as the text determines them."""
    low, high = _bounds(node)
    return (-inf, inf) if isnan(low) or isnan(high) else (low, high)


def _bounds(node: exp.Expr) -> tuple[float, float]:
    if isinstance(node, exp.Literal):
        try:
            return (float(node.this),) * 2
        except ValueError:
            return -inf, inf
    if isinstance(node, exp.Paren):
        return bounds(node.this)
    if isinstance(node, exp.Cast) and not isinstance(node, exp.TryCast):
        # Other types become other numbers: a TIMESTAMP its seconds, an interval its unit.
        return bounds(node.this) if node.to.this in exp.DataType.NUMERIC_TYPES else (-inf, inf)
    if isinstance(node, exp.Neg):
        low, high = bounds(node.this)
        return -high, -low
    if isinstance(node, exp.Add | exp.Sub | exp.Mul):
        (a, b), (c, d) = bounds(node.this), bounds(node.expression)
        if isinstance(node, exp.Add):
            return a + c, b + d
        if isinstance(node, exp.Sub):
            return a - d, b - c
        products = [x * y if x and y else 0.0 for x in (a, b) for y in (c, d)]
        return min(products), max(products)
    if called(node) in ("least", "greatest"):
        # They leave out NULLs: a limit is a number that is written out.
        lows, highs = zip(*(bounds(a) for a in arguments_of(node)), strict=True)
        return (min(lows), min(highs)) if called(node) == "least" else (max(lows), max(highs))
    return -inf, inf


def proportional(measure: Callable[..., Size]) -> Callable[..., Size]:
    """Marks the measure of a function that makes nothing by itself: without its arguments there would be nothing."""
    _PROPORTIONAL.add(measure)
    return measure


def makes_bytes(measure: object) -> bool:
    """Returns whether a function makes more bytes than the text and the row have, in no proportion to them."""
    return callable(measure) and measure not in _PROPORTIONAL


def is_null(node: exp.Expr) -> bool:
    while isinstance(node, exp.Paren | exp.Cast):
        node = node.this
    return isinstance(node, exp.Null)


def repeated(m: Measure, node: exp.Expr, given: Sequence[exp.Expr]) -> Size:
    if len(given) < 2:
        return Size()
    size = m.size(given[0])
    return Size(max(size.fixed, 1), size.cells).times(m.number(given[1]))


def spaces(m: Measure, node: exp.Expr, given: Sequence[exp.Expr]) -> Size:
    return Size(m.number(given[0])) if given else Size()


def padded(m: Measure, node: exp.Expr, given: Sequence[exp.Expr]) -> Size:
    return Size(4 * m.number(given[1])) if len(given) > 1 else Size()


def filled(m: Measure, node: exp.Expr, given: Sequence[exp.Expr]) -> Size:
    if len(given) < 2:
        return Size()
    size = m.size(given[0])
    return Size(max(size.fixed, CELL), size.cells).times(m.number(given[1]))


def stacked(m: Measure, node: exp.Expr, given: Sequence[exp.Expr]) -> Size:
    """Measures STACK: a number of rows, each of which is counted."""
    return Size(CELL * m.number(given[0])) if given else Size()


def sequence(m: Measure, node: exp.Expr, given: Sequence[exp.Expr]) -> Size:
    """Measures a sequence from one number to another, or one day to another; for days that are not literals, assumes a
    size.
    """
    if len(given) < 2:
        return Size()
    step = given[2] if len(given) > 2 else None
    days = [_day(a) for a in given[:2]]
    if isinstance(step, exp.Interval) or (step is None and any(d is not None for d in days)):
        unit = step.args.get("unit") if isinstance(step, exp.Interval) else None
        if unit is not None and unit.name.upper().rstrip("S") not in _LONG_UNITS:
            return Size(CELL * m.number(given[0]))
        known = [d for d in days if d is not None]
        return Size(CELL * (abs(known[0] - known[1]) if len(known) == 2 else ELEMENTS))
    first, last = (bounds(a) for a in given[:2])
    furthest = max(last[1] - first[0], first[1] - last[0])
    if furthest == inf:
        furthest = sum(m.distance(a) for a in given[:2])
    by = bounds(step) if step is not None else (1.0, 1.0)
    slowest = min(abs(by[0]), abs(by[1])) if by[0] * by[1] > 0 else 1.0
    return Size(CELL * furthest / slowest)


def _day(node: exp.Expr) -> int | None:
    """Returns the number of a day that is a literal."""
    if isinstance(node, exp.Cast) and isinstance(node.this, exp.Literal) and node.this.is_string:
        try:
            return date.fromisoformat(node.this.this[:10]).toordinal()
        except ValueError:
            return None
    return None


def replaced(m: Measure, node: exp.Expr, given: Sequence[exp.Expr]) -> Size:
    """Measures a replacement: each character, or each text of a given length, may become the replacement."""
    if len(given) < 2:
        return Size()
    size, by = m.size(given[0]), m.size(given[2]) if len(given) > 2 else Size()
    plain = called(node) == "replace" and isinstance(given[1], exp.Literal)
    length = max(1, len(given[1].this)) if plain else 1
    return size.times(max(1.0, (by.fixed + ELEMENTS * by.most) / length))


def formatted(m: Measure, node: exp.Expr, given: Sequence[exp.Expr]) -> Size:
    """Measures a pattern with its arguments; `%1$s` may use one several times."""
    if not given:
        return Size()
    pattern = given[0].this if isinstance(given[0], exp.Literal) else None
    uses = ELEMENTS if pattern is None else pattern.count("$")
    size = total([m.size(given[0]), total([m.size(a) for a in given[1:]]).times(max(1, uses))])
    widths = _WIDTH.findall(pattern or "")
    return Size(size.fixed + sum(float(w) for w in widths), size.cells)


def written_as(times: int) -> Callable[..., Size]:
    """Returns the measure of a function that writes its argument in a form that is so many times as long."""

    def measure(m: Measure, node: exp.Expr, given: Sequence[exp.Expr]) -> Size:
        return total([m.size(a) for a in given]).times(times)

    return proportional(measure)


@proportional
def glued(m: Measure, node: exp.Expr, given: Sequence[exp.Expr]) -> Size:
    """Measures texts, or lists of texts, with a separator between them."""
    first = called(node) == "concat_ws"
    separator = m.size(given[0 if first else 1]) if len(given) > 1 else Size()
    parts = total([m.size(a) for at, a in enumerate(given) if at != (0 if first else 1)])
    return parts.times(max(1.0, separator.fixed + ELEMENTS * separator.most))


@proportional
def mapped(m: Measure, node: exp.Expr, given: Sequence[exp.Expr]) -> Size:
    """Measures what a lambda makes of each element. Its parameters are, all together, as large as the lists."""
    lists = total([m.size(a) for a in given if not isinstance(a, exp.Lambda)])
    made = [lists]
    for body in (a for a in given if isinstance(a, exp.Lambda)):
        size = m.size(body.this)
        cells = Counter(size.cells)
        of_lists = sum(cells.pop(p.name.lower(), 0) for p in body.expressions)
        made += [Size(size.fixed, cells).times(max(ELEMENTS, lists.fixed / CELL)), lists.times(of_lists)]
    return total(made)


def inserted(m: Measure, node: exp.Expr, given: Sequence[exp.Expr]) -> Size:
    """Measures a list that is filled with NULLs up to a position."""
    size = total([m.size(a) for a in given])
    return Size(size.fixed + (CELL * m.distance(given[1]) if len(given) > 1 else 0), size.cells)


def digits(m: Measure, node: exp.Expr, given: Sequence[exp.Expr]) -> Size:
    """Measures a number with so many digits, which FORMAT_NUMBER may take as a pattern."""
    if len(given) < 2 or (called(node) == "format_number" and given[1].is_string):
        return total([m.size(a) for a in given])
    return Size(CELL + m.distance(given[1]))


def bars(m: Measure, node: exp.Expr, given: Sequence[exp.Expr]) -> Size:
    return Size(CELL * m.number(given[1])) if len(given) > 1 else Size()


def counters(m: Measure, node: exp.Expr, given: Sequence[exp.Expr]) -> Size:
    """Measures the counters of a sketch, by the error that it may have and how sure that is."""
    if len(given) < 3:
        return Size()
    error, sure = bounds(given[1]), bounds(given[2])
    if error[0] > 0 and sure[1] < 1:
        return Size(CELL / error[0] * -log2(1 - sure[1]))
    return Size() if error[0] == error[1] and sure[0] == sure[1] else Size(inf)  # Spark refuses such literals


def compared(m: Measure, node: exp.Expr, given: Sequence[exp.Expr]) -> Size:
    """Measures a comparison of each character with each of another text: it takes time instead of space."""
    first, second = (m.size(a).fixed for a in given[:2]) if len(given) > 1 else (0, 0)
    return Size(first * second / 1_000)


def windows(m: Measure, node: exp.Expr, given: Sequence[exp.Expr]) -> Size:
    """Measures the windows that a time is in."""
    lengths = [_seconds(a) for a in given[1:3]]
    if len(lengths) < 2:
        return Size(CELL)
    if None in lengths or not lengths[1]:
        return Size(inf)
    return Size(CELL * (lengths[0] or 0) / lengths[1])


def _seconds(node: exp.Expr) -> float | None:
    """Returns a length of time that is a literal, in seconds; None for one with a negative part."""
    text = node.this if isinstance(node, exp.Literal) else node.sql()
    found = [] if "-" in text else _LENGTH.findall(text.lower())
    return sum(float(n) * _UNITS[unit] for n, unit in found) if found else None
