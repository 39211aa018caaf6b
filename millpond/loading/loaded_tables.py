"""Creates the objects that load tables from outside and keep them current."""

from __future__ import annotations

from millpond.clock import Clock
from millpond.loading.bulk_load import LoadedTable, TakeIn
from millpond.loading.capture_groups import CaptureGroups
from millpond.loading.capture_tables import CapturedTable
from millpond.loading.followers import Followers, Mask
from millpond.loading.inputs import Inputs
from millpond.loading.large_reads import LargeReads
from millpond.loading.open_sources import OpenSource
from millpond.loading.progress import Report
from millpond.plan.load import plan_copy
from millpond.plan.plans import LoadPlan
from millpond.query.evaluate import Evaluator
from millpond.sql.catalog import Relation
from millpond.store.store import Store


class LoadedTables:
    """Creates a ``LoadedTable`` or a ``CapturedTable`` for a statement.

    ``identity`` distinguishes this app from others in databases that store something for it.
    """

    def __init__(
        self,
        store: Store,
        evaluator: Evaluator,
        inputs: Inputs,
        open_source: OpenSource,
        clock: Clock,
        take_in: TakeIn,
        large: LargeReads,
        identity: str,
        mask: Mask,
    ):
        self._store = store
        self._evaluator = evaluator
        self._inputs = inputs
        self._open_source = open_source
        self._clock = clock
        self._take_in = take_in
        self._large = large
        self._identity = identity
        self._mask = mask
        self._groups = CaptureGroups(store)

    def make(self, plan: LoadPlan, report: Report) -> LoadedTable:
        """Creates what loads the table of a statement."""
        captured = any(i.relation.captured for i in plan.query.inputs if i.relation.kind == "source")
        if captured and not plan.once:
            kept = self._store.keeps(plan.target.name) and self._store.journal.durable
            return self._captured(plan, report, kept=kept)
        return LoadedTable(
            plan,
            report,
            self._store,
            self._evaluator,
            self._inputs,
            self._open_source,
            self._clock,
            self._take_in,
            self._large,
        )

    def copy(self, relation: Relation) -> CapturedTable:
        """Creates what keeps a hidden copy of a captured table."""
        return self._captured(plan_copy(relation), lambda progress: None, kept=False)

    def _captured(self, plan: LoadPlan, report: Report, *, kept: bool) -> CapturedTable:
        return CapturedTable(
            plan,
            report,
            self._store,
            self._evaluator,
            self._inputs,
            self._open_source,
            self._clock,
            self._take_in,
            self._large,
            self._identity,
            self._mask,
            self._groups,
            kept=kept,
        )


def keep_copy(relation: Relation, store: Store, loaded_tables: LoadedTables, followers: Followers) -> None:
    """Keeps a hidden copy of a captured table, for statements that do more than copy it."""
    name = relation.name
    if store.table(name) is not None:
        return
    store.create_hidden(name, relation.schema)
    store.journal.forget(plan_copy(relation).name)
    try:
        captured = loaded_tables.copy(relation)
        try:
            captured.advance()
        except BaseException:
            captured.abandon(new=True)
            raise
    except BaseException:
        store.drop(name)
        raise
    followers.side_tables.add(name.lower())
    followers.add(name.lower(), captured)
