"""OVER: functions, orders that leave nothing open, frames, named windows."""

from __future__ import annotations

from collections.abc import Callable

from tests.oracle.shapes.choices import Choices
from tests.oracle.shapes.scope import PLAIN
from tests.oracle.shapes.values import Place, Values

BOUNDS = (
    "UNBOUNDED PRECEDING",
    "2 PRECEDING",
    "1 PRECEDING",
    "CURRENT ROW",
    "1 FOLLOWING",
    "UNBOUNDED FOLLOWING",
)


class Windows:
    """Windows of one SELECT. ``total`` gives an order in which only equal rows are peers, None if there is none."""

    def __init__(self, choices: Choices, values: Values, total: Callable[[], list[str]] | None):
        self.choices = choices
        self._values = values
        self._total = total
        self.named: list[str] = []
        self._known: dict[str, str] = {}

    def call(self, kind: str, at: Place) -> str | None:
        """A window function that gives a value of the kind; None if none does so whatever the order of peers."""
        pick, flat = self.choices.pick, at.without_subqueries().deeper()
        value = self._values.value(kind, flat)
        if self._total is not None and self.choices.below(3):
            whole = pick(["rank", "row", "near", "frame"])
            if whole in ("rank", "row") and kind == "num":
                names = [
                    "row_number()",
                    "rank()",
                    "dense_rank()",
                    "percent_rank()",
                    "cume_dist()",
                    "ntile(2)",
                ]
                return f"{pick(names)} {self._over('total', flat)}"
            if whole == "near":
                extra = pick(["", ", 1", ", 2", ", 0", f", 1, {self._values.literal(kind)}"])
                return f"{pick(['lag', 'lead'])}({value}{extra}) {self._over('bare', flat)}"
            if kind in PLAIN:
                nulls = pick(["", "", " IGNORE NULLS"])
                call = pick(
                    [f"first_value({value}){nulls}", f"last_value({value}){nulls}", f"nth_value({value}, 2)"]
                )
                return f"{call} {self._over('rows', flat)}"
        if kind == "num":
            call = pick(
                [f"sum({value})", "count(*)", f"max({value})", f"avg({value})", "rank()", "dense_rank()"]
            )
            return f"{call} {self._over('order' if call.endswith('rank()') else 'peers', flat)}"
        if kind in PLAIN:
            return f"{pick(['min', 'max'])}({value}) {self._over('peers', flat)}"
        return None

    def _over(self, need: str, at: Place) -> str:
        """``need``: "total" an order of all columns, "bare" the same without a frame, "rows" with a frame of rows,
        "order" any order, "peers" a frame that does not tell peers apart."""
        text = self._specification(need, at)
        if not self.choices.percent(30):
            return f"OVER ({text})"
        known = next((name for name, said in self._known.items() if said == text), None)
        if known is None:
            known = f"w{len(self._known)}"
            self._known[known] = text
            self.named.append(f"{known} AS ({text})")
        if self.choices.percent(25):
            other = f"{known}_{len(self.named)}"
            self.named.append(f"{other} AS {self.choices.pick([known, f'({known})'])}")
            known = other
        return f"OVER {self.choices.pick([known, known, f'({known})'])}"

    def _specification(self, need: str, at: Place) -> str:
        parts, pick = [], self.choices.pick
        if self.choices.below(2):
            kinds = [k for k in PLAIN if at.leaves([k])] or ["num"]
            some = [self._values.value(pick(kinds), at) for _ in range(1 + self.choices.below(2))]
            parts.append("PARTITION BY " + ", ".join(some))
        if need in ("total", "bare", "rows"):
            assert self._total is not None
            way = pick(["", " DESC", " ASC NULLS LAST", " DESC NULLS FIRST"])
            parts.append("ORDER BY " + ", ".join(f"{c}{way}" for c in self._total()))
            if need == "rows" and self.choices.below(2):
                parts.append(self._rows())
            return " ".join(parts)
        if need == "order" or self.choices.below(3):
            kind = pick([k for k in ("num", "text", "date", "time") if at.leaves([k])] or ["num"])
            key = self._values.value(kind, at)
            parts.append(f"ORDER BY {key}{pick(['', ' DESC', ' NULLS LAST', ' ASC NULLS FIRST'])}")
            if need == "peers" and self.choices.percent(40):
                parts.append(self._range(kind))
        return " ".join(parts)

    def _rows(self) -> str:
        low = self.choices.below(len(BOUNDS) - 1)
        high = low + self.choices.below(len(BOUNDS) - low)
        if (
            BOUNDS[low] == "UNBOUNDED FOLLOWING"
            or BOUNDS[high] == "UNBOUNDED PRECEDING"
            or self.choices.percent(10)
        ):
            return f"ROWS {self.choices.pick(BOUNDS[:4])}"
        return f"ROWS BETWEEN {BOUNDS[low]} AND {BOUNDS[high]}"

    def _range(self, kind: str) -> str:
        unit = {"num": "1", "date": "INTERVAL 1 DAY", "time": "INTERVAL 1 HOUR"}.get(kind)
        bounds = ["UNBOUNDED PRECEDING", "CURRENT ROW", "UNBOUNDED FOLLOWING"]
        if unit is not None:
            bounds[1:1] = [f"{unit} PRECEDING"]
            bounds[-1:-1] = [f"{unit} FOLLOWING"]
        low = self.choices.below(len(bounds) - 1)
        high = 1 + low + self.choices.below(len(bounds) - low - 1)
        return f"RANGE BETWEEN {bounds[low]} AND {bounds[high]}"
