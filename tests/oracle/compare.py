"""Both sides side by side: what they say of the same expressions, and where that differs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tests.oracle.cells import RAISED, Refused, same
from tests.oracle.differences import explain
from tests.oracle.our_side import FOREIGN, Ours, OurSide
from tests.oracle.spark_side import TOGETHER, Analysed, SparkSide

_UNORDERED = re.compile(r"collect_set|DISTINCT (?!FROM)", re.IGNORECASE)
"""What gives its values in an order that is open."""
_WORD = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|\w+|\S""", re.DOTALL)
_INTERVAL = re.compile(r"interval (day|hour|minute|second)( to (hour|minute|second))?")


@dataclass(frozen=True)
class Difference:
    how: str
    sql: str
    way: str
    spark: str
    ours: str
    asked: str = ""
    """The SQL that was rendered."""
    row: int | None = None

    def __str__(self) -> str:
        head = f"{self.how} ({self.way}{'' if self.row is None else f', row {self.row}'}): {self.sql}"
        here = f"{self.ours[:400]}{self.asked and ': '}{self.asked[:400]}"
        return f"{head}\n    Spark: {self.spark[:400]}\n    here:  {here}"


class Oracle:
    def __init__(self, spark: SparkSide, ours: OurSide):
        self.spark, self.ours = spark, ours

    def unexplained(self, texts: Iterable[str]) -> Iterator[Difference]:
        """Where the two sides disagree, and not on purpose."""
        for found in self.differences(list(texts)):
            if found.how == "foreign" or not self._explained(found):
                yield found

    def _explained(self, found: Difference) -> bool:
        def part() -> bool:
            return found.row is not None and self.ours.part_fails(found.asked, found.row)

        return bool(explain(found.how, found.sql, spark=found.spark, ours=found.ours, part=part))

    def differences(self, texts: Sequence[str]) -> Iterator[Difference]:
        """Where the two sides disagree."""
        read: dict[str, Ours | Refused] = {}
        for text in texts:
            try:
                read[text] = self.ours.read(text)
            except Exception as error:
                yield Difference("foreign", text, "check", "", repr(error))
        known = [t for t, o in read.items() if isinstance(o, Ours) and o.type is not None]
        unknown = [t for t, o in read.items() if isinstance(o, Ours) and o.type is None]
        refused = [t for t, o in read.items() if isinstance(o, Refused)]
        theirs: dict[str, Analysed | Refused] = {}
        for group, together in ((known, TOGETHER), (unknown, 8), (refused, 1)):
            theirs |= dict(zip(group, self.spark.analyse(group, together), strict=True))
        again = self._again([t for t, o in read.items() if isinstance(o, Ours)], read, theirs)
        both: list[tuple[str, str, Ours]] = []
        unlike: list[tuple[str, str]] = []
        for text, ours in read.items():
            spark = theirs[text]
            if isinstance(ours, Refused):
                if FOREIGN.search(ours.why):
                    yield Difference("foreign", text, "check", str(spark), ours.why)
                if isinstance(spark, Analysed):
                    yield Difference("refused", text, "check", spark.type, ours.why)
                continue
            found = again[text]
            if isinstance(spark, Refused):
                if isinstance(found, Analysed):
                    yield Difference(
                        "answered", text, "spark", spark.why, f"{found.type}: {_inner(ours.spark)}"
                    )
                if ours.duckdb is not None and self.ours.answers(ours.duckdb):
                    yield Difference("answered", text, "duckdb", spark.why, ours.duckdb)
                continue
            dtype = plain_type(spark.type)
            if ours.type is not None and ours.type != dtype:
                yield Difference("type", text, "check", dtype, ours.type)
                continue
            inner = _inner(ours.spark)
            if isinstance(found, Refused):
                yield Difference("refused", text, "spark", spark.type, f"{found.why}: {inner}")
            elif found.type != spark.type:
                yield Difference("type", text, "spark", spark.type, f"{found.type}: {inner}")
            elif found is not spark and not spark.same(found):
                unlike.append((text, inner))
            # Arrow has no values of type VOID within others: Spark cannot hand them out.
            if ours.duckdb is not None and "void" not in dtype.removeprefix("void"):
                both.append((text, dtype, ours))
        yield from self._spark_way(unlike)
        yield from self._duckdb_way(both)

    def _again(
        self, texts: Sequence[str], read: dict[str, Ours | Refused], theirs: dict[str, Analysed | Refused]
    ) -> dict[str, Analysed | Refused]:
        """What Spark says of what we ask it: first of all that it should take, then of the others. What is asked in
        the very words needs not be asked again."""
        inner = {t: _inner(o.spark) for t in texts if isinstance(o := read[t], Ours)}
        found = {t: theirs[t] for t in texts if _words(t) == _words(inner[t])}
        taken = [t for t in texts if isinstance(theirs[t], Analysed) and t not in found]
        refused = [t for t in texts if isinstance(theirs[t], Refused) and t not in found]
        for group, together in ((taken, TOGETHER), (refused, 1)):
            found |= dict(zip(group, self.spark.analyse([inner[t] for t in group], together), strict=True))
        return found

    def _spark_way(self, unlike: Sequence[tuple[str, str]]) -> Iterator[Difference]:
        """What we ask Spark is what was written, where that is another tree."""
        made = self.spark.values([sql for pair in unlike for sql in pair])
        for (text, inner), left, right in zip(unlike, made[::2], made[1::2], strict=True):
            found = _first(text, "spark", left, right, inner)
            if found is not None:
                yield found

    def _duckdb_way(self, both: Sequence[tuple[str, str, Ours]]) -> Iterator[Difference]:
        fitting: list[tuple[str, str]] = []
        for text, dtype, ours in both:
            assert ours.duckdb is not None
            made = self.ours.duck_type(ours.duckdb)
            if isinstance(made, str) and made != dtype:
                yield Difference("type", text, "duckdb", dtype, f"{made}: {ours.duckdb}")
            elif isinstance(made, Refused) and FOREIGN.search(made.why):
                yield Difference("foreign", text, "duckdb", dtype, f"{made.why}: {ours.duckdb}")
            else:
                fitting.append((text, ours.duckdb))
        if not fitting:
            return
        theirs = self.spark.values([text for text, _ in fitting])
        for (text, sql), left, right in zip(
            fitting, theirs, self.ours.values([s for _, s in fitting]), strict=True
        ):
            if isinstance(right, Refused):
                if FOREIGN.search(right.why):
                    yield Difference("foreign", text, "duckdb", str(left), f"{right.why}: {sql}")
                elif RAISED not in left:
                    yield Difference("raised", text, "duckdb", str(left), right.why, sql)
                continue
            if RAISED in right:
                told = self.ours.error(sql)
                if told is not None and FOREIGN.search(told):
                    yield Difference("foreign", text, "duckdb", "", f"{told}: {sql}")
            found = _first(text, "duckdb", left, right, sql)
            if found is not None:
                yield self._told(found)

    def _told(self, found: Difference) -> Difference:
        """The difference with what the side that fails says."""
        if found.how == "raised":
            told = self.ours.error(found.asked, found.row) or self.ours.error(found.asked)
            return replace(found, ours=f"{found.ours}: {told}")
        if found.how == "quiet":
            return replace(found, spark=f"{found.spark}: {self.spark.error(found.sql, found.row)}")
        return found


def _first(text: str, way: str, theirs: Sequence[Any], ours: Sequence[Any], sql: str) -> Difference | None:
    """The first row that differs; one that has a value on one side only comes last."""
    found: Difference | None = None
    if _UNORDERED.search(text):
        theirs, ours = ([_sorted(v) for v in side] for side in (theirs, ours))
    for row, (a, b) in enumerate(zip(theirs, ours, strict=len(theirs) > 1 < len(ours))):
        if same(a, b):
            continue
        how = (
            "quiet"
            if a == RAISED and isinstance(a, str)
            else "raised"
            if isinstance(b, str) and b == RAISED
            else "value"
        )
        made = Difference(how, text, way, f"{a!r}", f"{b!r}", sql, row)
        if how == "value":
            return made
        found = found or made
    return found


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _sorted(v) for k, v in value.items()}
    return sorted((_sorted(v) for v in value), key=repr) if isinstance(value, list) else value


def _words(sql: str) -> list[str]:
    """The words of an expression, without quotes around names and the name of the relation."""
    found = [w if w[0] in "'\"" else w.lower() for w in _WORD.findall(sql) if w != "`"]
    at = len(found) - 1
    while at > 0:
        if found[at] == "." and found[at - 1] == "t":
            del found[at - 1 : at + 1]
        at -= 1
    return found


def _inner(sql: str) -> str:
    return sql[len("SELECT ") : sql.rindex(" AS `c` FROM ")]


def plain_type(dtype: str) -> str:
    """A type of Spark's as it is here: intervals of days, hours and seconds are one type."""
    return _INTERVAL.sub("interval day to second", dtype)
