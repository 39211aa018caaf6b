"""Reads the rows of an INSERT … SELECT that runs once, over large files by Spark's executors."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from millpond.connectors import abilities
from millpond.engine_rule import EngineRule
from millpond.errors import without_passwords
from millpond.loading.evaluation import Evaluation
from millpond.loading.inputs import Inputs
from millpond.loading.large_reads import LargeReads
from millpond.loading.open_sources import OpenSource
from millpond.plan.load import chunk_by
from millpond.plan.plans import LoadPlan, Target
from millpond.query.evaluate import Evaluator
from millpond.sql.pushdown import need_of
from millpond.sql.resolve import Resolved
from millpond.store.snapshot import StoreSnapshot


class InsertedRows:
    """Reads what executors take, and leaves the rest to others."""

    def __init__(self, large: LargeReads, evaluator: Evaluator, open_source: OpenSource):
        self._large = large
        self._evaluator = evaluator
        self._open_source = open_source

    def read(
        self,
        query: Resolved,
        target: Target,
        rule: EngineRule,
        snapshots: Callable[[], StoreSnapshot],
        *,
        keyed: bool,
    ) -> pa.Table | None:
        """Returns the rows of a query; None if executors do not read its sources. ``keyed`` as in Evaluation."""
        inputs = [i for i in query.inputs if i.relation.kind == "source"]
        opened = {
            i.view: abilities.narrowed(self._open_source(i.relation), need_of(query, i)) for i in inputs
        }
        if not opened:
            return None
        self._large.check(rule, query, opened)
        by = chunk_by(query)
        if not self._large.may_take(rule, query, opened, keyed=keyed):
            return None
        splits = {view: source.splits(None, source.latest(None)) for view, source in opened.items()}
        if not self._large.takes(rule, query, by, opened, splits, keyed=keyed):
            return None
        name = f"insert:{without_passwords(target.name)}"
        plan = LoadPlan(name, "", query, target, by, once=True, rule=rule)
        inputs_of, seen = Inputs(self._open_source), snapshots()
        evaluation = Evaluation(
            plan, self._large, self._evaluator, inputs_of, lambda: seen, keyed=lambda: keyed
        )
        found = evaluation.answers(opened, splits, evaluation.groups(opened, splits))
        return pa.concat_tables([query.schema.arrow().empty_table(), *(answer.rows for answer in found)])
