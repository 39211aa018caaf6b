"""Expressions of a kind over what can be named."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tests.oracle.shapes.choices import Choices
from tests.oracle.shapes.scope import PLAIN, Names, Scope, either

LITERALS: dict[str, list[str]] = {
    "num": ["1", "0", "2", "1.5", "-1", "3L", "2.0D", "CAST(NULL AS INT)"],
    "text": ["'a'", "'b'", "''", "'ab'", "CAST(NULL AS STRING)"],
    "bool": ["true", "false", "CAST(NULL AS BOOLEAN)"],
    "date": ["DATE'2024-03-01'", "DATE'2024-02-29'", "CAST(NULL AS DATE)"],
    "time": ["TIMESTAMP'2024-03-01 00:00:00'", "TIMESTAMP'2024-02-29 12:00:00'"],
    "ntz": ["TIMESTAMP_NTZ'2024-03-01 00:00:00'", "TIMESTAMP_NTZ'2024-02-29 12:00:00'"],
    "array": ["array(1, 2)", "array(3)", "CAST(NULL AS ARRAY<INT>)"],
    "map": ["map('a', 1)"],
    "struct": ["named_struct('p', 1, 'q', 'a')"],
}
COMPARE = ("=", "<>", "<", "<=", ">", ">=", "<=>")


@dataclass(frozen=True)
class Place:
    """Where an expression stands: what it can name, and how deep it and its subqueries may become."""

    leaves: Callable[[Sequence[str]], list[str]]
    scope: Scope
    depth: int = 2
    subqueries: int = 1
    decides: bool = False
    """NULL and FALSE are the same here."""

    def deeper(self) -> Place:
        return replace(self, depth=self.depth - 1, decides=False)

    def without_subqueries(self) -> Place:
        return replace(self, subqueries=0)


Subquery = Callable[[Place, Sequence[str], str], str]
"""(where it stands, the kinds of its columns, "scalar", "in" or "exists") → a query, without parentheses."""


class Values:
    def __init__(self, choices: Choices, names: Names, subquery: Subquery):
        self.choices = choices
        self.names = names
        self._subquery = subquery

    def value(self, kind: str, at: Place) -> str:
        leaves = at.leaves([kind])
        simple = at.depth <= 0 or self.choices.below(10) < 5
        if simple and leaves and self.choices.below(8):
            return self.choices.pick(leaves)
        if simple or kind in ("map",):
            return self.literal(kind)
        return self._made(kind, at)

    def literal(self, kind: str) -> str:
        return self.choices.pick(LITERALS[kind])

    def _made(self, kind: str, at: Place) -> str:
        inner = at.deeper()
        form = self.choices.below(7)
        if form == 0:
            return f"coalesce({self.value(kind, inner)}, {self.value(kind, inner)})"
        if form == 1:
            condition = self.condition(replace(inner, decides=True))
            return f"CASE WHEN {condition} THEN {self.value(kind, inner)} ELSE {self.value(kind, inner)} END"
        if form == 2 and at.subqueries and kind in PLAIN:
            return f"({self._subquery(inner, [kind], 'scalar')})"
        if form == 3:
            return (
                f"nullif({self.value(kind, inner)}, {self.value(kind, inner)})"
                if kind in PLAIN
                else self.literal(kind)
            )
        return self._own(kind, inner)

    def _own(self, kind: str, at: Place) -> str:
        """Functions and operators that belong to a kind."""
        pick = self.choices.pick
        match kind:
            case "num":
                form = self.choices.below(8)
                if form == 4:
                    return f"length({self.value('text', at)})"
                if form == 5 and (arrays := at.leaves(["array"])):
                    return pick([f"size({a})" for a in arrays] + [f"get({a}, 0)" for a in arrays])
                if form == 6 and (maps := at.leaves(["map"])):
                    return f"{pick(maps)}['a']"
                if form == 7 and (structs := at.leaves(["struct"])):
                    return f"{pick(structs)}.p"
                other = self.value("num", at) if form == 0 else pick(["1", "2", "1.5"])
                return f"({self.value('num', at)} {pick('+-*' if form else '+-')} {other})"
            case "text":
                text = self.value("text", at)
                return pick(
                    [f"upper({text})", f"concat({text}, 'b')", f"({text} || 'a')", f"substring({text}, 1, 1)"]
                )
            case "bool":
                return f"({self.condition(at)})"
            case "date":
                return f"date_add({self.value('date', at)}, {self.choices.below(3)})"
            case "time" | "ntz":
                return f"({self.value(kind, at)} + INTERVAL 1 DAY)"
            case "array":
                return f"array({self.choices.below(3)}, {self.choices.below(3)})"
        return self.literal(kind)

    def condition(self, at: Place) -> str:
        """A condition; ``at.decides`` says that NULL counts as FALSE."""
        form = self.choices.below(14) if at.depth > 0 else self.choices.below(6)
        inner = at.deeper()
        if form <= 2:
            return self.compared(inner)
        if form == 3:
            kind = self._kind(inner, (*PLAIN, "array", "map", "struct"))
            return f"{self.value(kind, inner)} IS {self.choices.pick(['NULL', 'NOT NULL'])}"
        if form == 4:
            return self._listed(inner)
        if form == 5:
            return self.choices.pick(at.leaves(["bool"]) or LITERALS["bool"])
        if form in (6, 7):
            joined = replace(inner, decides=at.decides)
            word = self.choices.pick(["AND", "OR"])
            return f"({self.condition(joined)} {word} {self.condition(joined)})"
        if form == 8:
            return f"NOT ({self.condition(inner)})"
        if form == 9:
            pattern = self.choices.pick(("'a%'", "'%b'", "'_'", "'%'"))
            return f"{self.value('text', inner)} LIKE {pattern}"
        if not at.subqueries:
            return self.compared(inner)
        return self._with_subquery(at, inner, form)

    def _kind(self, at: Place, kinds: Sequence[str] = PLAIN) -> str:
        """A kind that something there has."""
        return self.choices.pick([k for k in kinds if at.leaves([k])] or ["num"])

    def compared(self, at: Place) -> str:
        kind = self._kind(at, (*PLAIN, "array", "struct"))
        return f"{self.value(kind, at)} {self.choices.pick(COMPARE)} {self.value(kind, at)}"

    def _listed(self, at: Place) -> str:
        kind = self._kind(at)
        value, low, high = (self.value(kind, at) for _ in range(3))
        word = self.choices.pick(["", "NOT "])
        if self.choices.below(2):
            return f"{value} {word}IN ({low}, {high})"
        return f"{value} {word}BETWEEN {low} AND {high}"

    def _with_subquery(self, at: Place, inner: Place, form: int) -> str:
        word = self.choices.pick(["", "NOT "])
        if form == 10:
            return f"{word}EXISTS ({self._subquery(inner, ['num'], 'exists')})"
        kind = self._kind(inner)
        value = self.value(kind, inner.without_subqueries())
        if form == 11 and self.choices.percent(20):
            # Spark has tuples in filters only: as a value it says FALSE for NULL.
            second = self._kind(inner)
            found = self._subquery(inner, [kind, second], "in")
            pair = f"({value}, {self.value(second, inner.without_subqueries())})"
            if at.decides and not word:
                return f"{pair} IN ({found})"
        query = self._subquery(inner, [kind], "in")
        if form in (11, 12):
            plain = f"{value} {word}IN ({query})"
            if at.decides and not word:
                return plain
            return either(plain, f"({word}{self._quantified(value, '=', query, every=False)})")
        operator = self.choices.pick(COMPARE[:-1])
        quantifier = self.choices.pick(["ANY", "ALL", "SOME"])
        every = quantifier == "ALL"
        return either(
            f"{value} {operator} {quantifier} ({query})",
            self._quantified(value, operator, query, every=every),
        )

    def _quantified(self, value: str, operator: str, query: str, *, every: bool) -> str:
        """ANY and ALL in words that the oracle has, by the rules of SQL."""
        alias = self.names.fresh("z")

        def exists(condition: str) -> str:
            return f"EXISTS (SELECT 1 FROM ({query}) AS {alias}({alias}_c) WHERE {condition})"

        compared = f"({value} {operator} {alias}_c)"
        decides, otherwise = ("false", "true") if every else ("true", "false")
        return (
            f"CASE WHEN {exists(f'NOT {compared}' if every else compared)} THEN {decides} "
            f"WHEN {exists(f'{compared} IS NULL')} THEN CAST(NULL AS BOOLEAN) ELSE {otherwise} END"
        )
