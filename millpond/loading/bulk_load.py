"""Loads tables from outside sources: first with everything that exists, then with what is new."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond import faults
from millpond.changes import Changes, Offset, Position
from millpond.clock import Clock
from millpond.connectors import abilities
from millpond.connectors.source import SEQ, Source
from millpond.errors import BadData, Error, without_passwords
from millpond.formats.read_records import none_rejected, rejected_table
from millpond.loading.chunks import Answer, Groups, Splits, sizes_of
from millpond.loading.evaluation import Evaluation
from millpond.loading.file_origins import Origins, without_seq
from millpond.loading.followers import OverSources
from millpond.loading.inputs import Inputs
from millpond.loading.large_reads import LargeReads
from millpond.loading.open_sources import OpenSource
from millpond.loading.progress import Report
from millpond.plan.plans import LoadPlan
from millpond.query.evaluate import Evaluator
from millpond.records.text import to_json
from millpond.sql.catalog import Relation
from millpond.sql.errortables import ERROR_COLUMNS
from millpond.sql.pushdown import need_of
from millpond.sql.resolve import Input
from millpond.store.error_records import message_records, renewed
from millpond.store.store import Store

log = logging.getLogger("millpond")


TakeIn = Callable[[LoadPlan, Iterable[Relation]], LoadPlan | None]
"""Makes the plan of a table over sources that have more columns now; None if it does not change."""


def fingerprint(*offsets: object) -> str:
    """Returns the identity of a step: the offsets that it lies between."""
    return hashlib.sha256(json.dumps(offsets, sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Reached:
    """Contains how far a table was loaded: up to ``at``, and, if a step was interrupted, towards ``to`` by the first
    ``chunks``."""

    at: Offset | None = None
    to: Offset | None = None
    chunks: int = 0
    groups: Groups | None = None
    """How the splits of an interrupted step are grouped to chunks; without it they are chunks of rows."""
    known: bool = True
    """Whether that is known: otherwise only a comparison shows what is missing."""

    @staticmethod
    def of(position: Position | None) -> Reached:
        if position is None:
            return Reached()
        at, to = position.offsets.get("at"), position.offsets.get("to")
        noted = position.offsets.get("groups")
        groups = None if noted is None else Groups(**noted)
        return Reached(at, to, position.batch + 1, groups, at is not None or to is not None)


class LoadedTable(OverSources):
    """Keeps a table equal to a query over outside sources: first with everything that they have, then with what is new.

    If the rows of the one source ``plan.by`` are independent, chunks of new ones are added, each with its position in
    one commit. If a source was replaced, or the query depends on all rows, it is evaluated again and the difference is
    committed.
    """

    def __init__(
        self,
        plan: LoadPlan,
        report: Report,
        store: Store,
        evaluator: Evaluator,
        inputs: Inputs,
        open_source: OpenSource,
        clock: Clock,
        take_in: TakeIn,
        large: LargeReads,
    ):
        self.plan = plan
        self._report = report
        self._store = store
        self._evaluator = evaluator
        self._evaluation = Evaluation(
            plan, large, evaluator, inputs, store.snapshots, keyed=lambda: bool(self._key)
        )
        self._open_source = open_source
        self._clock = clock
        self._take_in = take_in
        self._views = _sources_of(plan)
        self._opened: dict[str, Source] = {}
        self._origins: Origins | None = None
        self._tried: list[tuple[str, ...]] = [i.relation.schema.names for i in self._views.values()]

    @property
    def _key(self) -> tuple[str, ...]:
        return self._store.backend(self.plan.target.name).schema.key

    refused: Error | None = None
    """Why changes are not followed, although that was requested."""

    def release(self) -> None:
        """Releases what other systems store for the table, which was dropped."""

    def abandon(self, *, new: bool) -> None:
        """Ends a load that failed; if it is ``new`` the table will not exist."""

    @property
    def sources(self) -> dict[str, Source]:
        """Returns the sources by view. They stay those that the statement opened, whatever others specify for the same
        addresses."""
        for view, i in self._views.items():
            if view not in self._opened:
                self._opened[view] = abilities.narrowed(
                    self._open_source(i.relation), need_of(self.plan.query, i)
                )
        return {view: self._opened[view] for view in self._views}

    @property
    def reads(self) -> list[Relation]:
        return [i.relation for i in self._views.values()]

    @property
    def settled(self) -> bool:
        """Returns whether everything is in the table, and nothing is pending."""
        at = self._reached().at
        sources = self.sources
        return at is not None and all(abilities.settled(sources[view], offset) for view, offset in at.items())

    def _reached(self) -> Reached:
        return Reached.of(self._store.position(self.plan.name))

    def advance(self) -> int:
        """Updates the table to what the sources have now; returns how many rows that added."""
        reached = self._reached()
        if not reached.known:
            return self._compare(self._ends({}), damaged=False)
        rows = 0
        at = reached.at
        if reached.to is not None:
            now = self._ends(reached.to)
            if self._replaced(reached.to, now) or not self._stands(reached.to):
                return self._compare(now, damaged=at is not None)
            rows, at = self._append(at, reached.to, reached), reached.to
        end = self._ends(at or {})
        if at == end:
            return rows
        if at is not None and (self.plan.by is None or self._replaced(at, end)):
            return rows + self._compare(end, damaged=self._replaced(at, end))
        return rows + self._append(at, end)

    def _noting(self) -> Origins | None:
        """Returns what records the origin of the table's rows, if parts of the source may be removed while their rows
        remain valid."""
        by = self.plan.by
        if self.plan.once:
            return None  # nothing is compared with later rows
        if self._origins is None and by is not None and abilities.leaves(self.sources[by.view]):
            self._origins = Origins(self._store, self._evaluator, self.plan)
        return self._origins

    def _ends(self, at: Offset) -> Offset:
        return {view: source.latest(at.get(view)) for view, source in self.sources.items()}

    def _replaced(self, at: Offset, end: Offset) -> bool:
        return any(at.get(v) is None or abilities.replaced(s, at[v], end[v]) for v, s in self.sources.items())

    def _stands(self, end: Offset) -> bool:
        return all(abilities.stands(s, end[v]) for v, s in self.sources.items())

    def _splits(self, at: Offset | None, end: Offset) -> Splits:
        before = at or {}
        return {view: s.splits(before.get(view), end[view]) for view, s in self.sources.items()}

    def _take_in_columns(self, splits: Splits) -> None:
        """Adds new columns of the sources to the table, if its query reads all there are."""
        sources = self.sources
        for view, source in sources.items():
            abilities.notice(source, splits[view])
        names = [source.schema().names for source in sources.values()]
        if names == self._tried:
            return
        self._tried = names
        found = self._take_in(self.plan, {r.name: r for r in self.reads}.values())
        if found is not None:
            self.plan = self._evaluation.plan = found
            self._views = _sources_of(self.plan)

    def _append(self, at: Offset | None, end: Offset, resumed: Reached | None = None) -> int:
        """Adds what lies between two offsets, without the chunks that were added before: they are divided as then."""
        splits = self._splits(at, end)
        self._take_in_columns(splits)
        skip = resumed.chunks if resumed is not None else 0
        groups = resumed.groups if resumed is not None else self._evaluation.groups(self.sources, splits)
        name, number, rows = self.plan.target.name, skip - 1, 0
        checkpoint, of = fingerprint(at, end), sizes_of(splits)
        between: dict[str, Offset] = {"to": end} if at is None else {"at": at, "to": end}
        if groups is not None:
            between["groups"] = groups._asdict()
        self._report(replace(of, table=name))
        faults.reach("load: begun")
        for number, answer in enumerate(self._answers(splits, groups, skip), skip):
            found, nameless = self._with_keys(answer.rows)
            found, noted = self._noted_parts(found)
            rows += found.num_rows
            position = Position(self.plan.name, checkpoint, number, between)
            rejected = pa.concat_tables([answer.rejected, nameless])
            faults.reach("load: chunk read")
            self._commit(Changes(found), position, self._noted(rejected), noted=noted)
            faults.reach("load: chunk committed")
            self._report(replace(of, table=name, rows=rows, bytes=answer.read, files=answer.files))
        faults.reach("load: all chunks committed")
        nothing = self.plan.query.schema.arrow().empty_table()
        noted = origins.every() if at is None and (origins := self._noting()) is not None else None
        self._commit(
            Changes(nothing), Position(self.plan.name, checkpoint, number + 1, {"at": end}), noted=noted
        )
        done = replace(of, table=name, rows=rows, bytes=of.total or 0, files=of.of_files or 0, finished=True)
        self._report(done)
        return rows

    def _answers(self, splits: Splits, groups: Groups | None, skip: int = 0) -> Iterator[Answer]:
        """Yields the rows of the query over what is to be read, chunk by chunk; the first are skipped."""
        numbered = self.plan.by is not None and self._noting() is not None
        return self._evaluation.answers(self.sources, splits, groups, skip=skip, numbered=numbered)

    def _noted(self, rejected: pa.Table) -> pa.Table:
        """Returns error records of records that could not be read."""
        what = without_passwords(", ".join(i.relation.name for i in self._views.values()))
        rejected = rejected.rename_columns({"place": "seq"})
        return message_records(self.plan.name, what, rejected, ERROR_COLUMNS, self._clock.now())

    def _compare(self, end: Offset, *, damaged: bool) -> int:
        """Makes the table equal to the query over everything up to an offset. ``damaged``: what cannot be read may have
        been read before, and deletes no rows."""
        splits = self._splits(None, end)
        self._take_in_columns(splits)
        name, arrow = self.plan.target.name, self.plan.query.schema.arrow()
        answers = list(self._answers(splits, self._evaluation.groups(self.sources, splits)))
        parts = [self._noted_parts(a.rows) for a in answers]
        rows = pa.concat_tables([arrow.empty_table(), *(found for found, _ in parts)])
        rejected = pa.concat_tables([none_rejected(), *(a.rejected for a in answers)])
        if damaged:
            self._refuse_damage(rejected)
        key = self._store.backend(name).schema.key
        rows, nameless = self._with_keys(rows)
        records = self._noted(pa.concat_tables([rejected, nameless]))
        own = self._store.backend(name).snapshot().scan(rows=not key)
        left = self._left(end, own.select(rows.column_names).cast(rows.schema))
        if left is not None:
            rows = pa.concat_tables([left, rows])
        if key:
            rows = last_of_each(rows, key)
        changes = self._evaluator.difference(own, rows.cast(own.select(rows.column_names).schema), key)
        if changes.deleted is not None and left is None:
            changes = Changes(changes.put)
        position = Position(self.plan.name, fingerprint("compared", end), 0, {"at": end})
        noted = [note for _, note in parts if note is not None]
        faults.reach("load: compared")
        self._commit(changes, position, records, full=True, noted=pa.concat_tables(noted) if noted else None)
        faults.reach("load: difference committed")
        return len(changes)

    def _left(self, end: Offset, own: pa.Table) -> pa.Table | None:
        """Returns the rows of the table that remain valid, although their origin is gone; None if nothing distinguishes
        them from others: then a comparison deletes no rows."""
        by = self.plan.by
        parts = abilities.left(self.sources[by.view], end[by.view]) if by is not None else frozenset()
        if parts is not None and parts and (origins := self._noting()) is not None:
            return origins.find(own, parts)
        return own.slice(0, 0) if parts == frozenset() else None

    def _noted_parts(self, rows: pa.Table) -> tuple[pa.Table, pa.Table | None]:
        """Returns the rows without their sequence numbers, and the records of their origin."""
        if SEQ not in rows.column_names:
            return rows, None
        by, origins = self.plan.by, self._noting()
        assert by is not None and origins is not None
        seqs, plain = rows[SEQ], without_seq(rows)
        return plain, origins.of(plain, seqs, abilities.part_of(self.sources[by.view], seqs.to_numpy()))

    def _with_keys(self, rows: pa.Table) -> tuple[pa.Table, pa.Table]:
        """Returns the rows that have a key, and error records of the others. Without an error table the commit refuses
        them."""
        key = self._key
        if self.plan.errors is None or self.plan.null_keys:
            return rows, none_rejected()
        bad = np.zeros(rows.num_rows, bool)
        for name in key:
            if rows[name].null_count:
                bad |= rows[name].is_null().to_numpy()
        if not bad.any():
            return rows, none_rejected()
        texts = [to_json(row).encode() for row in without_seq(rows.filter(pa.array(bad))).to_pylist()]
        reason = f"{' or '.join(key)} is NULL, which is a key"
        rejected = rejected_table([0] * len(texts), [reason] * len(texts), texts)
        return rows.filter(pa.array(~bad)), rejected

    def _refuse_damage(self, rejected: pa.Table) -> None:
        """Refuses a file, or a part of one, that could be read before and cannot be read now: it deletes no rows, and
        the table stays."""
        damaged = rejected.filter(rejected["value"].is_null())
        if self.plan.errors is None or not damaged.num_rows:
            return
        known = self._store.backend(self.plan.errors).snapshot().scan()["reason"]
        fresh = damaged.filter(pc.invert(pc.is_in(damaged["reason"], known)))
        if fresh.num_rows:
            raise BadData(fresh["reason"][0].as_py())

    def _commit(
        self,
        changes: Changes,
        position: Position,
        records: pa.Table | None = None,
        *,
        full: bool = False,
        noted: pa.Table | None = None,
    ) -> None:
        """Commits changes. ``records`` are added to the error records, or, if ``full``, replace them; and so do the
        ``noted`` origins of rows."""
        made, errors = {self.plan.target.name: changes}, self.plan.errors
        if errors is not None and records is not None:
            known = self._store.backend(errors).snapshot().scan(rows=True) if full else None
            if known is not None and known.num_rows:
                made[errors] = renewed(known, records)
            elif records.num_rows:
                made[errors] = Changes(records)
            if records.num_rows:
                said = 'table "%s": %s records cannot be read, see "%s"'
                log.warning(said, self.plan.target.name, records.num_rows, errors)
        if self._origins is not None and noted is not None:
            by = self.plan.by
            assert by is not None
            kept = abilities.left(self.sources[by.view], position.offsets["at"][by.view]) if full else None
            made[self._origins.table] = self._origins.renewed(noted, kept) if full else Changes(noted)
        self._store.commit(made, position)


def _sources_of(plan: LoadPlan) -> dict[str, Input]:
    """Returns the sources by view."""
    return {i.view: i for i in plan.query.inputs if i.relation.kind == "source"}


def last_of_each(rows: pa.Table, key: Sequence[str]) -> pa.Table:
    """Returns the rows without those that have a later one of the same key."""
    numbered = rows.select(list(key)).append_column("__at", pa.array(np.arange(rows.num_rows)))
    last = numbered.group_by(list(key)).aggregate([("__at", "max")])["__at_max"]
    return rows if len(last) == rows.num_rows else rows.take(last.take(pc.sort_indices(last)))
