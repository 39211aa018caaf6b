"""Evaluates queries that have an end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from millpond.app.text_run import TextRun
from millpond.loading.inputs import Inputs
from millpond.loading.open_sources import Sources
from millpond.query.evaluate import Evaluator
from millpond.query.table import Table
from millpond.records import to_arrow
from millpond.sql.checked import Checked
from millpond.sql.filters import resolve_values
from millpond.store.store import Store, StoreSnapshot


@dataclass(frozen=True, eq=False, repr=False)
class Answers:
    """Answers queries; ``table`` gives the tables whose queries are counted."""

    store: Store
    evaluator: Evaluator
    inputs: Inputs
    sources: Sources
    text: TextRun
    table: Callable[[str], Table]

    def answer(self, checked: Checked, snapshots: StoreSnapshot | None = None) -> pa.Table:
        """Returns the rows of a query that has an end, as of a snapshot, by default the one that the statement sees."""
        assert checked.resolved is not None
        self.sources.values.update(checked.source_options)
        for name in checked.reads:
            if self.store.table(name) is not None:
                self.table(name).count_query()
        inputs = self.inputs.read(checked.resolved, snapshots or self.text.snapshots())
        return self.evaluator.answer(checked.resolved, inputs)

    def values(self, checked: Checked) -> pa.Table:
        """Returns the rows of VALUES."""
        assert checked.target is not None
        rows = self.evaluator.answer(resolve_values(checked.target.schema, checked.values), {})
        return to_arrow(checked.target.schema, rows, what=f'{checked.target.kind} "{checked.target.name}"')
