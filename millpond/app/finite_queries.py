"""Evaluates queries that have an end."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa

from millpond.engine_rule import rule_of
from millpond.errors import UnknownName
from millpond.loading.inputs import Inputs
from millpond.loading.inserted_rows import InsertedRows
from millpond.loading.large_reads import LargeReads
from millpond.loading.open_sources import Sources
from millpond.plan.plans import target_of
from millpond.query.evaluate import Evaluator
from millpond.query.table import Table
from millpond.records import to_arrow
from millpond.sql.checked import CheckedInsert, CheckedQuery, CheckedValues
from millpond.sql.filters import resolve_values
from millpond.statements.text_run import TextRun
from millpond.store.snapshot import StoreSnapshot


@dataclass(frozen=True, eq=False, repr=False)
class Answers:
    """Evaluates queries; ``table`` returns the tables whose queries are counted."""

    evaluator: Evaluator
    sources: Sources
    text: TextRun
    table: Callable[[str], Table]
    large: LargeReads

    def rows_to_insert(self, checked: CheckedInsert, snapshots: StoreSnapshot | None = None) -> pa.Table:
        """Returns the rows of an INSERT that runs once: as ``answer``, but executors read large files. The order of
        the messages of a key matters where they are kept, so a sink counts as keyed.
        """
        self.sources.values.update(checked.source_options)
        query, rule = checked.resolved, rule_of(checked.query_options)
        inserted = InsertedRows(self.large, self.evaluator, self.sources.open)
        keyed = checked.target.kind == "sink" or bool(checked.target.schema.key)
        seen = self.text.snapshots if snapshots is None else (lambda: snapshots)
        rows = inserted.read(query, target_of(checked.target), rule, seen, keyed=keyed)
        return self.answer(checked, snapshots) if rows is None else rows

    def answer(
        self, checked: CheckedQuery, snapshots: StoreSnapshot | None = None, *, in_turn: bool = False
    ) -> pa.Table:
        """Returns the rows of a query that has an end, as of a snapshot, by default the one that the statement sees.
        With ``in_turn`` it may wait for other queries: the caller then holds no lock.
        """
        self.sources.values.update(checked.source_options)
        for name in checked.reads:
            with suppress(UnknownName):  # it is being dropped, or is no table
                self.table(name).count_query()
        inputs = Inputs(self.sources.open).read(checked.resolved, snapshots or self.text.snapshots())
        answer = self.evaluator.answer_in_turn if in_turn else self.evaluator.answer
        return answer(checked.resolved, inputs)

    def values(self, checked: CheckedValues) -> pa.Table:
        """Returns the rows of VALUES."""
        rows = self.evaluator.answer(resolve_values(checked.target.schema, checked.rows), {})
        return to_arrow(checked.target.schema, rows, what=f'{checked.target.kind} "{checked.target.name}"')
