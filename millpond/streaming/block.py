"""Runs BEGIN … COMMIT over a stream: in each batch the statements run in text order, and their changes are one
commit.

A small batch is evaluated when it is committed. Spark evaluates a large one before, statement by statement, each with
the changes of those before it on top of the tables; the commit makes changes from these results and the newest rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa

from millpond import steps
from millpond.changes import Changes, Position
from millpond.connectors.source import SEQ, NativeSource
from millpond.plan.plans import BlockPlan
from millpond.query.evaluate import Evaluator
from millpond.query.overlay import Overlay
from millpond.query.transaction import View
from millpond.store.snapshot import StoreSnapshot
from millpond.store.store import Store
from millpond.streaming.ahead import AheadStatement, Moved
from millpond.streaming.block_members import Effects, Finish, Member, member_of
from millpond.streaming.fold import Inputs

if TYPE_CHECKING:
    from millpond.engine.batch import Batch


@dataclass(frozen=True, slots=True)
class BlockAhead:
    """Contains what Spark has evaluated of a batch before its commit: of each statement, and the number of rows of the
    stream. ``versions`` are those of the tables that the queries of the statements have read.
    """

    evaluated: Sequence[Finish]
    rows: int
    versions: Mapping[str, int]


@dataclass(kw_only=True, eq=False, repr=False)
class Block(AheadStatement):
    """Runs several statements as one pipeline. Each sees the changes of the ones before it."""

    plan: BlockPlan
    evaluator: Evaluator
    inputs: Inputs
    in_order: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self._members = [
            member_of(p, self.catalog, self.evaluator, self.inputs, self.store) for p in self.plan.members
        ]
        self._own = {name: schema for m in self._members for name, schema in m.tables.items()}
        touched = Counter(name for m in self._members for name in m.writes | m.uses)
        self._shared = frozenset(name for name, members in touched.items() if members > 1)
        self._ahead: BlockAhead | None = None

    def set_up(self) -> None:
        for member in self._members:
            member.set_up(self.stages, self.plan.rule)
        self.keep(self._own)

    def begin(self) -> None:
        if any(m.is_new(self.store.snapshots()) for m in self._members):
            self.commit(self._schema.empty_table(), None)

    @property
    def owned(self) -> tuple[str, ...]:
        return (*super().owned, *self._own)

    @property
    def read_tables(self) -> tuple[str, ...]:
        return tuple(sorted({name for m in self._members for name in m.reads}))

    @property
    def _schema(self) -> pa.Schema:
        return self.plan.batch.output.arrow().append(pa.field(SEQ, pa.int64()))

    def evaluate(self, batch: Batch, snapshots: StoreSnapshot) -> pa.Table:
        """Returns the rows of the stream unchanged. If Spark has evaluated a large batch, there are none left."""
        self._ahead = None
        if self.here or batch.is_here or not self._members[0].is_large(batch):
            return steps.timed(f"read stream {self.plan.batch.stream.relation.name}", batch.read)
        self._ahead = self._evaluate_ahead(batch, snapshots)
        return self._schema.empty_table() if self._ahead is not None else batch.read()

    def _evaluate_ahead(self, batch: Batch, snapshots: StoreSnapshot) -> BlockAhead | None:
        """Returns what Spark evaluates; None if a later statement depends on values that change each time."""
        from millpond.engine.row_count import count_rows

        # Of the messages of a topic some may not be rows.
        known = None if isinstance(batch.source, NativeSource) else batch.size
        if sum(m.scans for m in self._members) + (known is None) > 1:
            batch.shared = True
        chain, found = _Chain(self.store, snapshots, self._shared), []
        for n, member in enumerate(self._members):
            with steps.step(f"{_step(n, member)}, on Spark"):
                found.append(member.on_spark(batch, chain.view))
            if any(member.writes & later.uses for later in self._members[n + 1 :]):
                if not member.repeats:
                    return None
                chain.add(found[-1](chain.view))
        rows = count_rows(batch) if known is None else known
        return BlockAhead(found, rows, self.versions(snapshots))

    def commit(self, rows: pa.Table, position: Position | None) -> int:
        ahead, self._ahead = self._ahead, None
        batch = rows.rename_columns(self._schema.names).cast(self._schema)
        tables = dict.fromkeys(m.target.name for m in self.plan.members if m.target.kind == "table")
        into = (*tables, *self._own)

        def find(now: StoreSnapshot) -> Effects:
            if ahead is None:
                return self._find(now, lambda n, view: self._members[n].here(batch, view))
            if self.versions(now) != ahead.versions:
                raise Moved
            return self._find(now, lambda n, _: ahead.evaluated[n])

        self.write(find, position, sent=lambda sent: sent, into=into)
        if ahead is None:
            return int(rows.num_rows)
        for member in self._members:
            member.note_success(self.plan.name)
        return ahead.rows

    def _find(self, now: StoreSnapshot, evaluated: Callable[[int, StoreSnapshot], Finish]) -> Effects:
        """Returns the effects of all statements, of which ``evaluated`` returns one by one."""
        chain = _Chain(self.store, now, self._shared)
        for n, member in enumerate(self._members):
            with steps.step(_step(n, member)):
                chain.add(evaluated(n, chain.view)(chain.view))
        return chain.effects()


def _step(n: int, member: Member) -> str:
    return f"statement {n + 1} of the block, into {member.name}"


class _Chain:
    """Collects the effects of the statements of a block. ``view`` shows the tables with them, as far as several
    statements read or change a table: these are the ``shared`` ones.
    """

    def __init__(self, store: Store, now: StoreSnapshot, shared: frozenset[str]):
        self._store = store
        self._now = now
        self._shared = shared
        self._changes: dict[str, Changes] = {}
        self._overlays: dict[str, Overlay] = {}
        self._sent: dict[str, list[pa.Table]] = {}
        self.view = View(now, self._overlays)

    def add(self, effects: Effects) -> None:
        changes, rows = effects
        for name, change in changes.items():
            if name.lower() not in self._shared:
                self._changes[name] = change
                continue
            fitting = self._store.backend(name).check(change)
            if name.lower() not in self._overlays:
                self._overlays[name.lower()] = Overlay(self._now.snapshot(name))
            self._overlays[name.lower()].stage(fitting)
        for name, given in rows.items():
            self._sent.setdefault(name, []).append(given)

    def effects(self) -> Effects:
        """Returns those of all statements."""
        overlaid = {name: overlay.changes() for name, overlay in self._overlays.items()}
        return {**self._changes, **overlaid}, {name: pa.concat_tables(p) for name, p in self._sent.items()}
