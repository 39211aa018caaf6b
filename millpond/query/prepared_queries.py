"""Renders queries once and evaluates them with different values."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from millpond.predicates import Predicate
from millpond.sql.placeholders import StandIn, holes_in, put_stand_ins, written
from millpond.sql.pushdown import filled, pushed
from millpond.sql.resolve import Resolved

Render = Callable[[Resolved], str]
"""Renders a query. Raises Unrenderable."""
Ask = Callable[[str, Mapping[str, pa.Table]], pa.Table]
"""(SQL, tables by view) → rows."""


@dataclass(frozen=True, slots=True)
class Spelling:
    """Renders a query and a literal for one evaluator, and runs it."""

    render: Render
    text: Callable[[str], str]
    ask: Ask
    in_process: bool


@dataclass(frozen=True, slots=True)
class Prepared:
    """Stores a rendered query: ``parts`` are SQL and, in between, the numbers of the values in these places; ``where``
    are the conditions of the query on its inputs, by view.
    """

    query: Resolved
    parts: tuple[str | int, ...]
    spelling: Spelling
    where: Mapping[str, Predicate]

    def sql(self, values: Sequence[Any]) -> str:
        """Returns the query with these values."""
        text = self.spelling.text
        return "".join(
            [
                p if type(p) is str else text(v) if type(v := values[p]) is str else written(v)  # type: ignore[index]
                for p in self.parts
            ]
        )

    def narrowed(self, values: Sequence[Any]) -> dict[str, Predicate]:
        """Returns the conditions of the query on its inputs, with these values."""
        found = {view: filled(predicate, values) for view, predicate in self.where.items()}
        return {view: predicate for view, predicate in found.items() if predicate is not None}

    def answer(self, tables: Mapping[str, pa.Table], values: Sequence[Any]) -> pa.Table:
        """Returns the rows. Raises NotAccepted, after which the query can be run in another way."""
        found = self.spelling.ask(self.sql(values), tables)
        return found.rename_columns(self.query.schema.names)


def prepare(
    query: Resolved, holes: Mapping[int, StandIn], values: Sequence[Any], spelling: Spelling
) -> Prepared | None:
    """Returns the query for any values like these in its open holes; None if its rendering shows that it depends on
    them in another way. Raises Unrenderable.
    """
    real = spelling.render(query)
    parts = _parts(spelling.render(put_stand_ins(query, holes)), holes) if holes else (real,)
    made = Prepared(query, parts, spelling, pushed(query))
    missed = (holes_in([query.expression], len(values)) & holes.keys()) - set(parts)
    return made if not missed and made.sql(values) == real else None


def _parts(sql: str, holes: Mapping[int, StandIn]) -> tuple[str | int, ...]:
    numbers = list(holes)
    pattern = re.compile("|".join(f"({holes[at].pattern})" for at in numbers))
    parts: list[str | int] = []
    end = 0
    for found in pattern.finditer(sql):
        assert found.lastindex is not None
        parts += (sql[end : found.start()], numbers[found.lastindex - 1])
        end = found.end()
    return (*parts, sql[end:])
