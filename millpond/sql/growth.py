"""Estimates, from the text, how large the texts and lists that a statement creates can become.

No engine can be stopped inside one call, and none accounts for the memory of a call's results. So a client's statement
is measured first: what it creates from a row is limited to a number of bytes, and to a multiple of the size of the
row's values. The values themselves are unknown, so the number of repeats of a text must be a literal.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any

from sqlglot import exp

from millpond.errors import NotSupported, Place
from millpond.sql import statements as st
from millpond.sql.calls import arguments_of, called
from millpond.sql.functions import by_name
from millpond.sql.spans import own_span
from millpond.sql.trees import trees_in

Locate = Callable[[int, int], Place]

_BYTES = 20_000
"""The bytes that a statement may create from each row of its inputs."""
_BYTES_ALONE = 5_000_000
"""The bytes that a statement without FROM may create."""
_TIMES = 1_000
"""How often a value of a row may be copied into what is created from it."""
_ELEMENTS = 100
"""The number of elements that a list of a row is assumed to have."""
_CELL = 16
_EITHER = (exp.Case, exp.If, exp.Coalesce)
_SCALAR = (exp.Predicate, exp.Connector, exp.Not)
_LONG_UNITS = ("DAY", "WEEK", "MONTH", "QUARTER", "YEAR")
_WIDTH = re.compile(r"%[^a-zA-Z%]*?(\d{3,})")


@dataclass(slots=True)
class _Size:
    """Represents a size: a number of bytes, plus a multiple of the value of each column."""

    fixed: float = 0
    cells: Counter[str] = field(default_factory=Counter)

    def times(self, n: float) -> _Size:
        cells: Counter[str] = Counter(
            {name: int(min(count * n, 1 << 60)) for name, count in self.cells.items()}
        )
        return _Size(self.fixed * n, cells)

    @property
    def most(self) -> int:
        return max(self.cells.values(), default=0)


def check_growth(statements: Any, locate: Locate) -> None:
    """Raises NotSupported for the first statement, or expression, that creates too much from its inputs."""
    for value in statements if isinstance(statements, Sequence) else (statements,):
        _Measure(value, locate).check()


def makes_more(statement: Any) -> bool:
    """Returns whether a statement calls a function that may enlarge its values."""
    nodes = (node for tree in trees_in(statement) for node in tree.walk())
    return any(isinstance(node, exp.DPipe) or _growth(node) is not None for node in nodes)


class _Measure:
    """Measures one statement. The result of a subquery may go into everything around it, so levels multiply."""

    def __init__(self, value: Any, locate: Locate):
        self._value = value.statement if isinstance(value, st.Explain) else value
        self._locate = locate
        self._levels: dict[int, list[float]] = {}
        self._listed: dict[int, dict[str, list[tuple[int, exp.Expr]]]] = {}
        self._named: dict[int, _Size] = {}

    def check(self) -> None:
        trees = list(trees_in(self._value))
        clauses = (c for tree in trees for c in tree.find_all(exp.With))
        itself = next((c for c in clauses if c.args.get("recursive")), None)
        if itself is not None:
            raise NotSupported(
                "over HTTP a query does not read itself: nobody knows how much that becomes",
                hint="make it a view in the app's own text, and read that",
                place=self._place(itself),
            )
        rows = any(tree.find(exp.From) for tree in trees) or not isinstance(self._value, st.Statement)
        rows = rows or isinstance(self._value, st.Update | st.Delete | st.Merge | st.Upsert)
        self._most = _BYTES if rows else _BYTES_ALONE
        for tree in trees:
            for node in tree.walk():
                self._add(node)
        if rows and isinstance(self._value, st.Select):
            for select in (s for tree in trees for s in tree.find_all(exp.Select)):
                sizes = [self.size(o).fixed for o in select.expressions]
                if sum(sizes) > _BYTES:
                    raise self._refused(select.expressions[sizes.index(max(sizes))])

    def _add(self, node: exp.Expr) -> None:
        """Adds the size of what a node creates, if it creates something larger."""
        grows = _growth(node)
        if isinstance(node, exp.DPipe):
            if isinstance(node.parent, exp.DPipe):
                return
        elif grows == "folded":
            self._check_fold(node)
            return
        elif grows is None:
            return
        size = self.size(node)
        size = size.times(self._repeats(node))
        select = node.find_ancestor(exp.Select)
        level = self._levels.setdefault(id(select), [1, 0])
        level[0] += max(0, size.most - 1)
        level[1] += 0 if isinstance(node, exp.DPipe) or grows == "joined" else size.fixed
        factor, fixed = 1.0, 0.0
        for times, made in self._levels.values():
            factor, fixed = factor * times, fixed + made
        if factor > _TIMES or fixed * factor > self._most or size.fixed > self._most:
            raise self._refused(node)

    def _repeats(self, node: exp.Expr) -> float:
        """Returns how often a node in lambda functions is evaluated for a row."""
        found = 1.0
        inner = node.find_ancestor(exp.Lambda)
        while inner is not None:
            around = inner.parent
            lists = (
                [a for a in arguments_of(around) if not isinstance(a, exp.Lambda)]
                if around is not None
                else []
            )
            found *= max([_ELEMENTS, *(self.size(a).fixed / _CELL for a in lists)])
            inner = inner.find_ancestor(exp.Lambda)
        return found

    def _check_fold(self, node: exp.Expr) -> None:
        """Raises for a fold whose state doubles with every element."""
        for inner in (a for a in arguments_of(node) if isinstance(a, exp.Lambda)):
            first = inner.expressions[0].name if inner.expressions else ""
            if inner.expressions and self.size(inner.this).cells[first.lower()] > 1:
                raise self._refused(inner.this)

    def size(self, node: exp.Expr) -> _Size:
        """Returns an upper bound for the size of what a node creates."""
        if isinstance(node, exp.Literal):
            return _Size(len(node.this) if node.is_string else _CELL)
        if isinstance(node, exp.Column | exp.Identifier):
            listed = self._before(node) if isinstance(node, exp.Column) and not node.table else None
            return listed or _Size(0, Counter({node.name.lower(): 1}))
        if isinstance(node, exp.Query | exp.Subquery):
            return _Size(0, Counter({"a query": 1}))
        if isinstance(node, _SCALAR):
            return _Size(_CELL)
        grows = _growth(node)
        if callable(grows):
            made: _Size = grows(self, node, arguments_of(node))
            return made
        parts = [self.size(a) for a in node.iter_expressions() if not isinstance(a, exp.DataType)]
        if isinstance(node, _EITHER):
            cells: Counter[str] = Counter()
            for part in parts:
                cells |= part.cells
            return _Size(max((p.fixed for p in parts), default=0), cells)
        if isinstance(node, exp.Lambda):
            return self.size(node.this)
        return _sum(parts)

    def _before(self, node: exp.Column) -> _Size | None:
        """Returns the size of the column of the same SELECT list that a name may mean: an earlier one."""
        item: exp.Expr = node
        while item.parent is not None and not isinstance(item.parent, exp.Select):
            item = item.parent
        select = item.parent
        if select is None or item.arg_key != "expressions":
            return None
        if id(select) not in self._listed:
            listed: dict[str, list[tuple[int, exp.Expr]]] = {}
            for at, one in enumerate(select.expressions):
                if isinstance(one, exp.Alias):
                    listed.setdefault(one.alias.lower(), []).append((at, one.this))
            self._listed[id(select)] = listed
        same = self._listed[id(select)].get(node.name.lower(), ())
        found = [value for at, value in same if item.index is None or at < item.index]
        if not found:
            return None
        if id(found[-1]) not in self._named:
            self._named[id(found[-1])] = self.size(found[-1])
        return self._named[id(found[-1])]

    def number(self, node: exp.Expr) -> float:
        """Returns an upper bound for a numeric argument. Raises NotSupported if the text does not determine one."""
        found = _number(node)
        if found is None:
            raise NotSupported(
                "over HTTP it must be written out how long this becomes",
                hint="write a number, or least(…, 1000)",
                place=self._place(node),
            )
        return max(0.0, found)

    def _refused(self, node: exp.Expr) -> NotSupported:
        return NotSupported(
            f"this makes more than {self._most:,} bytes of a row, or a row {_TIMES:,} times as large",
            hint="over HTTP texts and lists are not made larger than that: ask for the parts",
            place=self._place(node),
        )

    def _place(self, node: exp.Expr) -> Place | None:
        near: exp.Expr | None = node
        while near is not None:
            span = own_span(near)
            if span is not None:
                return self._locate(*span)
            near = next(near.iter_expressions(), None)
        return self._value.place if isinstance(self._value, st.Statement) else None


def _sum(parts: Sequence[_Size]) -> _Size:
    cells: Counter[str] = Counter()
    for part in parts:
        cells.update(part.cells)
    return _Size(sum(p.fixed for p in parts), cells)


def _number(node: exp.Expr) -> float | None:
    if isinstance(node, exp.Literal):
        try:
            return float(node.this)
        except ValueError:
            return None
    if isinstance(node, exp.Null):
        return 0.0
    if isinstance(node, exp.Paren | exp.Cast):
        return _number(node.this)
    if isinstance(node, exp.Neg):
        found = _number(node.this)
        return None if found is None else -found
    if isinstance(node, exp.Add | exp.Sub | exp.Mul):
        left, right = _number(node.this), _number(node.expression)
        if left is None or right is None:
            return None
        return (
            left + right
            if isinstance(node, exp.Add)
            else left - right
            if isinstance(node, exp.Sub)
            else left * right
        )
    if called(node) == "least":
        known = [n for n in (_number(a) for a in arguments_of(node)) if n is not None]
        return min(known, default=None)
    return None


def _growth(node: exp.Expr) -> Any:
    """Returns what the table of functions says about the size of a call; None if it is no larger than its arguments."""
    row = by_name().get(called(node) or "")
    return None if row is None else row.grows


# Measures of functions whose result may be larger than all of their arguments together.


def repeated(m: _Measure, node: exp.Expr, given: Sequence[exp.Expr]) -> _Size:
    if len(given) < 2:
        return _Size()
    size = m.size(given[0])
    return _Size(max(size.fixed, 1), size.cells).times(m.number(given[1]))


def spaces(m: _Measure, node: exp.Expr, given: Sequence[exp.Expr]) -> _Size:
    return _Size(m.number(given[0])) if given else _Size()


def padded(m: _Measure, node: exp.Expr, given: Sequence[exp.Expr]) -> _Size:
    return _Size(4 * m.number(given[1])) if len(given) > 1 else _Size()


def filled(m: _Measure, node: exp.Expr, given: Sequence[exp.Expr]) -> _Size:
    if len(given) < 2:
        return _Size()
    size = m.size(given[0])
    return _Size(max(size.fixed, _CELL), size.cells).times(m.number(given[1]))


def stacked(m: _Measure, node: exp.Expr, given: Sequence[exp.Expr]) -> _Size:
    """Measures STACK: a number of rows, each of which is counted."""
    return _Size(_CELL * m.number(given[0])) if given else _Size()


def sequence(m: _Measure, node: exp.Expr, given: Sequence[exp.Expr]) -> _Size:
    """Measures a sequence from one number to another, or one day to another; for days that are not literals, assumes a
    size.
    """
    if len(given) < 2:
        return _Size()
    step = given[2] if len(given) > 2 else None
    days = [_day(a) for a in given[:2]]
    if isinstance(step, exp.Interval) or (step is None and any(d is not None for d in days)):
        unit = step.args.get("unit") if isinstance(step, exp.Interval) else None
        if unit is not None and unit.name.upper().rstrip("S") not in _LONG_UNITS:
            return _Size(_CELL * m.number(given[0]))
        known = [d for d in days if d is not None]
        return _Size(_CELL * (abs(known[0] - known[1]) if len(known) == 2 else _ELEMENTS))
    ends = [m.number(a) if _number(a) is None else _number(a) or 0.0 for a in given[:2]]
    by = 1.0 if step is None else _number(step) or 1.0
    return _Size(_CELL * abs((ends[1] - ends[0]) / by))


def _day(node: exp.Expr) -> int | None:
    """Returns the number of a day that is a literal."""
    if isinstance(node, exp.Cast) and isinstance(node.this, exp.Literal) and node.this.is_string:
        try:
            return date.fromisoformat(node.this.this[:10]).toordinal()
        except ValueError:
            return None
    return None


def replaced(m: _Measure, node: exp.Expr, given: Sequence[exp.Expr]) -> _Size:
    """Measures a replacement: each character, or each text of a given length, may become the replacement."""
    if len(given) < 2:
        return _Size()
    size, by = m.size(given[0]), m.size(given[2]) if len(given) > 2 else _Size()
    plain = called(node) == "replace" and isinstance(given[1], exp.Literal)
    length = max(1, len(given[1].this)) if plain else 1
    return size.times(max(1.0, (by.fixed + _ELEMENTS * by.most) / length))


def formatted(m: _Measure, node: exp.Expr, given: Sequence[exp.Expr]) -> _Size:
    size = _sum([m.size(a) for a in given])
    pattern = given[0] if given else None
    widths = _WIDTH.findall(pattern.this) if isinstance(pattern, exp.Literal) else ()
    return _Size(size.fixed + sum(float(w) for w in widths), size.cells)
