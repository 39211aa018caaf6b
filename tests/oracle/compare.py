"""Both sides side by side: what they say of the same expressions, and where that differs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tests.oracle.cells import RAISED, Refused, same
from tests.oracle.our_side import FOREIGN, Ours, OurSide
from tests.oracle.spark_side import TOGETHER, Analysed, SparkSide

INTERVALS = {
    "interval day",
    "interval day to hour",
    "interval day to minute",
    "interval hour",
    "interval minute",
    "interval second",
    "interval hour to minute",
    "interval hour to second",
    "interval minute to second",
}


@dataclass(frozen=True)
class Difference:
    how: str
    sql: str
    way: str
    spark: str
    ours: str

    def __str__(self) -> str:
        return f"{self.how} ({self.way}): {self.sql}\n    Spark: {self.spark[:400]}\n    here:  {self.ours[:400]}"


class Oracle:
    def __init__(self, spark: SparkSide, ours: OurSide):
        self.spark, self.ours = spark, ours

    def differences(self, texts: Sequence[str]) -> Iterator[Difference]:
        """Where the two sides disagree."""
        read: dict[str, Ours | Refused] = {}
        for text in texts:
            try:
                read[text] = self.ours.read(text)
            except Exception as error:
                yield Difference("foreign", text, "check", "", repr(error))
        known = [t for t, o in read.items() if isinstance(o, Ours) and o.type is not None]
        others = [t for t in read if t not in set(known)]
        theirs = dict(zip(known, self.spark.analyse(known), strict=True))
        theirs |= dict(zip(others, self.spark.analyse(others, together=1), strict=True))
        again = self._again([t for t, o in read.items() if isinstance(o, Ours)], read, theirs)
        both: list[tuple[str, str, Ours]] = []
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
                if ours.duckdb is not None:
                    yield Difference("answered", text, "duckdb", spark.why, ours.duckdb)
                continue
            dtype = plain_type(spark.type)
            if ours.type is not None and ours.type != dtype:
                yield Difference("type", text, "check", dtype, ours.type)
                continue
            difference = self._spark_way(text, spark, found, _inner(ours.spark))
            if difference is not None:
                yield difference
            if ours.duckdb is not None:
                both.append((text, dtype, ours))
        yield from self._duckdb_way(both)

    def _again(
        self, texts: Sequence[str], read: dict[str, Ours | Refused], theirs: dict[str, Analysed | Refused]
    ) -> dict[str, Analysed | Refused]:
        """What Spark says of what we ask it: first of all that it should take, then of the others."""
        taken = [t for t in texts if isinstance(theirs[t], Analysed)]
        found: dict[str, Analysed | Refused] = {}
        for group, together in ((taken, TOGETHER), ([t for t in texts if t not in set(taken)], 1)):
            asked = [_inner(o.spark) for t in group if isinstance(o := read[t], Ours)]
            found |= dict(zip(group, self.spark.analyse(asked, together), strict=True))
        return found

    def _spark_way(
        self, text: str, theirs: Analysed, ours: Analysed | Refused, inner: str
    ) -> Difference | None:
        """What we ask Spark is what was written."""
        if isinstance(ours, Refused):
            return Difference("refused", text, "spark", theirs.type, f"{ours.why}: {inner}")
        if ours.type != theirs.type:
            return Difference("type", text, "spark", theirs.type, f"{ours.type}: {inner}")
        if theirs.same(ours):
            return None
        left, right = self.spark.values([text, inner])
        return _first(text, "spark", left, right, inner)

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
                    yield Difference("raised", text, "duckdb", str(left), f"{right.why}: {sql}")
                continue
            if RAISED in right:
                told = self.ours.error(sql)
                if told is not None and FOREIGN.search(told):
                    yield Difference("foreign", text, "duckdb", "", f"{told}: {sql}")
            found = _first(text, "duckdb", left, right, sql)
            if found is not None:
                yield found


def _first(text: str, way: str, theirs: Sequence[Any], ours: Sequence[Any], sql: str) -> Difference | None:
    """The first row that differs; one that has a value on one side only comes last."""
    found: Difference | None = None
    for row, (a, b) in enumerate(zip(theirs, ours, strict=True)):
        if same(a, b):
            continue
        how = (
            "quiet"
            if a == RAISED and isinstance(a, str)
            else "raised"
            if isinstance(b, str) and b == RAISED
            else "value"
        )
        made = Difference(how, text, way, f"row {row}: {a!r}", f"{b!r}: {sql}")
        if how == "value":
            return made
        found = found or made
    return found


def _inner(sql: str) -> str:
    return sql[len("SELECT ") : sql.rindex(" AS `c` FROM ")]


def plain_type(dtype: str) -> str:
    return "interval day to second" if dtype in INTERVALS else dtype
