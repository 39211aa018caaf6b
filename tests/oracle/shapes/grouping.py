"""GROUP BY in its forms, and aggregates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tests.oracle.shapes.choices import Choices
from tests.oracle.shapes.scope import PLAIN, SORTABLE
from tests.oracle.shapes.values import Place, Values


@dataclass
class Grouped:
    """What is grouped by: expressions with their kinds, and the text of the clause."""

    keys: list[tuple[str, str]]
    sets: bool
    """Some keys are NULL in some rows: ROLLUP, CUBE, GROUPING SETS."""

    def of(self, kinds: Sequence[str]) -> list[str]:
        return [k for k, kind in self.keys if kind in kinds]


class Grouping:
    def __init__(self, choices: Choices, values: Values):
        self.choices = choices
        self._values = values

    def keys(self, at: Place) -> Grouped:
        keys: list[tuple[str, str]] = []
        for _ in range(self.choices.pick([1, 0, 2, 1, 2, 3])):
            kinds = [k for k in (*PLAIN, "array", "struct") if at.leaves([k])] or ["num"]
            kind = self.choices.pick(kinds)
            simple = replace(at, depth=0) if self.choices.below(4) else replace(at, depth=1, subqueries=0)
            text = self._values.value(kind, simple)
            # A constant would be an ordinal, or is folded away.
            if text not in [k for k, _ in keys] and _names_something(text, at):
                keys.append((text, kind))
        return Grouped(keys, False)

    def clause(self, grouped: Grouped, outputs: Sequence[tuple[str, str]], *, sets: bool = True) -> str:
        """GROUP BY for the keys; ``outputs`` are pairs of expression and alias of the SELECT list."""
        texts = [k for k, _ in grouped.keys]
        form = self.choices.below(10)
        if not texts:
            return ""
        if form >= 5 or not sets or len(texts) > 3:
            return " GROUP BY " + ", ".join(self._spelled(t, outputs) for t in texts)
        grouped.sets = True
        listed = ", ".join(texts)
        if form == 0:
            return f" GROUP BY ROLLUP ({listed})"
        if form == 1:
            return f" GROUP BY CUBE ({listed})"
        if form == 2:
            return f" GROUP BY {listed} WITH {self.choices.pick(['ROLLUP', 'CUBE'])}"
        if form == 3 and len(texts) > 1:
            return f" GROUP BY {texts[0]}, {self.choices.pick(['ROLLUP', 'CUBE'])} ({', '.join(texts[1:])})"
        several = [self.choices.some(texts) for _ in range(1 + self.choices.below(3))]
        if self.choices.percent(70):
            several.insert(0, texts)
        said = ", ".join(f"({', '.join(s)})" for s in several)
        if self.choices.percent(40):
            return f" GROUP BY {listed} GROUPING SETS ({said})"
        return f" GROUP BY GROUPING SETS ({said})"

    def _spelled(self, text: str, outputs: Sequence[tuple[str, str]]) -> str:
        """A key as an ordinal, an alias, or written out."""
        number = next((i for i, (value, _) in enumerate(outputs, 1) if value == text), None)
        if number is not None and self.choices.percent(25):
            return str(number)
        if number is not None and outputs[number - 1][1].startswith("o") and self.choices.percent(25):
            return outputs[number - 1][1]
        return text

    def aggregate(self, kind: str, at: Place) -> str:
        """An aggregate that gives a value of the kind."""
        inner = replace(at, depth=1)
        pick, value = self.choices.pick, self._values.value
        distinct = "DISTINCT " if self.choices.percent(25) else ""
        match kind:
            case "num":
                form = self.choices.below(8)
                if form == 0:
                    call = "count(*)"
                elif form == 1:
                    call = f"count({distinct}{value(self._some(inner), inner)})"
                elif form == 2 and distinct:
                    call = f"count(DISTINCT {value('num', inner)}, {value('text', inner)})"
                elif form == 3:
                    call = f"avg({distinct}{value('num', inner)})"
                elif form == 4:
                    call = f"count_if({self._values.condition(inner)})"
                else:
                    call = f"{pick(['sum', 'sum', 'min', 'max'])}({distinct}{value('num', inner)})"
            case "bool":
                call = (
                    f"{pick(['bool_and', 'bool_or', 'max', 'min', 'every', 'any'])}({value('bool', inner)})"
                )
            case "array":
                return f"sort_array(collect_{pick(['list', 'set'])}({value('num', inner)}))"
            case "map":
                return f"map('a', {self.aggregate('num', at)})"
            case _:
                call = f"{pick(['min', 'max'])}({value(kind, inner)})"
        if self.choices.percent(15):
            call += f" FILTER (WHERE {self._values.condition(replace(inner, decides=True, subqueries=0))})"
        return call

    def _some(self, at: Place) -> str:
        return self.choices.pick([k for k in SORTABLE if at.leaves([k])] or ["num"])


def _names_something(text: str, at: Place) -> bool:
    names = [n for k in (*SORTABLE, "map") for n in at.leaves([k])]
    return any(n in text for n in names)
