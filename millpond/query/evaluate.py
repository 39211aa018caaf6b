"""Evaluates queries: with DuckDB if its results are those of Spark, else with Spark."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import Any, Literal

import pyarrow as pa

from millpond import allowance, steps
from millpond.changes import Changes
from millpond.clock import Clock
from millpond.query.concurrency import QuerySlots
from millpond.query.difference import difference
from millpond.query.duck import Duck, NotAccepted, to_duckdb, version
from millpond.query.prepared_queries import Prepared, Spelling, prepare
from millpond.sql.fold import Fold, RowFold
from millpond.sql.options import only_spark
from millpond.sql.placeholders import StandIn
from millpond.sql.render import duckdb, spark
from millpond.sql.render.duckdb import Unrenderable, times_read
from millpond.sql.render.folds import fold_outputs, render_fold
from millpond.sql.render.words import DuckWords, SparkWords
from millpond.sql.resolve import Resolved
from millpond.sql.userfunctions import functions_in

Path = Literal["auto", "duckdb", "spark"]
SparkAnswer = Callable[[str, Mapping[str, pa.Table]], pa.Table]
"""(Spark SQL, tables by view) → rows. The engine provides it."""
GUEST_MEMORY = 512 * 1024 * 1024
"""Bytes that DuckDB may use for all queries of clients together. Queries of the app run elsewhere."""
Answer = Callable[[Mapping[str, pa.Table]], pa.Table]


class Evaluator:
    """Evaluates resolved queries over Arrow tables."""

    def __init__(self, ask_spark: SparkAnswer, path: Path = "auto", clock: Clock | None = None):
        self._duck = Duck(clock)
        self._guests = Duck(clock, memory=GUEST_MEMORY)
        self.ask_spark = ask_spark
        self.path = path
        self.slots = QuerySlots()
        """Slots for queries of programs and clients, whose number nothing else limits."""
        self._rendered: tuple[Resolved, str] | None = None
        """The last query, which is often asked for several times in a row, with its SQL."""

    def without_spark(self) -> Evaluator:
        """Returns an evaluator that shares DuckDB with this one, and raises NotSupported instead of using Spark."""
        other = copy(self)
        other.ask_spark = _refuse
        return other

    @property
    def version(self) -> str:
        """Returns the version of DuckDB."""
        return version()

    def way(self, query: Resolved) -> tuple[Literal["duckdb", "spark"], str]:
        """Returns which engine evaluates a query, and why."""
        try:
            self._to_duckdb(query)
        except Unrenderable as reason:
            return "spark", str(reason)
        return "duckdb", "in process"

    def in_process(self, query: Resolved, slots: QuerySlots | None = None) -> Answer | None:
        """Returns a function that answers the query again and again without Spark, each time in its turn; None where
        only Spark can.
        """
        try:
            sql, names = self._to_duckdb(query), list(query.schema.names)
        except Unrenderable:
            if self.path == "duckdb":
                raise
            return None

        if any(functions_in(sql)):
            slots = None

        def ask(tables: Mapping[str, pa.Table]) -> pa.Table:
            def here() -> pa.Table:
                return self.duckdb(sql, tables).rename_columns(names)

            try:
                return here() if slots is None else slots.run(tables, here)
            except NotAccepted:
                if self.path == "duckdb":
                    raise
                return self._by_spark(query)(tables)

        return ask

    def prepared(
        self, query: Resolved, holes: Mapping[int, StandIn], values: Sequence[Any]
    ) -> Prepared | None:
        """Returns the query for any values like these in its open holes, as ``prepare`` does."""
        try:
            in_duckdb = Spelling(self._to_duckdb, duckdb.text, self.duckdb, in_process=True)
            return prepare(query, holes, values, in_duckdb)
        except Unrenderable:
            if self.path == "duckdb":
                raise
        in_spark = Spelling(
            lambda q: spark.render(q.expression), spark.text, self.ask_spark, in_process=False
        )
        return prepare(query, holes, values, in_spark)

    def slots_for(self, prepared: Prepared) -> QuerySlots | None:
        """Returns where a prepared query waits until it may run; None if it runs at once."""
        text = "".join(part for part in prepared.parts if isinstance(part, str))
        return self.slots if prepared.spelling.in_process and not any(functions_in(text)) else None

    def reads_once(self, query: Resolved, view: str) -> bool:
        """Returns whether the query is evaluated in process and reads the rows of an input once: then they can be
        streamed.
        """
        try:
            sql = self._to_duckdb(query)
        except Unrenderable:
            return False
        return times_read(sql, view) == 1

    def fold(self, fold: Fold) -> Answer:
        """Returns a function that applies the events of a batch: in process, or with Spark if only that can."""
        names = fold_outputs(fold)
        try:
            if self.path == "spark":
                raise Unrenderable("asked for")
            sql = render_fold(fold, DuckWords())
        except Unrenderable:
            if self.path == "duckdb":
                raise
            text = render_fold(fold, SparkWords())
            return lambda tables: self.ask_spark(text, tables).rename_columns(names)
        return lambda tables: self.duckdb(sql, tables).rename_columns(names)

    def fold_way(self, fold: Fold) -> tuple[Literal["duckdb", "spark"], str]:
        """Returns which engine applies the events of a batch, and why."""
        try:
            render_fold(fold, DuckWords())
            if isinstance(fold, RowFold):
                self._to_duckdb(fold.pairs)
        except Unrenderable as reason:
            return "spark", str(reason)
        return "duckdb", "in process"

    def answers(self, query: Resolved) -> Answer:
        """Returns a function that evaluates the query repeatedly; ``tables`` are the inputs by view name."""
        answer = self.in_process(query)
        if answer is not None:
            return answer
        return self._by_spark(query)

    def _by_spark(self, query: Resolved) -> Answer:
        sql, names = spark.render(query.expression), list(query.schema.names)
        return lambda tables: self.ask_spark(sql, tables).rename_columns(names)

    def answer(self, query: Resolved, tables: Mapping[str, pa.Table]) -> pa.Table:
        """Evaluates the query once and returns the rows."""
        return self.answers(query)(tables)

    def answer_in_turn(self, query: Resolved, tables: Mapping[str, pa.Table]) -> pa.Table:
        """Answers as ``answer`` does, for a query that may wait for others. Whoever asks holds no lock."""
        in_process = self.in_process(query, self.slots)
        return self._by_spark(query)(tables) if in_process is None else in_process(tables)

    def difference(self, before: pa.Table, after: pa.Table, key: Sequence[str]) -> Changes:
        """Returns the changes that turn one table into another."""
        with steps.step("compare with the rows that are there") as noted:
            changes = difference(self._duck, before, after, key)
            noted.tell(len(changes))
        return changes

    def _to_duckdb(self, query: Resolved) -> str:
        if self.path == "spark":
            raise Unrenderable("asked for")
        if not query.schema.known:
            raise Unrenderable("only Spark knows the type of a column")
        last = self._rendered
        if last is None or last[0] is not query:
            last = self._rendered = (query, to_duckdb(query))
        return last[1]

    def duckdb(self, sql: str, tables: Mapping[str, pa.Table]) -> pa.Table:
        """Returns the result of DuckDB's own SQL."""
        limit = allowance.current()
        duck = self._duck if limit is None or not limit.guest else self._guests
        return steps.timed("evaluate in process (DuckDB)", lambda: duck.run(sql, tables))

    def close(self) -> None:
        self.slots.close()
        self._duck.close()
        self._guests.close()


def _refuse(sql: str, tables: Mapping[str, pa.Table]) -> pa.Table:
    raise only_spark("DuckDB does not take it")
