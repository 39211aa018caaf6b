"""Keeps a view by changes of its inputs, where that is possible and cheaper than to evaluate its query."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

import pyarrow as pa

from millpond import steps
from millpond.changes import Changes
from millpond.errors import Error, NotSupported, TableFull
from millpond.plan.plans import ViewPlan
from millpond.query.evaluate import Evaluator
from millpond.records.values import Unfit
from millpond.sql.incremental.lookups import Lookup, lookups
from millpond.steps import size_text
from millpond.store.change_feed import Touched
from millpond.tables.base import Snapshot
from millpond.types import Schema
from millpond.views.by_columns import ByColumns
from millpond.views.costs import Costs, Watch
from millpond.views.expressions import OnlySpark
from millpond.views.operators.base import ManyRows, Recompute, Round
from millpond.views.operators.memory import without_collection
from millpond.views.target import TargetRows, build_index
from millpond.views.tree import Tree

Tables = Callable[[str], Snapshot]
log = logging.getLogger("millpond")

_UNDONE = 100_000
"""Rows that operators read to take a change back, at most."""
_FEW = 1_000
"""Rows that operators read before a change is found by columns, if it can be."""
_TRIES = 5
_MOST_LEFT_OUT = 255
"""Rounds after which operators are tried again, at the latest."""
_ORDINARY = (Recompute, Error, Unfit, OverflowError, ValueError, pa.ArrowException)
"""What values of rows cause: the whole query says what is wrong with them, or that nothing is."""


class Outgrown(Exception):
    """Says that the state is larger than it may be."""


class KeptByChanges:
    """Runs the operators of one view, and says when not to."""

    def __init__(self, plan: ViewPlan, schema: Schema, evaluator: Evaluator, costs: Costs):
        self._plan = plan
        self._costs = costs
        self._target = TargetRows(schema)
        self._tables = sorted({i.relation.name for i in plan.query.inputs if i.relation.kind == "table"})
        self._tree: Tree | None = None
        self._lookups: list[Lookup] = []
        self._columns: ByColumns | None = None
        self.loaded = False
        """Whether the state of the operators is that of the inputs."""
        self._followed = False
        """Whether it is that after the changes of the last call."""
        self.due = False
        """Whether the state is set before the next change, or earlier by ``prepare``."""
        self.restored = False
        """Whether the next state is not set at once: the app starts."""
        self.unindexed = False
        """Whether indexes are built as soon as no change waits."""
        self._fallbacks = self._wait = self._weighed = 0
        self.outgrown: str | None = None
        """Why the state was given up."""
        self.rounds = 0
        """How many changes went through the operators."""
        if plan.by_changes.root is not None and plan.refresh != "full":
            try:
                self._tree = Tree(plan.by_changes.root, evaluator)
                self._lookups = lookups(plan.by_changes.root)
                self._columns = ByColumns(plan, schema, evaluator, self._target)
            except OnlySpark:
                if plan.refresh == "incremental" or plan.in_commit:
                    option = "'consistency' = 'commit'" if plan.in_commit else "'refresh' = 'incremental'"
                    raise NotSupported(
                        f'{option}: only Spark evaluates a part of table "{plan.target.name}"',
                        hint="leave the option out",
                        place=plan.place,
                    ) from None
                log.info('table "%s" is recomputed: only Spark evaluates a part of it', plan.target.name)

    @property
    def possible(self) -> bool:
        """Returns whether operators can keep the view: all of it is evaluated in the process."""
        return self._tree is not None

    @property
    def size(self) -> int:
        """Returns how many entries the state of the operators has."""
        return 0 if self._tree is None else self._tree.size

    @property
    def bytes(self) -> int:
        """Returns about how many bytes the state of the operators takes."""
        for _ in range(_TRIES):
            try:
                return 0 if self._tree is None else self._tree.bytes
            except RuntimeError:  # it changes meanwhile
                continue
        return 0

    def _weigh(self) -> None:
        """Raises TableFull if the state has grown beyond its limit, unless the table may be recomputed: then Outgrown.
        It is estimated again when it has grown by a twentieth.
        """
        limit, tree = self._plan.state_limit, self._tree
        if limit is None or tree is None or tree.size <= 1.05 * self._weighed:
            return
        self._weighed, size = tree.size, tree.bytes
        if size > limit:
            self.outgrown = (
                f'the state of table "{self._plan.target.name}" takes about {size_text(size)}, more than'
                f" 'state.max_memory' ({size_text(limit)})"
            )
            if self._plan.refresh == "incremental":
                raise TableFull(
                    self.outgrown, hint="raise it, or leave 'refresh' out: then the table is recomputed"
                )
            raise Outgrown

    def _give_up(self) -> None:
        """Frees the state: the table is recomputed from now on."""
        log.warning("%s: it is recomputed until the app starts again", self.outgrown)
        self._tree, self.loaded = None, False

    def changes(
        self, now: Tables, before: Mapping[str, Snapshot], touched: Mapping[str, Touched], own: Snapshot
    ) -> Changes | None:
        """Returns the changes of the view; None if its query must be evaluated."""
        self._followed = False
        if self._tree is None or not (self.loaded or self.due):
            return None
        most = self._most(now, own)
        columns = (
            self._columns if self._columns is not None and self._columns.finds(before, touched) else None
        )
        changed, tables = self._changed(touched), self._touched(touched)
        if columns is None and self._costs.read(tables, changed) > most:
            self.forget()
            return None
        self.prepare(before, own)
        if not self.loaded or self._tree is None:
            return None
        self.loaded, watch = False, Watch()
        try:
            with steps.step("read by operators") as noted:
                round_ = Round(before, now, touched, most if columns is None else min(most, _FEW))
                delta = self._tree.changes(round_)
                found = self._target.changes(delta, own)
                noted.tell(round_.read)
            self._costs.learn_read(tables, changed, round_.read, watch.seconds)
        except Exception as reason:
            by_columns = None
            if columns is not None and isinstance(reason, ManyRows):
                by_columns = self._by_columns(columns, now, before, touched, own, reason.found)
            if by_columns is None:
                self._fell_back(reason)
                return None
            found = by_columns
        self.loaded = self._followed = True
        self.unindexed = not self._target.indexed
        self._fallbacks = 0
        self.rounds += 1
        try:
            self._weigh()
        except TableFull:
            self.forget()
            raise
        except Outgrown:
            self._give_up()
        return found

    def _by_columns(
        self,
        columns: ByColumns,
        now: Tables,
        before: Mapping[str, Snapshot],
        touched: Mapping[str, Touched],
        own: Snapshot,
        joined: tuple[str, pa.Table] | None,
    ) -> Changes | None:
        """Finds changes that touch many rows; the operators keep no state that the last round could have changed."""
        assert self._tree is not None
        self._tree.end()
        try:
            with steps.step("evaluate over changed rows") as noted:
                found = columns.changes(now, before, touched, own, joined)
                noted.tell(0 if found is None else len(found))
                return found
        except _ORDINARY as reason:
            log.debug('table "%s" is recomputed: %r', self._plan.target.name, reason)
            return None

    def forget(self) -> None:
        """Forgets the state: inputs have changed that the operators did not see, or the table is not what they
        returned.
        """
        self.loaded = self.due = False
        if self._tree is not None:
            self._tree.clear()

    def take_back(self, now: Tables, before: Mapping[str, Snapshot], touched: Mapping[str, Touched]) -> None:
        """Undoes ``changes``, which were not committed: the operators see the opposite change. If they have not
        followed, or cannot, their state is set again before the next change.
        """
        if self._tree is None:
            return
        was, self.loaded = self.loaded and self._followed, False
        try:
            if was:
                after = {name.lower(): now(name) for name in self._tables}
                self._tree.changes(Round(after, lambda name: before[name.lower()], touched, _UNDONE))
                self.loaded = True
        except Exception as reason:
            log.debug('the state of table "%s" is set again: %r', self._plan.target.name, reason)
        if not self.loaded:
            self.forget()
            self.due = True

    def prepare(self, before: Mapping[str, Snapshot], own: Snapshot) -> None:
        """Sets the state that is due, from the inputs before a change and the rows of the view, which equal them."""
        if not self.due:
            return
        self.due = False
        if all(name.lower() in before for name in self._tables):
            self._load(lambda name: before[name.lower()], index=self._target.indexed)
            if self._target.indexed:
                self.settle(own)

    def start_later(self) -> None:
        """Leaves the state to ``prepare``, and the indexes until a change has come: the app starts."""
        self.restored, self._target.indexed = True, False

    def build_indexes(self, before: Mapping[str, Snapshot], own: Snapshot) -> None:
        """Builds the indexes that ``start_later`` has left."""
        self.unindexed = False
        if self.loaded:
            try:
                for table, names in self._lookups:
                    build_index(before[table.lower()], names)
                self.settle(own)
            except Exception as reason:
                self._fell_back(reason)

    def load(self, now: Tables, touched: Mapping[str, Touched], own: Snapshot, *, whole: bool) -> None:
        """Sets the state of the operators after a recomputation, unless the next one is likely as large, or operators
        have fallen back again and again.
        """
        if self._tree is None:
            return
        if not whole and self._wait:
            self._wait -= 1
            return
        read = self._costs.read(self._touched(touched), self._changed(touched))
        if not whole and not self._costs.worth_loading(read, self._most(now, own)):
            return
        self.due, self.restored = self.restored, False
        if not self.due:
            self._load(now, index=True)
            self._followed = self.loaded

    def _load(self, now: Tables, *, index: bool) -> None:
        assert self._tree is not None
        try:
            with steps.step("set the state of operators"), without_collection():
                self._weighed = 0
                self._tree.load(now, self._weigh)
                self._target.forget()
                for table, names in self._lookups if index else ():
                    build_index(now(table), names)
        except TableFull:
            self.forget()
            raise
        except Outgrown:
            self._give_up()
            return
        except Exception as reason:
            self._fell_back(reason)
            return
        self.loaded = True

    def settle(self, own: Snapshot) -> None:
        """Prepares what the first change needs to find rows of the view, which are these now."""
        if self.loaded:
            self._target.prepare(own)

    def _fell_back(self, reason: Exception) -> None:
        """Notes that operators could not do it: the more often in a row, the more rounds they are left out."""
        self.forget()
        self._fallbacks += 1
        self._wait = min(_MOST_LEFT_OUT, (1 << self._fallbacks - 1) - 1)
        what, name, kind = 'table "%s" is recomputed: %s: %s', self._plan.target.name, type(reason).__name__
        if isinstance(reason, _ORDINARY):
            log.debug(what, name, kind, reason)
        else:
            log.warning(what, name, kind, reason, exc_info=reason)

    def _touched(self, touched: Mapping[str, Touched]) -> frozenset[str]:
        return frozenset(name for name in self._tables if name.lower() in touched)

    def _changed(self, touched: Mapping[str, Touched]) -> int:
        return sum(len(touched[name.lower()]) for name in self._tables if name.lower() in touched)

    def _most(self, now: Tables, own: Snapshot) -> int:
        """Returns the number of rows up to which operators are cheaper than a recomputation."""
        if self._plan.refresh == "incremental":
            return 1 << 62
        rows = sum(len(now(name)) for name in self._tables)
        return self._costs.rows_for(self._costs.whole(rows, len(own)))
