"""Random tables, views over them, and changes: for tests that compare a view with its query."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from random import Random
from typing import Any

from millpond import App
from millpond.query.transaction import Transaction

TABLES = """
CREATE TABLE a (id INT PRIMARY KEY, k INT, g STRING, n DECIMAL(10,2), f DOUBLE, d DATE);
CREATE TABLE b (id BIGINT PRIMARY KEY, k INT, g STRING, x INT);
CREATE TABLE log (k INT, g STRING, x INT);
CREATE TABLE c (id SMALLINT, k BIGINT, g STRING, x BIGINT, n DECIMAL(12,2), w DECIMAL(30,4), PRIMARY KEY (id, k));
"""
COLUMNS = {
    "a": {"id": "int", "k": "int", "g": "text", "n": "decimal", "f": "double", "d": "date"},
    "b": {"id": "int", "k": "int", "g": "text", "x": "int"},
    "log": {"k": "int", "g": "text", "x": "int"},
}
LARGE = {
    "c": {"id": "int", "k": "int", "g": "text", "x": "big", "n": "decimal", "w": "wide"},
}
LITERALS = {
    "int": "2",
    "text": "'y'",
    "decimal": "3",
    "double": "1.5D",
    "date": "DATE '2024-01-02'",
    "big": "4000000000",
    "wide": "10.5",
    "bool": "TRUE",
    "time": "TIMESTAMP '2024-01-02 10:00:00'",
}
AGGREGATES = {
    "int": (
        "SUM",
        "COUNT",
        "AVG",
        "MIN",
        "MAX",
        "COUNT_DISTINCT",
        "STDDEV_POP",
        "VARIANCE",
        "MEDIAN",
        "PERCENTILE",
        "SUM_FILTER",
        "SUM_DISTINCT",
    ),
    "decimal": ("SUM", "COUNT", "AVG", "MIN", "MAX", "COUNT_DISTINCT", "STDDEV", "MEDIAN", "PERCENTILE_CONT"),
    "double": ("SUM", "COUNT", "MIN", "MAX", "AVG", "STDDEV_POP", "VAR_POP", "MEDIAN", "PERCENTILE"),
    "text": ("COUNT", "MIN", "MAX", "COUNT_DISTINCT"),
    "date": ("COUNT", "MIN", "MAX"),
    "big": ("SUM", "COUNT", "AVG", "MIN", "MAX", "COUNT_DISTINCT", "SUM_DISTINCT"),
    "wide": ("SUM", "COUNT", "AVG", "MIN", "MAX", "COUNT_DISTINCT"),
    "bool": ("COUNT", "MIN", "MAX", "COUNT_DISTINCT", "BOOL_AND", "BOOL_OR"),
    "time": ("COUNT", "MIN", "MAX", "COUNT_DISTINCT"),
}
_DOUBLES = ("STDDEV", "STDDEV_POP", "VARIANCE", "VAR_POP", "MEDIAN", "PERCENTILE", "PERCENTILE_CONT")
_SETS = ("INTERSECT", "EXCEPT", "INTERSECT ALL", "EXCEPT ALL")
Relation = tuple[str, dict[str, str]]
"""A query, and the kinds of its columns."""


class Views:
    """Makes queries whose operators are nested at random. ``large`` ones also read the table with numbers that sums do
    not fit, and leave open which rows are the first. ``tables`` are read instead of those of ``TABLES``: the kinds of
    their columns.
    """

    def __init__(
        self, random: Random, *, large: bool = False, tables: dict[str, dict[str, str]] | None = None
    ):
        self.random = random
        self._large = large
        self._tables = tables or ({**COLUMNS, **LARGE} if large else COLUMNS)
        self._unions = tables or COLUMNS
        self._aliases = 0
        self.ties = False
        """Whether the query leaves open which rows are the first."""

    def query(self, depth: int = 3) -> str:
        return self.relation(depth)[0]

    def relation(self, depth: int) -> Relation:
        make = self.random.choice(
            (
                *(self._rows, self._group, self._join, self._join, self._distinct, self._union, self._semi),
                *(self._exists, self._exists, self._first, self._named, self._window, self._outer),
                *(self._scalar, self._scalar, self._tested, self._rollup, self._crossed),
                *(self._shared, self._shared),
            )
            if depth > 1
            else (self._rows, self._group)
        )
        return make(depth)

    def _alias(self) -> str:
        self._aliases += 1
        return f"r{self._aliases}"

    def _item(self, depth: int) -> tuple[str, str, dict[str, str]]:
        """Returns an item of FROM, its alias and its columns."""
        alias = self._alias()
        if depth <= 1 or self.random.random() < 0.5:
            table = self.random.choice(list(self._tables))
            return f"{table} AS {alias}", alias, self._tables[table]
        sql, columns = self.relation(depth - 1)
        return f"({sql}) AS {alias}", alias, columns

    def _condition(self, columns: dict[str, str], alias: str) -> str:
        name = self.random.choice(list(columns))
        kind, column = columns[name], f"{alias}.{name}"
        forms = [f"{column} > {LITERALS[kind]}", f"{column} IS NOT NULL", f"NOT {column} = {LITERALS[kind]}"]
        if kind == "int":
            forms += [f"{column} IN (1, 3)", f"{column} + 1 < 5", f"{column} % 2 = 0"]
        if kind == "text":
            forms.append(f"upper({column}) <> 'X'")
        return self.random.choice(forms)

    def _where(self, columns: dict[str, str], alias: str) -> str:
        if self.random.random() < 0.5:
            return ""
        word = self.random.choice((" AND ", " OR "))
        parts = [self._condition(columns, alias) for _ in range(self.random.randint(1, 2))]
        return f" WHERE {word.join(parts)}"

    def _outputs(self, columns: list[tuple[str, str]]) -> tuple[str, dict[str, str]]:
        """Returns a list of outputs of some columns, and their kinds."""
        chosen = self.random.sample(columns, self.random.randint(1, min(4, len(columns))))
        outputs, kinds = [], {}
        for i, (column, kind) in enumerate(chosen):
            form = self.random.random()
            if kind == "int" and form < 0.2:
                column = f"{column} + 1"
            elif kind == "int" and form < 0.3:
                column = f"coalesce({column}, 0)"
            elif kind == "text" and form < 0.2:
                column = f"concat({column}, '!')"
            outputs.append(f"{column} AS c{i}")
            kinds[f"c{i}"] = kind
        return ", ".join(outputs), kinds

    def _rows(self, depth: int) -> Relation:
        item, alias, columns = self._item(depth)
        outputs, kinds = self._outputs([(f"{alias}.{n}", k) for n, k in columns.items()])
        return f"SELECT {outputs} FROM {item}{self._where(columns, alias)}", kinds

    def _distinct(self, depth: int) -> Relation:
        sql, kinds = self._rows(depth)
        return sql.replace("SELECT", "SELECT DISTINCT", 1), kinds

    def _first(self, depth: int) -> Relation:
        """Returns the first rows in an order that leaves open only which of equal rows comes first."""
        sql, kinds = self.relation(depth - 1)
        alias = self._alias()
        order = [
            f"{n} {self.random.choice(('ASC', 'DESC', 'DESC NULLS FIRST', 'NULLS LAST'))}" for n in kinds
        ]
        self.random.shuffle(order)
        if self._large and len(order) > 1 and self.random.random() < 0.3:
            order, self.ties = order[:1], True
        limit = f"LIMIT {self.random.randint(1, 6)}" + self.random.choice(("", "", " OFFSET 2"))
        outputs = ", ".join(f"{alias}.{n} AS {n}" for n in kinds)
        return f"SELECT {outputs} FROM ({sql}) AS {alias} ORDER BY {', '.join(order)} {limit}", kinds

    def _named(self, depth: int) -> Relation:
        sql, kinds = self.relation(depth - 1)
        name, alias = self._alias(), self._alias()
        outputs, made = self._outputs([(f"{alias}.{n}", k) for n, k in kinds.items()])
        return f"WITH {name} AS ({sql}) SELECT {outputs} FROM {name} AS {alias}", made

    def _shared(self, depth: int) -> Relation:
        """Returns rows of a query of WITH that is read twice, or of one over two of it."""
        sql, kinds = self.relation(depth - 1)
        name, a, b = self._alias(), self._alias(), self._alias()
        x = self.random.choice([n for n, kind in kinds.items() if kind != "double"] or list(kinds)[:1])
        y = self.random.choice([n for n, kind in kinds.items() if kind == kinds[x]])
        ours, theirs = (
            [(f"{a}.{n}", k) for n, k in kinds.items()],
            [(f"{b}.{n}", k) for n, k in kinds.items()],
        )
        with_, equal = f"WITH {name} AS ({sql})", f"{a}.{x} = {b}.{y}"
        form = self.random.randrange(5)
        if form < 2:
            join = self.random.choice(("JOIN", "JOIN", "LEFT JOIN", "FULL JOIN"))
            outputs, made = self._outputs([*ours, *theirs])
            both = f"SELECT {outputs} FROM {name} AS {a} {join} {name} AS {b} ON {equal}"
            if form == 0:
                return f"{with_} {both}", made
            over, c = self._alias(), self._alias()
            where = self._where(made, c)
            outputs, made = self._outputs([(f"{c}.{n}", k) for n, k in made.items()])
            word = self.random.choice(("UNION ALL", "UNION", *_SETS))
            read = f"SELECT {outputs} FROM {over} AS {c}"
            return f"{with_}, {over} AS ({both}) {read} {word} {read}{where}", made
        outputs, made = self._outputs(ours)
        read = f"SELECT {outputs} FROM {name} AS {a}"
        condition = self.random.choice(
            (
                f"{a}.{x} IN (SELECT {b}.{y} FROM {name} AS {b}{self._where(kinds, b)})",
                f"NOT EXISTS (SELECT 1 FROM {name} AS {b} WHERE {equal} AND {self._condition(kinds, b)})",
                f"{a}.{x} >= (SELECT MAX({b}.{y}) FROM {name} AS {b})",
                f"(SELECT COUNT(*) FROM {name} AS {b} WHERE {equal}) > 1",
            )
        )
        return f"{with_} {read} WHERE {condition}", made

    def _exists(self, depth: int) -> Relation:
        item, a, ours = self._item(depth)
        other, b, theirs = self._item(depth)
        pairs = [(x, y) for x in ours for y in theirs if ours[x] == theirs[y] != "double"]
        if not pairs:
            return self._rows(depth)
        x, y = self.random.choice(pairs)
        more = f" AND {self._condition(theirs, b)}" if self.random.random() < 0.4 else ""
        if self.random.random() < 0.3 and len(pairs) > 1:
            x2, y2 = self.random.choice(pairs)
            more += f" AND {a}.{x2} {self.random.choice(('<', '<>', '='))} {b}.{y2}"
        if self.random.random() < 0.15:
            condition = f"{a}.{x} IN (SELECT {b}.{y} FROM {other} GROUP BY {b}.{y} HAVING COUNT(*) > 1)"
        elif self.random.random() < 0.3:
            condition = f"{a}.{x} IN (SELECT {b}.{y} FROM {other} WHERE TRUE{more})"
        else:
            word = self.random.choice(("EXISTS", "NOT EXISTS"))
            condition = f"{word} (SELECT 1 FROM {other} WHERE {b}.{y} = {a}.{x}{more})"
        columns = [(f"{a}.{n}", k) for n, k in ours.items()]
        where = self._where(ours, a)
        where = f"{where.replace('WHERE ', 'WHERE (')}) AND {condition}" if where else f" WHERE {condition}"
        if self.random.random() < 0.4:
            return self._grouped(item, columns, where)
        outputs, made = self._outputs(columns)
        return f"SELECT {outputs} FROM {item}{where}", made

    def _joined(self, depth: int, kinds: tuple[str, ...]) -> tuple[str, list[tuple[str, str]]] | None:
        left, a, ours = self._item(depth)
        right, b, theirs = self._item(depth)
        pairs = [(x, y) for x in ours for y in theirs if ours[x] == theirs[y] != "double"]
        if not pairs:
            return None
        x, y = self.random.choice(pairs)
        kind = self.random.choice(kinds)
        on = f"{a}.{x} = {b}.{y}"
        if self.random.random() < 0.3:
            on += f" AND {self._condition(theirs, b)}"
            if not kind and self.random.random() < 0.5:
                on = f"({on}) OR ({a}.{x} = {b}.{y} AND {self._condition(ours, a)})"
        columns = [(f"{a}.{n}", k) for n, k in ours.items()]
        if "SEMI" not in kind and "ANTI" not in kind:
            columns += [(f"{b}.{n}", k) for n, k in theirs.items()]
        return f"{left} {kind} JOIN {right} ON {on}", columns

    def _join(self, depth: int) -> Relation:
        return self._selected(depth, ("", "", "LEFT"))

    def _outer(self, depth: int) -> Relation:
        return self._selected(depth, ("RIGHT", "FULL"))

    def _window(self, depth: int) -> Relation:
        item, alias, columns = self._item(depth)
        keys = [n for n, kind in columns.items() if kind != "double"]
        if not keys:
            return self._rows(depth)
        key, other = self.random.choice(keys), self.random.choice(list(columns))
        forms = [
            f"RANK() OVER (PARTITION BY {alias}.{key} ORDER BY {alias}.{other})",
            f"COUNT({alias}.{other}) OVER (PARTITION BY {alias}.{key})",
            f"DENSE_RANK() OVER (ORDER BY {alias}.{other} DESC)",
            f"COUNT({alias}.{other}) OVER (ORDER BY {alias}.{key})",
            "COUNT(*) OVER ()",
        ]
        if self.random.random() < 0.3:
            call = self.random.choice(
                ("RANK() OVER (ORDER BY COUNT(*))", f"SUM(COUNT(*)) OVER (ORDER BY {alias}.{key})")
            )
            outputs = f"{alias}.{key} AS c0, COUNT(*) AS c1, CAST({call} AS INT) AS w"
            where = self._where(columns, alias)
            kinds = {"c0": columns[key], "c1": "int", "w": "int"}
            return f"SELECT {outputs} FROM {item}{where} GROUP BY {alias}.{key}", kinds
        call = self.random.choice(forms)
        outputs, kinds = self._outputs([(f"{alias}.{n}", k) for n, k in columns.items()])
        kinds = {**kinds, "w": "int"}
        where = self._where(columns, alias)
        if self.random.random() < 0.3:
            where += f" QUALIFY {forms[0]} < 3"
        return f"SELECT {outputs}, CAST({call} AS INT) AS w FROM {item}{where}", kinds

    def _scalar(self, depth: int) -> Relation:
        """Returns rows with the value of a scalar subquery, as an output or in a condition."""
        item, a, ours = self._item(depth)
        other, b, theirs = self._item(depth)
        kinds = ("int", "decimal", "date", "text", "wide")
        y = self.random.choice([n for n, kind in theirs.items() if kind in kinds] or list(theirs)[:1])
        call = self.random.choice((f"MIN({b}.{y})", f"MAX({b}.{y})", "COUNT(*)", f"COUNT(DISTINCT {b}.{y})"))
        kind = "int" if call.startswith("COUNT") else theirs[y]
        numbers = [n for n, k in theirs.items() if k == "int"]
        if numbers and self.random.random() < 0.15:
            call, kind = f"STDDEV_POP({b}.{self.random.choice(numbers)})", "double"
        where = ""
        pairs = [(x, y) for x in ours for y in theirs if ours[x] == theirs[y] != "double"]
        if pairs and self.random.random() < 0.6:
            x, key = self.random.choice(pairs)
            more = f" AND {self._condition(theirs, b)}" if self.random.random() < 0.3 else ""
            where = f" WHERE {b}.{key} = {a}.{x}{more}"
        elif self.random.random() < 0.5:
            where = self._where(theirs, b)
        query = f"(SELECT {call} FROM {other}{where})"
        alike = [n for n, k in ours.items() if k == kind]
        columns = [(f"{a}.{n}", k) for n, k in ours.items()]
        if alike and self.random.random() < 0.6:
            compared = f"{a}.{self.random.choice(alike)} {self.random.choice(('=', '>', '<='))} {query}"
            if self.random.random() < 0.3:
                return self._grouped(item, columns, f" WHERE {compared}")
            outputs, made = self._outputs(columns)
            return f"SELECT {outputs} FROM {item} WHERE {compared}", made
        outputs, made = self._outputs(columns)
        return f"SELECT {outputs}, {query} AS s FROM {item}{self._where(ours, a)}", {**made, "s": kind}

    def _tested(self, depth: int) -> Relation:
        """Returns rows by NOT IN, or by EXISTS and IN inside of OR."""
        item, a, ours = self._item(depth)
        other, b, theirs = self._item(depth)
        pairs = [(x, y) for x in ours for y in theirs if ours[x] == theirs[y] != "double"]
        if not pairs:
            return self._rows(depth)
        (x, y), (x2, y2) = self.random.choice(pairs), self.random.choice(pairs)
        some = self._condition(ours, a)
        where = self._where(theirs, b)
        condition = self.random.choice(
            (
                f"{a}.{x} NOT IN (SELECT {b}.{y} FROM {other}{where})",
                f"{a}.{x} NOT IN (SELECT {b}.{y} FROM {other} WHERE {b}.{y} IS NOT NULL)",
                f"{a}.{x} NOT IN (SELECT {b}.{y} FROM {other} WHERE {b}.{y2} = {a}.{x2})",
                f"({some} OR EXISTS (SELECT 1 FROM {other} WHERE {b}.{y} = {a}.{x}))",
                f"({some} OR {a}.{x} IN (SELECT {b}.{y} FROM {other}{where}))",
                f"({some} AND EXISTS (SELECT 1 FROM {other}{where}))",
            )
        )
        outputs, made = self._outputs([(f"{a}.{n}", k) for n, k in ours.items()])
        return f"SELECT {outputs} FROM {item} WHERE {condition}", made

    def _rollup(self, depth: int) -> Relation:
        item, alias, columns = self._item(depth)
        keys = [n for n, kind in columns.items() if kind in ("int", "text", "date")]
        if len(keys) < 2:
            return self._group(depth)
        one, two = self.random.sample(keys, 2)
        a, b = f"{alias}.{one}", f"{alias}.{two}"
        form = self.random.choice(
            (f"ROLLUP ({a}, {b})", f"CUBE ({a}, {b})", f"GROUPING SETS (({a}), ({b}), ())")
        )
        where = self._where(columns, alias)
        call = self.random.choice(("COUNT(*)", f"GROUPING({a})", f"GROUPING_ID({a}, {b})", "GROUPING_ID()"))
        outputs = f"{a} AS c0, {b} AS c1, CAST({call} AS INT) AS c2"
        kinds = {"c0": columns[one], "c1": columns[two], "c2": "int"}
        having = self.random.choice(("", "", f" HAVING GROUPING({b}) = 0 AND COUNT(*) > 1"))
        return f"SELECT {outputs} FROM {item}{where} GROUP BY {form}{having}", kinds

    def _crossed(self, depth: int) -> Relation:
        """Returns a join without an equality of columns."""
        left, a, ours = self._item(1)
        right, b, theirs = self._item(1)
        pairs = [(x, y) for x in ours for y in theirs if ours[x] == theirs[y] == "int"]
        if not pairs:
            return self._rows(depth)
        x, y = self.random.choice(pairs)
        kind = self.random.choice(("JOIN", "LEFT JOIN"))
        on = f"{a}.{x} {self.random.choice(('<', '>', '<>'))} {b}.{y} AND {self._condition(theirs, b)}"
        columns = [(f"{a}.{n}", k) for n, k in ours.items()] + [(f"{b}.{n}", k) for n, k in theirs.items()]
        outputs, made = self._outputs(columns)
        return f"SELECT {outputs} FROM {left} {kind} {right} ON {on}", made

    def _semi(self, depth: int) -> Relation:
        return self._selected(depth, ("LEFT SEMI", "LEFT ANTI"))

    def _selected(self, depth: int, kinds: tuple[str, ...]) -> Relation:
        joined = self._joined(depth, kinds)
        if joined is None:
            return self._rows(depth)
        item, columns = joined
        if self.random.random() < 0.4:
            return self._grouped(item, columns, "")
        outputs, made = self._outputs(columns)
        return f"SELECT {outputs} FROM {item}", made

    def _union(self, depth: int) -> Relation:
        word = self.random.choice(("UNION ALL", "UNION ALL", "UNION", *_SETS))
        one, two = (self.random.choice(list(self._unions)) for _ in range(2))
        ours, theirs = self._unions[one], self._unions[two]
        pairs = [(x, y) for x in ours for y in theirs if ours[x] == theirs[y]]
        if not pairs:
            return self._rows(depth)
        chosen = self.random.sample(pairs, min(len(pairs), 2))
        outputs = ", ".join(f"{one}.{x} AS c{i}" for i, (x, _) in enumerate(chosen))
        others = ", ".join(f"{two}.{y}" for _, y in chosen)
        return (
            f"SELECT {outputs} FROM {one}{self._where(ours, one)}"
            f" {word} SELECT {others} FROM {two}{self._where(theirs, two)}",
            {f"c{i}": ours[x] for i, (x, _) in enumerate(chosen)},
        )

    def _group(self, depth: int) -> Relation:
        item, alias, columns = self._item(depth)
        return self._grouped(
            item, [(f"{alias}.{n}", k) for n, k in columns.items()], self._where(columns, alias)
        )

    def _grouped(self, item: str, columns: list[tuple[str, str]], where: str) -> Relation:
        keys = self.random.sample(
            [c for c, kind in columns if kind != "double"] or ["1"], self.random.randint(0, 1)
        )
        keys = [k for k in keys if k != "1"]
        kinds = dict(columns)
        outputs = [f"{key} AS c{i}" for i, key in enumerate(keys)]
        made = {f"c{i}": kinds[key] for i, key in enumerate(keys)}
        for _ in range(self.random.randint(1, 3)):
            column, kind = self.random.choice(columns)
            name = self.random.choice(AGGREGATES[kind])
            call = f"{name}({column})"
            if name == "COUNT_DISTINCT":
                call = f"COUNT(DISTINCT {column})"
            elif name == "SUM_DISTINCT":
                call = f"SUM(DISTINCT {column})"
            elif name == "SUM_FILTER":
                call = f"SUM({column}) FILTER (WHERE {column} > 1)"
            elif name == "PERCENTILE":
                call = f"PERCENTILE({column}, 0.3)"
            elif name == "PERCENTILE_CONT":
                call = f"PERCENTILE_CONT(0.75) WITHIN GROUP (ORDER BY {column})"
            elif name == "COUNT" and self.random.random() < 0.5:
                call = self.random.choice(("COUNT(*)", f"COUNT(*) FILTER (WHERE {column} IS NULL)"))
            kind = "int" if name.startswith("COUNT") else "double" if name in _DOUBLES else kind
            kind = "double" if name == "AVG" and kind in ("int", "big") else kind
            kind = "big" if kind == "int" and name.startswith("SUM") else kind
            # Types become wider: only what is compared with itself keeps its kind.
            at = f"c{len(made)}"
            wanted = {"decimal": "DECIMAL(10,2)", "wide": "DECIMAL(38,4)"}.get(kind)
            if self._large and self.random.random() < 0.1:
                call, kind, wanted = self._chosen(columns, column)
            outputs.append(f"{call} AS {at}" if wanted is None else f"CAST({call} AS {wanted}) AS {at}")
            made[at] = kind
        if keys and kinds[keys[0]] in ("int", "text") and self.random.random() < 0.2:
            form = f"{keys[0]} % 2" if kinds[keys[0]] == "int" else f"concat({keys[0]}, '?')"
            outputs[0], keys = f"{form} AS c0", [form]
        group = f" GROUP BY {', '.join(keys)}" if keys else ""
        having = " HAVING COUNT(*) > 1" if keys and self.random.random() < 0.3 else ""
        return f"SELECT {', '.join(outputs)} FROM {item}{where}{group}{having}", made

    def _chosen(self, columns: list[tuple[str, str]], column: str) -> tuple[str, str, str | None]:
        """Returns an aggregate that leaves open which value it chooses, its kind, and the type that it is made."""
        self.ties = True
        other, texts = self.random.choice(columns)[0], [c for c, kind in columns if kind == "text"]
        kind = dict(columns)[column]
        if texts and self.random.random() < 0.4:
            text, distinct = self.random.choice(texts), self.random.random() < 0.3
            value, order = (f"DISTINCT {text}", text) if distinct else (text, other)
            return f"LISTAGG({value}, ',') WITHIN GROUP (ORDER BY {order})", "text", None
        form = self.random.choice(
            (f"ANY_VALUE({column})", f"MIN_BY({column}, {other})", f"MAX_BY({column}, {other})")
        )
        return form, kind, None


def change(tx: Transaction | App, random: Random, *, large: bool = False) -> None:
    """Makes one random change of a table; ``large`` also of the one with numbers that sums do not fit."""

    def key() -> int:
        return random.randrange(12)

    def small() -> int | None:
        return random.choice((None, 0, 1, 2, 3))

    def text() -> str | None:
        return random.choice((None, "x", "y", "z"))

    match random.randrange(20 if large else 16):
        case 0 | 1 | 2 | 3:
            for _ in range(random.randint(1, 3)):
                day = random.choice((None, "2024-01-01", "2024-01-03"))
                values = [key(), small(), text(), random.randrange(20) / 4, random.randrange(8) / 4, day]
                tx.sql("INSERT INTO a VALUES (?, ?, ?, ?, ?, CAST(? AS DATE))", values)
        case 4 | 5 | 6:
            for _ in range(random.randint(1, 3)):
                tx.sql("INSERT INTO b VALUES (?, ?, ?, ?)", [key(), small(), text(), small()])
        case 7 | 8:
            for _ in range(random.randint(1, 3)):
                tx.sql("INSERT INTO log VALUES (?, ?, ?)", [small(), text(), small()])
        case 9:
            tx.sql(f"DELETE FROM {random.choice('ab')} WHERE id = ?", [key()])
        case 10:
            tx.sql("DELETE FROM log WHERE x = ?", [random.randrange(4)])
        case 11:
            tx.sql("UPDATE a SET g = ?, k = k + 1 WHERE id % 3 = 0", [text()])
        case 12:
            tx.sql("UPDATE b SET k = ? WHERE g <=> ?", [small(), text()])
        case 13:
            tx.sql("UPDATE log SET x = x + 1, g = 'x' WHERE k = 1")
        case 14:
            columns = random.choice(("n = n + 1, f = f * 2", "f = f + 1", "n = n + 1"))
            tx.sql(f"UPDATE a SET {columns} WHERE {random.choice(('TRUE', 'id % 2 = 0'))}")
        case 15:
            table = random.choice([*COLUMNS, *(LARGE if large else ())])
            tx.sql(f"DELETE FROM {table} WHERE k > 0 OR g = 'z'")
        case 16 | 17 | 18:
            for _ in range(random.randint(1, 3)):
                number = random.choice((None, 5, 1 << 52, -(1 << 53) - 1, 1 << 61))
                wide = random.choice(
                    (None, "0.5", "-12345678901234567890.1234", "99999999999999999999999999.9999")
                )
                values = [key(), random.randrange(4), text(), number, random.randrange(8) / 4, wide]
                tx.sql(
                    "INSERT INTO c VALUES (?, ?, ?, ?, CAST(? AS DECIMAL(12,2)), CAST(? AS DECIMAL(30,4)))",
                    values,
                )
        case 19:
            tx.sql("UPDATE c SET x = x - 1, w = w / 2 WHERE id % 2 = 0")


def bag(app: App, sql: str) -> Counter[tuple[Any, ...]]:
    """Returns the rows of a query as a multiset; numbers with a floating point to 9 digits."""
    return counted(app.sql(sql).rows())


def counted(rows: Iterable[Mapping[str, Any]]) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(_digits(v) if isinstance(v, float) else v for v in row.values()) for row in rows)


def _digits(value: float) -> float | str:
    """Returns a number that is compared: to 9 digits, and NaN equals itself."""
    return "NaN" if value != value else float(f"{value:.9g}")
