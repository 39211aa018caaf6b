"""Estimates, from the text, how large the texts and lists that a statement creates can become.

No engine can be stopped inside one call, and none accounts for the memory of a call's results. So a client's statement
is measured first: what it creates from a row is limited to a number of bytes, and to a multiple of the size of the
row's values. The values themselves are unknown, so the number of repeats of a text must be a literal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from math import inf
from typing import Any

from sqlglot import exp

from millpond.errors import NotSupported, Place
from millpond.sql import statements as st
from millpond.sql.calls import arguments_of, called
from millpond.sql.functions import by_name
from millpond.sql.measures import CELL, ELEMENTS, Size, bounds, is_null, makes_bytes, total
from millpond.sql.spans import own_span
from millpond.sql.trees import trees_in

Locate = Callable[[int, int], Place]

_BYTES = 20_000
"""The bytes that a statement may create from each row of its inputs."""
_BYTES_ALONE = 5_000_000
"""The bytes that a statement without FROM may create."""
_TIMES = 1_000
"""How often a value of a row may be copied into what is created from it."""
_SHORT = 20
"""The bytes of a value whose size is unknown, where only copies of it matter."""
_EITHER = (exp.Case, exp.If, exp.Coalesce)
_COLLECTING = (exp.GroupConcat, exp.ArrayAgg, exp.ArrayUniqueAgg)
_SCALAR = (exp.Predicate, exp.Connector, exp.Not)


def check_growth(statements: Any, locate: Locate) -> None:
    """Raises NotSupported for the first statement, or expression, that creates too much from its inputs."""
    for value in statements if isinstance(statements, Sequence) else (statements,):
        _Measure(value, locate).check()


def longest_text(statements: Any, locate: Locate) -> float:
    """Returns how long the texts of a statement can become without the values of its inputs: what it writes out, and
    what it creates. One that copies a value often is measured as if the value were short; one that collects the values
    of many rows into one has no limit.
    """
    longest = 0.0
    for value in statements if isinstance(statements, Sequence) else (statements,):
        measure = _Measure(value, locate)
        measure.check()
        nodes = [node for tree in trees_in(value) for node in tree.walk()]
        if any(isinstance(n, _COLLECTING) for n in nodes):
            return inf
        literals = max((len(n.this) for n in nodes if isinstance(n, exp.Literal) and n.is_string), default=0)
        created = max((measure.size(n).fixed for n in nodes if _growth(n) is not None), default=0)
        factor, fixed = measure.made()
        longest = max(longest, (max(literals, created, fixed) + _SHORT) * factor - _SHORT)
    return longest


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
        self._named: dict[int, Size] = {}

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
        level[1] += size.fixed if makes_bytes(grows) else 0
        factor, fixed = self.made()
        if factor > _TIMES or fixed * factor > self._most or size.fixed > self._most:
            raise self._refused(node)

    def made(self) -> tuple[float, float]:
        """Returns how often a value of a row may be copied so far, and the bytes that are created without one."""
        factor, fixed = 1.0, 0.0
        for times, made in self._levels.values():
            factor, fixed = factor * times, fixed + made
        return factor, fixed

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
            found *= max([ELEMENTS, *(self.size(a).fixed / CELL for a in lists)])
            inner = inner.find_ancestor(exp.Lambda)
        return found

    def _check_fold(self, node: exp.Expr) -> None:
        """Raises for a fold whose state doubles with every element."""
        for inner in (a for a in arguments_of(node) if isinstance(a, exp.Lambda)):
            first = inner.expressions[0].name if inner.expressions else ""
            if inner.expressions and self.size(inner.this).cells[first.lower()] > 1:
                raise self._refused(inner.this)

    def size(self, node: exp.Expr) -> Size:
        """Returns an upper bound for the size of what a node creates."""
        if isinstance(node, exp.Literal):
            return Size(len(node.this) if node.is_string else CELL)
        if isinstance(node, exp.Column | exp.Identifier):
            listed = self._before(node) if isinstance(node, exp.Column) and not node.table else None
            return listed or Size(0, Counter({node.name.lower(): 1}))
        if isinstance(node, exp.Query | exp.Subquery):
            return Size(0, Counter({"a query": 1}))
        if isinstance(node, _SCALAR):
            return Size(CELL)
        grows = _growth(node)
        if callable(grows):
            made: Size = grows(self, node, arguments_of(node))
            return made
        parts = [self.size(a) for a in node.iter_expressions() if not isinstance(a, exp.DataType)]
        if isinstance(node, _EITHER):
            cells: Counter[str] = Counter()
            for part in parts:
                cells |= part.cells
            return Size(max((p.fixed for p in parts), default=0), cells)
        if isinstance(node, exp.Lambda):
            return self.size(node.this)
        return total(parts)

    def _before(self, node: exp.Column) -> Size | None:
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
        return max(0.0, self._written(node, bounds(node)[1], "least(…, 1000)"))

    def distance(self, node: exp.Expr) -> float:
        """Returns an upper bound for how far a numeric argument is from 0. Raises NotSupported if there is none."""
        low, high = bounds(node)
        return self._written(node, max(-low, high), "greatest(0, least(…, 1000))")

    def _written(self, node: exp.Expr, most: float, form: str) -> float:
        if is_null(node):
            return 0.0
        if most == inf:
            raise NotSupported(
                "over HTTP it must be written out how long this becomes",
                hint=f"write a number, or {form}",
                place=self._place(node),
            )
        return most

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


def _growth(node: exp.Expr) -> Any:
    """Returns what the table of functions says about the size of a call; None if it is no larger than its arguments."""
    row = by_name().get(called(node) or "")
    return None if row is None else row.grows
