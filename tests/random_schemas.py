"""Random tables and changes: columns of any type, with a key of one or several columns or none."""

from __future__ import annotations

from random import Random

from millpond import App
from millpond.query.transaction import Transaction

TYPES = {
    "int": ("TINYINT", "SMALLINT", "INT", "INT", "BIGINT"),
    "big": ("BIGINT",),
    "decimal": ("DECIMAL(10,2)", "DECIMAL(12,3)", "DECIMAL(9,0)", "DECIMAL(18,1)"),
    "wide": ("DECIMAL(30,4)", "DECIMAL(38,10)"),
    "double": ("DOUBLE", "DOUBLE", "FLOAT"),
    "text": ("STRING",),
    "bool": ("BOOLEAN",),
    "date": ("DATE",),
    "time": ("TIMESTAMP",),
}
_SPECIAL = ("1e308D * 10", "-1e308D * 10", "1e308D * 10 - 1e308D * 10")
"""The infinities and NaN, without a cast of a text, which Spark evaluates."""
VALUES = {
    "int": ("0", "1", "2", "3", "-1", "7"),
    "big": ("5", "4503599627370496", "-9007199254740993", "2305843009213693952", "4000000000"),
    "decimal": ("0", "1", "2.5", "-3.75", "3", "99999.99"),
    "wide": ("0.5", "10.5", "-12345678901234567890.1234", "99999999999999999999999999.9999", "0"),
    "double": ("0", "0.25", "1.5", "-2.5", "3", "100.125", *_SPECIAL),
    "text": ("x", "y", "z", "", "X", "y ", "ä"),
    "bool": ("true", "false"),
    "date": ("2024-01-01", "2024-01-02", "2024-02-29", "1969-12-31", "0001-01-01"),
    "time": (
        "2024-01-02 10:00:00",
        "2024-01-02 10:00:00.000001",
        "1960-06-01 23:59:59.5",
        "2024-03-31 02:30:00",
    ),
}
_NAMES = (
    "k",
    "g",
    "x",
    "n",
    "v",
    "w",
    "c0",
    "c1",
    "k0",
    "a0",
    "o0",
    "Id",
    "Sum",
    "`a b`",
    "`group`",
    "value",
    "day",
)
"""Also names that operators use for columns of their own."""


class Tables:
    """Has some tables: ``sql`` creates them, and ``columns`` are the kinds of their columns."""

    def __init__(self, random: Random, *, large: bool = False):
        self._random = random
        kinds = [k for k in TYPES if large or k not in ("big", "wide")]
        self._types: dict[str, dict[str, str]] = {}
        self._keys: dict[str, list[str]] = {}
        self.columns: dict[str, dict[str, str]] = {}
        statements = []
        for name in ("t0", "t1", "t2", "t3")[: random.randint(1, 4)]:
            columns = {c: random.choice(kinds) for c in random.sample(_NAMES, random.randint(2, 7))}
            able = [c for c, kind in columns.items() if kind != "double"]
            key = random.sample(able, min(len(able), random.choice((0, 1, 1, 2, 3))))
            types = {c: random.choice(TYPES[kind]) for c, kind in columns.items()}
            self.columns[name], self._types[name], self._keys[name] = columns, types, key
            parts = [f"{c} {dtype}" for c, dtype in types.items()]
            parts += [f"PRIMARY KEY ({', '.join(key)})"] if key else []
            statements.append(f"CREATE TABLE {name} ({', '.join(parts)});")
        self.sql = "\n".join(statements)

    def change(self, tx: Transaction | App) -> None:
        """Makes one random change of a table."""
        random = self._random
        table = random.choice(list(self.columns))
        columns, key = self.columns[table], self._keys[table]
        others = [c for c in columns if c not in key]
        match random.randrange(10):
            case 0 | 1 | 2 | 3 | 4:
                for _ in range(random.randint(1, 4)):
                    values = ", ".join(self._value(table, c) for c in columns)
                    tx.sql(f"INSERT INTO {table} VALUES ({values})")
            case 5 | 6:
                tx.sql(f"DELETE FROM {table} WHERE {self._condition(table)}")
            case _ if others:
                changed = random.sample(others, random.randint(1, min(2, len(others))))
                sets = ", ".join(f"{c} = {self._new(table, c)}" for c in changed)
                where = "" if random.random() < 0.2 else f" WHERE {self._condition(table)}"
                tx.sql(f"UPDATE {table} SET {sets}{where}")

    def _value(self, table: str, column: str) -> str:
        """Returns a value of a column: NULL, if it is not of the key, or one of few."""
        if column not in self._keys[table] and self._random.random() < 0.15:
            return "NULL"
        kind, dtype = self.columns[table][column], self._types[table][column]
        value = self._random.choice([v for v in VALUES[kind] if dtype != "FLOAT" or v not in _SPECIAL])
        match kind:
            case "text":
                return f"'{value}'"
            case "bool":
                return value
            case "date" | "time":
                return f"{dtype} '{value}'"
        return f"CAST({value} AS {dtype})"

    def _new(self, table: str, column: str) -> str:
        """Returns the value that an UPDATE sets: that of another row, or one computed from the row."""
        forms = [self._value(table, column)] * 2
        dtype = self._types[table][column]
        forms += [c for c, other in self._types[table].items() if other == dtype]
        if self.columns[table][column] == "int" or dtype == "DOUBLE":
            forms.append(f"CAST({column} % 5 + 1 AS {dtype})")
        if dtype == "BOOLEAN":
            forms.append(f"NOT {column}")
        return self._random.choice(forms)

    def _condition(self, table: str) -> str:
        column = self._random.choice([*self.columns[table], *self._keys[table]])
        value = self._value(table, column)
        return f"{column} {self._random.choice(('=', '<=>', '<=', '>'))} {value}"
