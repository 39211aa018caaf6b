"""Expressions over the whole language, made up from a seed.

An expression is a tree of forms (``{} + {}``, ``upper({})``) over columns and literals. Most calls have arguments of
the kinds that the function takes; some have others, one too many or one too few: what Spark refuses must be refused.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.oracle.values import COLUMNS, KINDS, POOLS, TYPES, VALUES

WRONG_TYPE, WRONG_NUMBER = 0.05, 0.02


@dataclass(frozen=True)
class Node:
    """A form with its parts; one without parts is a column or a literal."""

    form: str
    parts: tuple[Node, ...] = ()

    def __str__(self) -> str:
        return self.form.format(*self.parts) if self.parts else self.form

    def walk(self) -> Iterator[Node]:
        yield self
        for part in self.parts:
            yield from part.walk()


@dataclass(frozen=True)
class Function:
    """How a function is called: its arguments, how many of them must be there, whether the last may be repeated."""

    result: str
    name: str
    arguments: tuple[str, ...]
    fewest: int
    more: bool


@cache
def functions(file: str) -> tuple[Function, ...]:
    """The calls that a file beside this one lists."""
    text = (Path(__file__).parent / f"{file}.txt").read_text(encoding="utf-8")
    return tuple(_function(line) for line in text.splitlines() if line.strip() and not line.startswith("#"))


def _function(line: str) -> Function:
    result, name, *rest = line.split()
    more = bool(rest) and rest[-1] == "*"
    rest = rest[:-1] if more else rest
    fewest = rest.index("?") if "?" in rest else len(rest)
    return Function(result, name, tuple(a for a in rest if a != "?"), fewest, more)


# Forms with words or symbols, by the kind of what they give.
FORMS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    *(("n", f"({{}} {op} {{}})", ("n", "n")) for op in ("+", "-", "*", "/", "%")),
    ("l", "({} DIV {})", ("i", "i")),
    ("l", "({} DIV {})", ("n", "n")),
    ("n", "(- {})", ("nv",)),
    ("n", "(+ {})", ("nv",)),
    *(("i", f"({{}} {op} {{}})", ("i", "i")) for op in ("&", "|", "^", "<<", ">>", ">>>")),
    ("i", "(~ {})", ("i",)),
    ("n", "{} + {} * {} - {}", ("n", "n", "n", "n")),
    ("i", "{} + {} << {} & {}", ("i", "i", "<small>", "i")),
    ("i", "{} | {} ^ {} & {} >> 1", ("i", "i", "i", "i")),
    ("i", "- {} % {} & ~ {}", ("i", "i", "i")),
    ("b", "{} = {} AND NOT {} < {} OR {}", ("n", "n", "n", "n", "b")),
    ("b", "NOT {} IS NULL AND {}", ("v", "b")),
    ("b", "{} & {} = {}", ("i", "i", "i")),
    ("s", "{} || {} || {}", ("s", "s", "s")),
    ("s", "({} || {})", ("v", "=1")),
    *(("b", f"({{}} {op} {{}})", ("n", "n")) for op in ("=", "<>", "<", "<=", ">", ">=", "<=>", "!=", "==")),
    *(("b", f"({{}} {op} {{}})", ("v", "=1")) for op in ("=", "<>", "<", "<=", ">", ">=", "<=>")),
    *(("b", f"({{}} {op} {{}})", ("s", "v")) for op in ("=", "<", "<=>")),
    *(("b", f"({{}} {op} {{}})", ("t", "t")) for op in ("=", "<", ">=")),
    ("b", "({} AND {})", ("b", "b")),
    ("b", "({} OR {})", ("b", "b")),
    ("b", "(NOT {})", ("b",)),
    ("b", "(! {})", ("b",)),
    *(("b", f"({{}} {word})", ("v",)) for word in ("IS NULL", "IS NOT NULL")),
    *(("b", f"({{}} {word})", ("b",)) for word in ("IS TRUE", "IS NOT FALSE", "IS UNKNOWN", "IS NOT UNKNOWN")),
    ("b", "({} IS DISTINCT FROM {})", ("v", "=1")),
    ("b", "({} IS NOT DISTINCT FROM {})", ("v", "=1")),
    ("b", "({} BETWEEN {} AND {})", ("n", "n", "n")),
    ("b", "({} NOT BETWEEN {} AND {})", ("v", "=1", "=1")),
    ("b", "({} IN ({}, {}))", ("n", "n", "n")),
    ("b", "({} NOT IN ({}, {}, {}))", ("v", "=1", "=1", "=1")),
    *(("b", f"({{}} {word} {{}})", ("s", "<like>")) for word in ("LIKE", "NOT LIKE", "ILIKE", "NOT ILIKE")),
    ("b", "({} LIKE {} ESCAPE '!')", ("s", "<like>")),
    ("b", "({} LIKE {})", ("s", "s")),
    ("b", "({} LIKE ANY ({}, {}))", ("s", "<like>", "<like>")),
    ("b", "({} LIKE ALL ({}, {}))", ("s", "<like>", "<like>")),
    *(("b", f"({{}} {word} {{}})", ("s", "<regex>")) for word in ("RLIKE", "REGEXP", "NOT RLIKE")),
    ("v", "CASE WHEN {} THEN {} ELSE {} END", ("b", "v", "=2")),
    ("n", "CASE WHEN {} THEN {} WHEN {} THEN {} END", ("b", "n", "b", "n")),
    ("v", "CASE {} WHEN {} THEN {} WHEN {} THEN {} ELSE {} END", ("n", "n", "v", "n", "=3", "=3")),
    ("v", "{}[{}]", ("a", "<place>")),
    ("v", "{}[{}]", ("m", "<place>")),
    ("i32", "{}.p", ("r",)),
    ("s", "{}.q", ("r",)),
    ("v", "{}.k", ("ae",)),
    *(("n", f"EXTRACT({u} FROM {{}})", ("t",)) for u in ("YEAR", "MONTH", "DAY", "HOUR", "SECOND", "WEEK", "DOW")),
    *(("n", f"EXTRACT({u} FROM {{}})", ("iv",)) for u in ("DAY", "HOUR", "SECOND", "YEAR")),
    *(("t", f"({{}} {op} {{}})", ("t", "<span>")) for op in ("+", "-")),
    ("t", "({} + {})", ("<span>", "t")),
    ("dt", "({} + {})", ("dt", "c")),
    ("dt", "({} - {})", ("dt", "c")),
    ("iv", "({} - {})", ("t", "t")),
    ("t", "({} + {})", ("t", "iv")),
    ("t", "({} - {})", ("t", "iv")),
    ("iv", "({} + {})", ("iv", "iv")),
    ("iv", "({} * {})", ("iv", "n")),
    ("iv", "({} / {})", ("iv", "n")),
    ("iv", "(- {})", ("iv",)),
    *(("t", f"{name}({unit}, {{}}, {{}})", ("c", "t")) for name in ("DATEADD", "TIMESTAMPADD")
      for unit in ("DAY", "MONTH", "HOUR", "YEAR", "WEEK", "MICROSECOND", "QUARTER")),
    *(("l", f"{name}({unit}, {{}}, {{}})", ("t", "t")) for name in ("DATEDIFF", "TIMESTAMPDIFF")
      for unit in ("DAY", "MONTH", "HOUR", "YEAR", "WEEK", "SECOND", "QUARTER")),
    *(("s", f"TRIM({side} {{}} FROM {{}})", ("s", "s")) for side in ("BOTH", "LEADING", "TRAILING")),
    ("s", "TRIM({} FROM {})", ("s", "s")),
    ("s", "TRIM(BOTH FROM {})", ("s",)),
    ("s", "SUBSTRING({} FROM {} FOR {})", ("s", "i", "i")),
    ("s", "SUBSTRING({} FROM {})", ("s", "i")),
    ("s", "SUBSTR({}, {}, {})", ("sx", "<place>", "<place>")),
    ("s", "OVERLAY({} PLACING {} FROM {} FOR {})", ("s", "s", "<place>", "<place>")),
    ("i", "POSITION({} IN {})", ("s", "s")),
    ("s", "'ab' 'cd' \"ef\"", ()),
    ("s", "r'a\\n' || R\"b\\\\\" || '\\101\\u00e9\\%\\q\\Z' || \"x\"\"y\" || 'x''y'", ()),
    *(("t", f"{word}({{}} AS {dtype})", ("<when>",)) for word in ("CAST", "TRY_CAST")
      for dtype in ("DATE", "TIMESTAMP", "TIMESTAMP_NTZ")),
    *(("t", f"{dtype} {{}}", ("<when>",)) for dtype in ("DATE", "TIMESTAMP", "TIMESTAMP_NTZ", "TIMESTAMP_LTZ")),
    *(("t", f"{name}({{}})", ("<when>",)) for name in ("to_date", "to_timestamp", "try_to_timestamp")),
    *(("b", f"({{}} {op} {{}})", ("t", "<when>")) for op in ("=", "<", ">=")),
    *(("n", f"{word}({{}} AS {dtype})", ("<written>",)) for word in ("CAST", "TRY_CAST") for dtype in
      ("TINYINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(10,2)", "DECIMAL(38,0)", "BOOLEAN")),
    *(("b", f"({{}} {op} {{}})", ("n", "<written>")) for op in ("=", "<", "+", "*", "/")),
    ("i32", "struct(t.*).i32_1", ()),
    ("v", "coalesce(t.* EXCEPT ({}))", ("<most>",)),
    ("n", "aa_1[{}][{}]", ("<place>", "<place>")),
    ("v", "struct({} AS x, {}).col2", ("v", "v")),
    ("b", "({} IS NOT TRUE)", ("b",)),
    ("iv", "({} DIV {})", ("iv", "iv")),
    ("n", "{}", ("<number>",)),
)  # fmt: skip
SPANS = (
    *("INTERVAL '1' DAY", "INTERVAL 3 MONTHS", "INTERVAL '1-2' YEAR TO MONTH", "INTERVAL -7 HOURS"),
    *("INTERVAL '1 02:03:04' DAY TO SECOND", "INTERVAL 1 DAY 2 HOURS", "INTERVAL '1.5' SECOND", "INTERVAL 2 WEEKS"),
    *("INTERVAL '-1' YEAR", "INTERVAL 5 MICROSECONDS", "INTERVAL '36:00' HOUR TO MINUTE", "INTERVAL '1 month'"),
)  # fmt: skip
NUMBERS = (
    *("1Y", "-128Y", "3S", "5L", "1.5F", "2.5D", "1.50BD", "1e3", "-1E-2", ".5", "5.", "2147483648", "007", "1e400D"),
    *("9223372036854775808", "0.00", "-2147483648", "-9223372036854775808", "1.0e2BD", "1e-7", "00.10"),
)  # fmt: skip
POOLS_OF = {
    **POOLS,
    "span": SPANS,
    "number": (*POOLS["number"], *NUMBERS),
    "small": ("0", "1", "3", "-1", "40"),
    "most": (", ".join(("k", "g", *(c for c in COLUMNS if not c.startswith(("i32_", "d_"))))),),
}
ORDERED = (
    ("percentile_cont({}) WITHIN GROUP (ORDER BY {})", ("<share>", "n")),
    ("percentile_disc({}) WITHIN GROUP (ORDER BY {} DESC)", ("<share>", "n")),
    ("percentile_disc({}) WITHIN GROUP (ORDER BY {})", ("<share>", "nv")),
    ("percentile_cont({}) WITHIN GROUP (ORDER BY {}) FILTER (WHERE {})", ("<share>", "nv", "b")),
    ("listagg({0}, {1}) WITHIN GROUP (ORDER BY {0} DESC)", ("sx", "<separator>")),
    ("listagg({0}, {1}) WITHIN GROUP (ORDER BY {2}, k)", ("s", "<separator>", "n")),
    ("string_agg(DISTINCT {0}, {1}) WITHIN GROUP (ORDER BY {0})", ("s", "<separator>")),
    ("mode() WITHIN GROUP (ORDER BY {} DESC)", ("v",)),
    ("count(*)", ()),
    ("count(*) FILTER (WHERE {})", ("b",)),
    ("count(DISTINCT {}, {})", ("v", "v")),
    ("sum({}) FILTER (WHERE {} > 0)", ("n", "n")),
)  # fmt: skip
"""Aggregates with words between their arguments."""
AROUND = (
    "({} + {})",
    "({} = {})",
    "coalesce({}, {})",
    "concat({}, {})",
    "struct({}, {}, g)",
    "({} / g + {})",
)
COUNTS = {
    "repeat": (1,),
    "space": (0,),
    "lpad": (1,),
    "rpad": (1,),
    "array_repeat": (1,),
    "sequence": (0, 1, 2),
}
"""Arguments that say how long the result is: they are kept small, as it would take gigabytes."""
_LARGE = re.compile(r"(i32|l)_\d|(CAST\()?-?\d{3}")
UNORDERED = ("listagg(", "string_agg(", "first", "last", "any_value", "mode(", "max_by", "min_by")
"""Of distinct values these take them in an order that is open."""
_LITERALS = {"dt": "DATE {}", "ts": "TIMESTAMP {}", "tn": "TIMESTAMP_NTZ {}"}
CAST_TYPES = (
    *TYPES.values(), "VARCHAR(3)", "CHAR(4)", "DECIMAL", "DECIMAL(4,1)", "DECIMAL(38,37)", "INTERVAL DAY", "LONG",
    "ARRAY<STRING>", "ARRAY<BIGINT>", "MAP<STRING,STRING>", "STRUCT<p:BIGINT,q:STRING>", "VOID",
)  # fmt: skip


class Generator:
    """Makes expressions; the same seed makes the same ones."""

    def __init__(self, seed: int):
        self.random = random.Random(seed)
        self.calls = functions("functions")
        self.by_result: dict[str, list[Function]] = {}
        self.forms: dict[str, list[tuple[str, tuple[str, ...]]]] = {}
        for call in self.calls:
            for dtype in KINDS[call.result]:
                self.by_result.setdefault(dtype, []).append(call)
        for kind, form, parts in FORMS:
            for dtype in KINDS[kind]:
                self.forms.setdefault(dtype, []).append((form, parts))

    def expressions(self, count: int) -> list[Node]:
        """So many of them, no two the same."""
        found: dict[Node, None] = {}
        while len(found) < count:
            found.setdefault(self.expression())
        return list(found)

    def expression(self) -> Node:
        """One expression. Every function and form comes in its turn, so that none is left out."""
        chance = self.random.random()
        if chance < 0.55:
            return self.call(self.random.choice(self.calls), self.depth())
        if chance < 0.85:
            _, form, parts = self.random.choice(FORMS)
            return self.form(form, parts, self.depth())
        return self.cast(self.random.choice(list(TYPES)), self.depth())

    def aggregates(self, count: int) -> list[Node]:
        """So many aggregates, no two the same."""
        found: dict[Node, None] = {}
        while len(found) < count:
            found.setdefault(self.aggregate())
        return list(found)

    def aggregate(self) -> Node:
        """An aggregate, some with DISTINCT, FILTER or an order, some in an expression."""
        chance = self.random.random()
        if chance < 0.15:
            return self.form(*self.random.choice(ORDERED), 0)
        if chance < 0.25:
            return Node(self.random.choice(AROUND), (self.aggregate(), self.aggregate()))
        made = self.call(self.random.choice(functions("aggregates")), self.random.choice((0, 0, 0, 1)))
        if (
            made.form.startswith(("min_by(", "max_by("))
            and len(made.parts) == 2
            and not columns_of(made.parts[1])
        ):
            # Of rows that are all the same by it, any would be right.
            made = Node(made.form, (made.parts[0], Node("k")))
        if chance < 0.35 and made.parts and not made.form.startswith(UNORDERED):
            return Node(made.form.replace("(", "(DISTINCT ", 1), made.parts)
        if chance < 0.5:
            return Node("{} FILTER (WHERE {})", (made, self.value("b", 1)))
        return made

    def depth(self) -> int:
        return self.random.choice((0, 0, 0, 1, 1, 2))

    def value(self, dtype: str, depth: int) -> Node:
        """An expression that is, for the most part, of a type."""
        if depth <= 0 or self.random.random() < 0.35:
            return self.leaf(dtype)
        chance = self.random.random()
        if chance < 0.2:
            return Node(
                f"CAST({{}} AS {TYPES[dtype]})", (self.value(self.random.choice(list(TYPES)), depth - 1),)
            )
        if chance < 0.6 and dtype in self.forms:
            form, parts = self.random.choice(self.forms[dtype])
            return self.form(form, parts, depth - 1)
        if dtype in self.by_result:
            return self.call(self.random.choice(self.by_result[dtype]), depth - 1)
        return self.leaf(dtype)

    def leaf(self, dtype: str) -> Node:
        chance = self.random.random()
        if chance < 0.7:
            return Node(f"{dtype}_{self.random.choice((1, 2))}")
        if chance < 0.73:
            return Node("NULL")
        return Node(self.literal(dtype))

    def literal(self, dtype: str) -> str:
        """A value of the type, written out; most are of the type by themselves, the others are cast to it."""
        text = self.random.choice(VALUES[dtype])
        if text == "NULL":
            return f"CAST(NULL AS {TYPES[dtype]})"
        if dtype in _LITERALS:
            return _LITERALS[dtype].format(text)
        if dtype in ("s", "b", "x", "i32", "iv", "ai", "as", "m", "r", "ad") or self.random.random() < 0.3:
            return text
        return f"CAST({text} AS {TYPES[dtype]})"

    def cast(self, dtype: str, depth: int) -> Node:
        word = self.random.choice(
            ("CAST({{}} AS {})", "CAST({{}} AS {})", "TRY_CAST({{}} AS {})", "({{}}::{})")
        )
        return Node(word.format(self.random.choice(CAST_TYPES)), (self.value(dtype, depth),))

    def call(self, call: Function, depth: int) -> Node:
        count = self.random.randint(call.fewest, len(call.arguments))
        kinds = list(call.arguments[:count])
        if call.more:
            kinds += [kinds[-1]] * self.random.choice((0, 0, 1, 2))
        if self.random.random() < WRONG_NUMBER:
            kinds = kinds[:-1] if self.random.random() < 0.5 else [*kinds, "v"]
        counts = COUNTS.get(call.name, ())
        made = self.parts(tuple(kinds), depth)
        parts = tuple(_small(p) if i in counts else p for i, p in enumerate(made))
        return Node(f"{call.name}({', '.join('{}' for _ in parts)})", parts)

    def form(self, form: str, kinds: tuple[str, ...], depth: int) -> Node:
        return Node(form, self.parts(kinds, depth))

    def parts(self, kinds: tuple[str, ...], depth: int) -> tuple[Node, ...]:
        """One expression for each kind. ``=1`` is of the type of the first, ``e`` of the elements of the first."""
        chosen: list[str] = []
        made: list[Node] = []
        for kind in kinds:
            if kind.startswith(":"):
                chosen.append("s")
                made.append(Node(kind[1:]))
                continue
            if kind.startswith("<"):
                chosen.append("s")
                pool = POOLS_OF[kind[1:-1]]
                odd = self.random.random() < 0.05 and len(pool) > 1 and "->" not in pool[0]
                made.append(self.value("s", 0) if odd else Node(self.random.choice(pool)))
                continue
            if kind.startswith("="):
                dtype = chosen[int(kind[1:]) - 1]
            elif kind == "e":
                dtype = {"ai": "i32", "as": "s", "ad": "d", "aa": "ai"}.get(chosen[0], "i32")
            else:
                dtype = self.random.choice(KINDS[kind])
            if self.random.random() < WRONG_TYPE:
                dtype = self.random.choice(list(TYPES))
            chosen.append(dtype)
            made.append(self.value(dtype, depth))
        return tuple(made)


def _small(count: Node) -> Node:
    """A count that is far from the ends of its type; one that is so as it stands is left alone."""
    return count if not count.parts and not _LARGE.match(count.form) else Node("({} % 64)", (count,))


def columns_of(node: Node) -> set[str]:
    """The columns that an expression reads."""
    return {n.form for n in node.walk() if not n.parts and n.form in COLUMNS}
