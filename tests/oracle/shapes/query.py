"""Whole statements."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tests.oracle.shapes.choices import Choices
from tests.oracle.shapes.grouping import Grouped, Grouping
from tests.oracle.shapes.mistakes import Mistakes
from tests.oracle.shapes.relations import Relation, Relations
from tests.oracle.shapes.scope import PLAIN, SORTABLE, Column, Names, Scope, reading
from tests.oracle.shapes.values import LITERALS, Place, Values
from tests.oracle.shapes.windows import Windows

_COLUMN = re.compile(r"\b[a-z]\w*\.[a-z]")
KINDS = ("num", "text", "num", "bool", "date", "time", "num", "text", "ntz", "array", "struct", "map")


@dataclass(frozen=True)
class Statement:
    """A SELECT, as it is asked here and as the oracle is asked."""

    text: str
    oracle: str
    ordered: bool
    """Its rows have one order."""
    record: tuple[int, ...]
    """The choices that made it."""


def statement(seed: int | str | None = None, record: Sequence[int] | None = None) -> Statement:
    """A SELECT on tables."""
    choices = Choices(seed, record)
    text, ordered = Queries(choices).statement()
    return Statement(reading(text, oracle=False), reading(text, oracle=True), ordered, tuple(choices.record))


def stream_statement(seed: int | str | None = None, record: Sequence[int] | None = None) -> Statement:
    """A SELECT on the stream ``t1`` and tables, which can keep a table current."""
    choices = Choices(seed, record)
    text = Queries(choices).stream_statement()
    return Statement(reading(text, oracle=False), reading(text, oracle=True), False, tuple(choices.record))


class Queries:
    """Makes up queries, from the outside in."""

    def __init__(self, choices: Choices):
        self.choices = choices
        self.names = Names(choices)
        self.mistakes = Mistakes(choices)
        self.values = Values(choices, self.names, self._subquery)
        self.relations = Relations(choices, self.names, self.values, self._derived)
        self.grouping = Grouping(choices, self.values)

    def statement(self) -> tuple[str, bool]:
        with_ = self._with() if self.choices.percent(20) else ""
        text, columns = self._body(2)
        tail, ordered = self._tail([c.kind for c in columns])
        return f"{with_}{text}{tail}", ordered

    def stream_statement(self) -> str:
        self.mistakes.kind = ""
        relation = self.relations.beside("t1")
        scope = Scope(relation.items, relation.merged)
        at = Place(scope.references, scope)
        where = self._where(at, None)
        if self.choices.percent(15):
            return self._windowed(relation, at, where)
        if self.choices.percent(50):
            return self._aggregated(relation, at, where, None, one=False, sets=False)[0]
        return self._plain(relation, at, where, None, 0)[0]

    def _windowed(self, relation: Relation, at: Place, where: str) -> str:
        """Groups by windows of time."""
        time = self.choices.pick(relation.items[0].columns[-1:]).name
        window = f"window({relation.items[0].alias}.{time}, '{self.choices.pick(['5 minutes', '1 day', '12 hours'])}')"
        keys = self.grouping.keys(at).keys[: self.choices.below(3)]
        values = [self.grouping.aggregate("num", replace(at, depth=1)) for _ in range(self.choices.below(3))]
        start = self.choices.pick([f"{window}.start", "window.start"])
        end = self.choices.pick([f"{window}.end", "window.end"])
        listed = [f"{start} AS w0", f"{end} AS w1"]
        listed += [f"{v} AS o{i}" for i, v in enumerate([*(k for k, _ in keys), *values])]
        grouped = ", ".join([window, *(k for k, _ in keys)])
        return f"SELECT {', '.join(listed)} FROM {relation.text}{where} GROUP BY {grouped}"

    def _with(self) -> str:
        parts = []
        for _ in range(1 + self.choices.below(2)):
            # A CTE may have the name of a table, and hide it from then on.
            name = self.choices.pick(["t2", "none"]) if self.choices.percent(15) else self.names.fresh("c")
            text, columns = self._body(1)
            if self.choices.percent(30):
                columns = [Column(f"y{i}", c.kind) for i, c in enumerate(columns)]
                parts.append(f"{name}({', '.join(c.name for c in columns)}) AS ({text})")
            else:
                parts.append(f"{name} AS ({text})")
            self.relations.ctes = [c for c in self.relations.ctes if c[0] != name] + [(name, columns)]
            self.relations.hidden.add(name)
        return f"WITH {', '.join(parts)} "

    def _derived(self, depth: int) -> tuple[str, list[Column]]:
        text, columns = self._body(depth)
        if self.choices.percent(15):
            text += self._limit([c.kind for c in columns])
        return text, columns

    def _tail(self, kinds: list[str]) -> tuple[str, bool]:
        """ORDER BY, LIMIT, OFFSET, and whether they leave the order open."""
        if not self.choices.percent(35) or not kinds:
            return "", False
        limit = self._limit(kinds)
        if limit:
            return limit, True
        sortable = [i for i, k in enumerate(kinds, 1) if k in SORTABLE]
        if not sortable:
            return "", False
        return f" ORDER BY {self.choices.pick(sortable)}{self._way()}", False

    def _limit(self, kinds: list[str]) -> str:
        """An order of all columns, so that it is clear which rows are meant."""
        if not all(k in SORTABLE for k in kinds) or not kinds:
            return ""
        if self.choices.percent(15):
            order = "ALL"
        else:
            order = ", ".join(f"{i}{self._way()}" for i in range(1, len(kinds) + 1))
        limit = f" LIMIT {self.choices.below(5)}" if self.choices.below(3) else ""
        offset = f" OFFSET {self.choices.below(3)}" if self.choices.percent(25) else ""
        return f" ORDER BY {order}{limit}{offset}"

    def _way(self) -> str:
        return self.choices.pick(
            ["", " DESC", " ASC", " NULLS LAST", " DESC NULLS FIRST", " ASC NULLS FIRST"]
        )

    def _body(
        self, depth: int, kinds: Sequence[str] | None = None, outer: Place | None = None
    ) -> tuple[str, list[Column]]:
        """A SELECT, a set operation, or VALUES."""
        if depth > 0 and self.choices.percent(14):
            return self._set_operation(depth, kinds, outer)
        if kinds is not None and outer is None and self.choices.percent(5):
            rows = [f"({', '.join(self.choices.pick(LITERALS[k]) for k in kinds)})" for _ in range(2)]
            return f"VALUES {', '.join(rows)}", [Column(f"col{i}", k) for i, k in enumerate(kinds, 1)]
        return self._select(depth, kinds, outer)

    def _set_operation(
        self, depth: int, kinds: Sequence[str] | None, outer: Place | None
    ) -> tuple[str, list[Column]]:
        text, columns = self._select(depth - 1, kinds, outer)
        kinds = [c.kind for c in columns]
        text = f"({text})" if self.choices.percent(25) else text
        for _ in range(self.choices.pick([1, 1, 2, 3])):
            words = [
                "UNION ALL",
                "UNION",
                "EXCEPT",
                "INTERSECT",
                "EXCEPT ALL",
                "INTERSECT ALL",
                "MINUS",
                "UNION DISTINCT",
            ]
            # A map can only be in UNION ALL.
            word = "UNION ALL" if "map" in kinds else self.choices.pick(words)
            wanted = self.mistakes.widths(kinds)
            if depth > 1 and self.choices.percent(20):
                right = f"({self._set_operation(depth - 1, wanted, outer)[0]})"
            else:
                right = self._body(0, wanted, outer)[0]
                right = f"({right})" if self.choices.percent(25) else right
            text = f"{text} {word} {right}"
            if self.choices.percent(10):
                text = f"({text})"
        return text, columns

    def _subquery(self, at: Place, kinds: Sequence[str], use: str) -> str:
        """A query inside an expression. Whatever it gives, it does not depend on the order of rows."""
        outer = replace(at, subqueries=at.subqueries - 1)
        if use == "scalar":
            return self._select(0, kinds, outer, one=not self.choices.percent(10))[0]
        if use == "exists" and self.choices.percent(30):
            return self._select(0, None, outer)[0]
        return self._body(1, kinds, outer)[0]

    def _select(
        self, depth: int, kinds: Sequence[str] | None, outer: Place | None, *, one: bool = False
    ) -> tuple[str, list[Column]]:
        """A SELECT with columns of these kinds, of any if None; ``one``: it gives one row, by an aggregate."""
        mistakes = self.mistakes
        relation = self.relations.relation(depth, outer.scope if outer else None)
        scope = Scope(relation.items, relation.merged, outer.scope if outer else None)

        def leaves(wanted: Sequence[str]) -> list[str]:
            return mistakes.leaves(scope, wanted) or scope.references(wanted)

        subqueries = outer.subqueries if outer is not None else 1
        at = Place(leaves, scope, 2 if depth > 0 else 1, subqueries)
        where = self._where(at, outer)
        if one or self.choices.percent(25):
            return self._aggregated(relation, at, where, kinds, one=one)
        return self._plain(relation, at, where, kinds, depth)

    def _where(self, at: Place, outer: Place | None) -> str:
        parts = []
        if outer is not None and self.choices.below(10) >= 4:
            parts += self._correlation(at, outer)
        if self.choices.percent(40):
            parts.append(self.values.condition(replace(at, decides=True)))
        return f" WHERE {' AND '.join(parts)}" if parts else ""

    def _correlation(self, at: Place, outer: Place) -> list[str]:
        """A condition that compares something of the query with something around it."""
        known = {k: (at.leaves([k]), _qualified(outer.leaves([k]))) for k in PLAIN}
        kinds = [k for k, (here, there) in known.items() if here and there]
        if not kinds:
            return []
        here, there = known[self.choices.pick(kinds)]
        operator = self.choices.pick(["=", "=", "=", "=", "<", ">=", "<>", "<=>"])
        return [f"{self.choices.pick(here)} {operator} {self.choices.pick(there)}"]

    def _plain(
        self, relation: Relation, at: Place, where: str, kinds: Sequence[str] | None, depth: int
    ) -> tuple[str, list[Column]]:
        if kinds is None and self.choices.percent(12):
            star, columns = self._star(relation)
            if columns:
                distinct = (
                    "DISTINCT " if all(c.kind != "map" for c in columns) and self.choices.percent(15) else ""
                )
                return f"SELECT {distinct}{star} FROM {relation.text}{where}", columns
        wanted = kinds or [self._kind(at) for _ in range(1 + self.choices.below(4))]
        total = (lambda: at.scope.all_columns()) if at.scope.is_plain() and at.scope.items else None
        windows = Windows(self.choices, self.values, total)
        outputs: list[tuple[str, str]] = []
        columns: list[Column] = []
        for kind in wanted:
            text = windows.call(kind, at) if depth > 0 and self.choices.percent(12) else None
            text = text or self.values.value(kind, at)
            text, name = self._named(text, columns)
            outputs.append((text, name))
            columns.append(Column(name, kind))
        listed = ", ".join(t for t, _ in outputs)
        distinct = "DISTINCT " if "map" not in wanted and self.choices.percent(12) else ""
        named = f" WINDOW {', '.join(windows.named)}" if windows.named else ""
        return f"SELECT {distinct}{listed} FROM {relation.text}{where}{named}", columns

    def _named(self, text: str, columns: list[Column]) -> tuple[str, str]:
        """The text with an alias, perhaps; the names of a SELECT differ."""
        plain = text.rpartition(".")[2]
        taken = [c.name for c in columns]
        if plain.isidentifier() and plain not in taken and plain.lower() not in ("true", "false", "null"):
            if self.choices.below(2):
                return text, plain
        name = f"o{len(columns)}"
        return f"{text} AS {name}", name

    def _star(self, relation: Relation) -> tuple[str, list[Column]]:
        item = self.choices.pick(relation.items)
        names = [c.name for c in item.columns]
        if len(relation.items) > 1 or relation.merged:
            if item.alias and len(set(names)) == len(names):
                return f"{item.alias}.*", list(item.columns)
            return "", []
        if len(names) > 1 and len(set(names)) == len(names) and self.choices.percent(40):
            gone = self.choices.pick(names)
            return f"* EXCEPT ({gone})", [c for c in item.columns if c.name != gone]
        return "*", list(item.columns)

    def _aggregated(
        self,
        relation: Relation,
        at: Place,
        where: str,
        kinds: Sequence[str] | None,
        *,
        one: bool,
        sets: bool = True,
    ) -> tuple[str, list[Column]]:
        grouped = Grouped([], False) if one else self.grouping.keys(at)
        wanted = kinds or [k for _, k in grouped.keys] + ["num"] * self.choices.below(3) or ["num"]
        inner = replace(at, depth=1)
        outputs: list[tuple[str, str]] = []
        listed: list[str] = []
        columns: list[Column] = []
        for i, kind in enumerate(wanted):
            own = grouped.of([kind])
            if kinds is None and i < len(grouped.keys):
                value = grouped.keys[i][0]
            elif own and self.choices.below(2):
                value = self.choices.pick(own)
            elif self.choices.percent(15) and kind == "num":
                value = f"({self.grouping.aggregate('num', inner)} + 1)"
            else:
                value = self.grouping.aggregate(kind, inner)
            text, name = self._named(value, columns)
            listed.append(text)
            outputs.append((value, name))
            columns.append(Column(name, kind))
        clause = self.grouping.clause(grouped, outputs, sets=sets)
        if clause and not grouped.sets and kinds is None and self.choices.percent(10):
            clause = " GROUP BY ALL"
        having = ""
        if self.choices.percent(25):
            having = f" HAVING {self._having(grouped, inner, at)}"
        if grouped.sets and self.choices.percent(30):
            key = self.choices.pick(grouped.keys)[0]
            if kinds is None:
                listed.append(f"{self.choices.pick([f'grouping({key})', 'grouping_id()'])} AS g")
                columns.append(Column("g", "num"))
        text = f"SELECT {self.mistakes.ungrouped(at, listed)} FROM {relation.text}{where}{clause}{having}"
        return text, columns

    def _having(self, grouped: Grouped, inner: Place, at: Place) -> str:
        made = [f"{self.grouping.aggregate('num', replace(inner, subqueries=0))}" for _ in range(2)]

        def leaves(wanted: Sequence[str]) -> list[str]:
            return grouped.of(wanted) + (made if "num" in wanted else [])

        # Of a subquery only what is grouped by can be named, and aggregates of the query around it. The oracle
        # takes one that reads no column for an aggregate of the subquery.
        subqueries = at.subqueries if all(_COLUMN.search(m) for m in made) else 0
        return self.values.condition(Place(leaves, at.scope, 1, subqueries, decides=True))

    def _kind(self, at: Place) -> str:
        return self.choices.pick([k for k in KINDS if at.leaves([k])] or ["num"])


def _qualified(leaves: Sequence[str]) -> list[str]:
    """Those that mean the same inside of a subquery."""
    return [leaf for leaf in leaves if "." in leaf and " " not in leaf]
