"""Statements that are answered by a key or an index."""

from __future__ import annotations

from collections.abc import Sequence

from tests.oracle.shapes.choices import Choices
from tests.oracle.shapes.query import Statement
from tests.oracle.shapes.tables import KEYS, SCHEMAS

INDEXES: dict[str, list[str]] = {
    "t1": ["a", "s, a", "d"],
    "t2": ["id", "a, s", "c", "dt"],
    "t3": ["a", "d, k"],
    "t4": ["id"],
    "none": ["a"],
}
_LITERALS: dict[str, list[str]] = {
    "INT": ["1", "0", "2", "-1", "3", "1.0", "1.5", "7", "99999999999"],
    "BIGINT": ["1", "0", "2", "10000000000", "-1", "2.0", "0.5"],
    "DOUBLE": ["1", "0", "0.5", "-1.5", "2.0", "100"],
    "STRING": ["'a'", "'b'", "''", "'A'", "'ab'", "'it''s'"],
    "DECIMAL(10,2)": ["1", "0", "2.5", "2.50", "-3.25", "1.000", "2.505"],
    "DECIMAL(6,3)": ["1", "0", "2.5", "0.125", "0.1250", "12345.6789"],
    "DATE": ["'2024-03-01'", "'2024-02-29'", "'2024-03-04'", "'1999-12-31'"],
}
_NUMBERS = ("INT", "BIGINT", "DECIMAL(10,2)", "DECIMAL(6,3)")


def lookup_statement(seed: int | str | None = None, record: Sequence[int] | None = None) -> Statement:
    """A SELECT on one table with columns that equal a value, and tests beside."""
    choices = Choices(seed, record)
    text = _Lookups(choices).statement()
    return Statement(text, text, False, tuple(choices.record))


class _Lookups:
    def __init__(self, choices: Choices):
        self.choices = choices
        self.table = choices.pick(["t1", "t2", "t3", "t4", "t1", "t2", "t3", "none"])
        self.types = SCHEMAS[self.table]
        self.alias = choices.pick(["", "", "x"])

    def statement(self) -> str:
        comparable = [c for c in self.types if self.types[c] in _LITERALS]
        first = self.choices.pick([KEYS.get(self.table, comparable[0]), *comparable])
        parts = [self.equal(first)]
        for _ in range(self.choices.pick([0, 1, 1, 2])):
            parts.insert(self.choices.below(len(parts) + 1), self.test(2))
        source = f"{self.table} AS {self.alias}" if self.alias else self.table
        text = f"SELECT {self.outputs()} FROM {source} WHERE {' AND '.join(parts)}"
        aggregated = "(" in text.partition(" FROM ")[0]
        if not aggregated and self.choices.percent(15):
            text += " LIMIT " + self.choices.pick(["100", "0"])
        return text

    def name(self, column: str) -> str:
        return f"{self.alias}.{column}" if self.alias and self.choices.below(2) else column

    def literal(self, column: str) -> str:
        return self.choices.pick(_LITERALS[self.types[column]])

    def equal(self, column: str) -> str:
        """What an index answers: equality, or a list."""
        name, form = self.name(column), self.choices.below(8)
        if form == 5:
            return f"{self.literal(column)} = {name}"
        if form == 6:
            return f"{name} IN ({', '.join(self.literal(column) for _ in range(1 + self.choices.below(3)))})"
        if form == 7:
            return f"({name} = {self.literal(column)} OR {name} = {self.literal(column)})"
        return f"{name} = {self.literal(column)}"

    def test(self, depth: int) -> str:
        """What the rows that were found must be, beside that."""
        form = self.choices.below(8)
        if depth and form == 6:
            return f"({self.test(depth - 1)} {self.choices.pick(['OR', 'AND'])} {self.test(depth - 1)})"
        if depth and form == 7:
            return f"NOT ({self.test(depth - 1)})"
        column = self.choices.pick(list(self.types))
        name, word = self.name(column), self.choices.pick(["", "NOT "])
        if self.types[column] == "BOOLEAN" and form < 3:
            return self.choices.pick([name, f"{word}{name}", f"{name} = true", f"{name} <> false"])
        if self.types[column] not in _LITERALS or form == 3:
            return f"{name} IS {word}NULL"
        if form == 4:
            return f"{name} {word}IN ({self.literal(column)}, {self.literal(column)})"
        if form == 5:
            return f"{name} {word}BETWEEN {self.literal(column)} AND {self.literal(column)}"
        operator = self.choices.pick(["=", "<>", "<", "<=", ">", ">=", "!="])
        pair = (name, self.literal(column))
        return f" {operator} ".join(pair if form else pair[::-1])

    def outputs(self) -> str:
        form = self.choices.below(5)
        if form == 0:
            return "*"
        columns = self.choices.some(list(self.types), least=1)
        if form in (1, 2):
            return ", ".join(self.name(c) for c in columns)
        if form == 3:
            return ", ".join(f"{self.aggregate(c)} AS o{i}" for i, c in enumerate(columns[:3]))
        return ", ".join(f"{self.made(c)} AS o{i}" for i, c in enumerate(columns[:3]))

    def aggregate(self, column: str) -> str:
        dtype = self.types[column]
        names = ["count"]
        if dtype in (*_NUMBERS, "DOUBLE"):
            names += ["sum", "avg"]
        if dtype in _LITERALS or dtype.startswith("TIMESTAMP"):
            names += ["min", "max"]
        return self.choices.pick(["count(*)", *(f"{name}({self.name(column)})" for name in names)])

    def made(self, column: str) -> str:
        """What is computed from a row."""
        name, dtype = self.name(column), self.types[column]
        if dtype in _NUMBERS:
            return f"{name} {self.choices.pick(['+', '-', '*'])} {self.choices.pick(['1', '2'])}"
        if dtype == "STRING":
            return f"{name} || 'x'"
        return name
