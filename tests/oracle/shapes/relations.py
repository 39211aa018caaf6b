"""FROM: tables, joins of every form, queries and VALUES in parentheses, LATERAL VIEW."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tests.oracle.shapes.choices import Choices
from tests.oracle.shapes.scope import SORTABLE, Column, Item, Names, Scope, table_columns
from tests.oracle.shapes.values import LITERALS, Place, Values

JOINS = ("JOIN", "LEFT JOIN", "INNER JOIN", "RIGHT JOIN", "FULL JOIN", "LEFT OUTER JOIN", "FULL OUTER JOIN")
AFTER_STREAM = ("JOIN", "LEFT JOIN", "INNER JOIN", "LEFT OUTER JOIN")
HALVES = ("LEFT SEMI JOIN", "LEFT ANTI JOIN", "SEMI JOIN", "ANTI JOIN")
TABLES = ("t1", "t2", "t3", "t4", "none", "t1", "t2")


@dataclass
class Relation:
    """A part of FROM: its text and what it makes visible."""

    text: str
    items: list[Item]
    merged: list[Column] = field(default_factory=list)

    @property
    def scope(self) -> Scope:
        return Scope(self.items, self.merged)


Derived = Callable[[int], tuple[str, list[Column]]]
"""(how deep) → a query without parentheses, and its columns."""


class Relations:
    def __init__(self, choices: Choices, names: Names, values: Values, derived: Derived):
        self.choices = choices
        self.names = names
        self._values = values
        self._derived = derived
        self.tables = TABLES
        self.ctes: list[tuple[str, list[Column]]] = []
        self.hidden: set[str] = set()
        """Tables that a CTE has taken the name of."""

    def relation(self, depth: int, outer: Scope | None) -> Relation:
        """What follows FROM."""
        found = self._one(depth)
        count = self.choices.pick([0, 1, 0, 1, 2, 1, 0, 3]) if depth > 0 else self.choices.pick([0, 0, 0, 1])
        for _ in range(count):
            found = self._joined(found, depth, outer)
        if self.choices.percent(8):
            found = self._lateral_view(found)
        return found

    def beside(self, stream: str) -> Relation:
        """A stream joined with tables, so that each of its rows counts by itself."""
        self.tables = tuple(t for t in TABLES if t != stream)
        found = self._aliased(stream, table_columns(stream))
        for _ in range(self.choices.pick([0, 1, 1, 2, 1, 3])):
            found = self._joined(found, 1, None, AFTER_STREAM)
        return found

    def _one(self, depth: int) -> Relation:
        form = self.choices.below(12)
        if form == 9 and self.ctes:
            name, columns = self.choices.pick(self.ctes)
            return self._aliased(name, columns)
        if form == 10:
            return self._values_table()
        if form == 11 and depth > 0:
            text, columns = self._derived(depth - 1)
            alias = self.names.fresh("q")
            if self.choices.percent(30):
                columns = [Column(f"x{i}", c.kind) for i, c in enumerate(columns)]
                return Relation(
                    f"({text}) AS {alias}({', '.join(c.name for c in columns)})", [Item(alias, columns)]
                )
            return Relation(f"({text}) {self.choices.pick(['AS ', ''])}{alias}", [Item(alias, columns)])
        if self.ctes and self.choices.percent(50):
            name, columns = self.choices.pick(self.ctes)
            return self._aliased(name, columns)
        name = self.choices.pick([t for t in self.tables if t not in self.hidden])
        return self._aliased(name, table_columns(name))

    def _aliased(self, name: str, columns: list[Column]) -> Relation:
        alias = self.names.fresh("a")
        return Relation(f"{name} {self.choices.pick(['', 'AS '])}{alias}", [Item(alias, columns)])

    def _values_table(self) -> Relation:
        kinds = [
            self.choices.pick(["num", "text", "num", "bool", "date"])
            for _ in range(1 + self.choices.below(3))
        ]
        rows = [
            f"({', '.join(self.choices.pick(LITERALS[k]) for k in kinds)})"
            for _ in range(1 + self.choices.below(3))
        ]
        alias = self.names.fresh("v")
        columns = [Column(n, k) for n, k in zip(("id", "s", "x"), kinds, strict=False)]
        named = f"{alias}({', '.join(c.name for c in columns)})"
        body = f"VALUES {', '.join(rows)}"
        return Relation(
            f"({body}) AS {named}" if self.choices.below(2) else f"{body} AS {named}", [Item(alias, columns)]
        )

    def _joined(
        self, left: Relation, depth: int, outer: Scope | None, joins: tuple[str, ...] = JOINS
    ) -> Relation:
        if depth > 0 and self.choices.percent(20):
            inner = self._joined(self._one(depth - 1), depth - 1, None)
            right = Relation(f"({inner.text})", inner.items, inner.merged)
        else:
            right = self._one(depth)
        if self.choices.percent(10):
            left = Relation(f"({left.text})", left.items, left.merged)
        both = Relation("", left.items + right.items, [*left.merged, *right.merged])
        form = self.choices.below(20)
        if form == 0:
            return Relation(f"{left.text} CROSS JOIN {right.text}", both.items, both.merged)
        if form == 1 and depth > 0:
            return Relation(f"{left.text}, {right.text}", both.items, both.merged)
        if form in (2, 3, 4, 5):
            return self._by_name(left, right, joins, natural=form == 2)
        half = form in (6, 7)
        word = self.choices.pick(HALVES if half else joins)
        condition = self._condition(left, right, depth, outer)
        text = f"{left.text} {word} {right.text}{condition}"
        return Relation(text, left.items if half else both.items, left.merged if half else both.merged)

    def _by_name(self, left: Relation, right: Relation, joins: tuple[str, ...], *, natural: bool) -> Relation:
        """USING and NATURAL."""
        there, here = left.scope.names(), right.scope.names()
        shared = [n for n in dict.fromkeys(there) if n in here]
        usable = [n for n in shared if there.count(n) == 1 and here.count(n) == 1]
        natural = natural and usable == shared
        half = not natural and self.choices.percent(25)
        word = self.choices.pick(HALVES if half else joins)
        chosen = shared if natural else self.choices.some(usable, 1)
        if not chosen and not natural:
            return Relation(
                f"{left.text} CROSS JOIN {right.text}", left.items + right.items, left.merged + right.merged
            )
        text = (
            f"{left.text} NATURAL {word} {right.text}"
            if natural
            else f"{left.text} {word} {right.text} USING ({', '.join(chosen)})"
        )
        if half:
            return Relation(text, left.items, left.merged)
        kinds = {c.name: c.kind for i in left.items for c in i.columns} | {
            c.name: c.kind for c in left.merged
        }
        merged = [Column(n, kinds[n]) for n in chosen]
        rest = [m for m in (*left.merged, *right.merged) if m.name not in chosen]
        return Relation(text, left.items + right.items, [*rest, *merged])

    def _condition(self, left: Relation, right: Relation, depth: int, outer: Scope | None) -> str:
        form = self.choices.below(12)
        if form == 11:
            return ""
        if form == 10:
            return f" ON {self.choices.pick(['true', 'false', 'NULL', '1 = 1', '1 = 2'])}"
        scope = Scope(left.items + right.items, [], outer)
        kinds = [
            k
            for k in SORTABLE
            if left.scope.references([k], bare=False) and right.scope.references([k], bare=False)
        ]
        parts = []
        if kinds and form < 8:
            kind = self.choices.pick(kinds)
            a = self.choices.pick(left.scope.references([kind], bare=False))
            b = self.choices.pick(right.scope.references([kind], bare=False))
            parts.append(f"{a} {self.choices.pick(['=', '=', '=', '<', '>=', '<=>', '<>'])} {b}")
        if not parts or form > 5:
            at = Place(
                lambda k: scope.references(k, bare=False), scope, 1, 1 if depth > 0 else 0, decides=True
            )
            parts.append(self._values.condition(at))
        return f" ON {' AND '.join(parts)}"

    def _lateral_view(self, found: Relation) -> Relation:
        arrays = found.scope.references(["array"])
        array = self.choices.pick(arrays) if arrays else "array(1, 2, NULL)"
        alias, outer = self.names.fresh("l"), self.choices.pick(["", "OUTER "])
        if self.choices.percent(30):
            columns = [Column(f"{alias}_p", "num"), Column(f"{alias}_x", "num")]
            call = f"posexplode({array}) {alias} AS {alias}_p, {alias}_x"
        else:
            columns, call = [Column(f"{alias}_x", "num")], f"explode({array}) {alias} AS {alias}_x"
        return Relation(
            f"{found.text} LATERAL VIEW {outer}{call}", [*found.items, Item(alias, columns)], found.merged
        )
