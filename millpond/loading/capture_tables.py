"""Keeps tables equal to tables in databases, by change capture.

First come all rows, as they were at one position in the log, then the changes after it: each commit contains whole
transactions of the database and the position after them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from millpond import faults
from millpond.changes import ROW, Changes, Offset, Position
from millpond.clock import Clock
from millpond.connectors.cdc.capture_source import Capturing
from millpond.connectors.cdc.log import ADDED, EMPTIED, ENDED, KEPT, MOVED, OP, PUT, LogPosition
from millpond.connectors.cdc.log_positions import LogPositions
from millpond.connectors.source import Source, find_source
from millpond.errors import CaptureLost, CaptureRefused, Closed, Error
from millpond.loading.bulk_load import LoadedTable, Reached, TakeIn, fingerprint, last_of_each
from millpond.loading.capture_groups import CaptureGroup, CaptureGroups, Part
from millpond.loading.chunks import Splits
from millpond.loading.followers import Mask
from millpond.loading.inputs import Inputs
from millpond.loading.large_reads import LargeReads
from millpond.loading.open_sources import OpenSource
from millpond.loading.progress import Report
from millpond.options import find_option, read_options
from millpond.plan.plans import LoadPlan
from millpond.query.evaluate import Evaluator
from millpond.sql.parse import parse
from millpond.sql.reads import uris_read
from millpond.sql.statements import CreateStream, CreateTable
from millpond.sql.table_copies import copied
from millpond.store.catalog import Saved
from millpond.store.store import Store
from millpond.tables.base import Snapshot

log = logging.getLogger("millpond")


class CapturedTable(LoadedTable):
    """Keeps a table equal to a table of a database. If changes cannot be captured, it polls, or leaves the rows as they
    are.
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
        identity: str,
        mask: Mask,
        groups: CaptureGroups,
        *,
        kept: bool,
    ):
        super().__init__(plan, report, store, evaluator, inputs, open_source, clock, take_in, large)
        self._mask = mask
        relation = next(iter(self._views.values())).relation
        shared = open_source(relation)
        assert isinstance(shared, Capturing)
        self._shared = shared
        """The source that statements are checked with."""
        self._source = shared.claimed(f"{identity}/{plan.name}")
        self._kept = kept
        self._groups = groups
        self._group: CaptureGroup | None = None
        self.refused: Error | None = None
        """Why the changes are not followed."""

    @property
    def sources(self) -> dict[str, Source]:
        return {view: self._source for view in self._views}

    @property
    def _view(self) -> str:
        return next(iter(self._views))

    @property
    def settled(self) -> bool:
        at = self._reached().at
        if at is None:
            return self.refused is not None
        return self._source.settled(at[self._view])

    def advance(self) -> int:
        try:
            rows = self._follow()
        except (CaptureRefused, CaptureLost) as error:
            polled = self._source.polls_instead
            if not polled and self._reached().at is not None:
                raise
            if self.refused is None:
                name, hint = self.plan.target.name, f" ({error.hint})" if error.hint else ""
                loads = self._source.loads_first
                does = "is polled" if polled else "was read once" if loads else "has no rows yet"
                log.warning('table "%s" %s: %s', name, does, self._mask(f"{error.message}{hint}"))
            self.refused = error
            self._leave()
            self._source.fall_back(error)
            return super().advance() if polled or self._source.loads_first else 0
        self.refused = None
        return rows

    def _follow(self) -> int:
        reached, source = self._reached(), self._source
        rows = 0
        if reached.at is None or "log" not in reached.at[self._view]:
            rows = self._begin(reached)
        if (positions := source.log_positions) is not None:
            self._group = self._group or self._groups.of(positions.line, self.plan.target.name)
            return rows + self._group.advance(self)
        while not source.reached(at := self._at, end := source.latest(at)):
            part = self._read(at, end)
            self._commit(part.changes, part.position)
            rows += len(part.changes)
        return rows

    def _begin(self, reached: Reached) -> int:
        """Loads the rows before a position in the log."""
        end = {self._view: self._source.begin_capture()}
        try:
            faults.reach("capture: begun")
            reload = reached.at is not None or reached.to is not None or not reached.known
            if reload and not self._source.loads_first:
                nothing = Changes(self.plan.query.schema.arrow().empty_table())
                self._commit(nothing, Position(self.plan.name, fingerprint(end), 0, {"at": end}))
                return 0
            return self._compare(end, damaged=False) if reload else self._append(None, end)
        finally:
            self._source.begun()

    @property
    def _at(self) -> Offset:
        reached = self._reached().at
        if reached is None:  # its position is gone: it is dropped
            raise Closed("the table is not followed any more")
        at: Offset = reached[self._view]
        return at

    def horizon(self) -> LogPosition:
        return self._log_positions.horizon(self._at)

    @property
    def _log_positions(self) -> LogPositions:
        positions = self._source.log_positions
        assert positions is not None
        return positions

    def part(self, position: LogPosition) -> Part | None:
        at = self._at
        end = self._log_positions.until(at, position)
        return None if self._source.reached(at, end) else self._read(at, end)

    def _take_in_columns(self, splits: Splits) -> None:
        before = self._source.schema().names
        self._source.notice(splits[self._view])
        if self._source.schema().names != before:
            self._shared.take_columns(self._source.schema())
            super()._take_in_columns(splits)

    def _read(self, at: Offset, end: Offset) -> Part:
        """Reads what the log has between two positions."""
        splits = self._splits({self._view: at}, {self._view: end})
        self._take_in_columns(splits)
        found = [batch for split in splits[self._view] for batch in self._source.read(split)]
        between = fingerprint({self._view: at}, {self._view: end})
        position = Position(self.plan.name, between, 0, {"at": {self._view: end}})
        return Part(self.plan.target.name, self._changes(found), position)

    def _changes(self, batches: Sequence[pa.RecordBatch]) -> Changes:
        target = self._store.backend(self.plan.target.name)
        names = copied(self.plan.query) or ()
        schema = target.schema
        if not batches:
            return Changes(schema.arrow().empty_table())
        logged = pa.Table.from_batches(list(batches))
        rows = self._evaluation.over(self._view, logged)
        ops = logged[OP].to_numpy()
        own = target.snapshot()
        if logged[KEPT].null_count < logged.num_rows:
            read = [n.lower() for n in logged.column_names]
            places = {read.index(n.lower()): i for i, n in enumerate(names)}
            rows = with_kept(rows, ops, logged[KEPT], places, list(schema.key), own)
        return changes_of(rows, ops, list(schema.key), own, self._evaluator)

    def abandon(self, *, new: bool) -> None:
        if new:
            self.release()
        self.close()

    def close(self) -> None:
        self._leave(for_good=True)
        if not self._kept:
            self.release()
        super().close()

    def _leave(self, *, for_good: bool = False) -> None:
        if self._group is not None:
            self._group.leave(self, for_good=for_good)

    def release(self) -> None:
        """Releases what the database stores for the table, which was dropped."""
        let_go(self._mask, f'table "{self.plan.target.name}"', self._source.release)


def changes_of(
    rows: pa.Table, ops: np.ndarray, key: list[str], own: Snapshot, evaluator: Evaluator
) -> Changes:
    """Returns what logged changes, in their order, do to the rows of a table."""
    emptied = np.flatnonzero(ops == EMPTIED)
    first = int(emptied[-1]) + 1 if len(emptied) else 0
    rows, ops = rows.slice(first), ops[first:]
    ended = (ops == ENDED) | (ops == MOVED)
    if not key:
        return _by_value(rows, ended, own.scan(rows=True), evaluator, emptied=bool(len(emptied)))
    numbered = rows.append_column("__ended", pa.array(ended))
    last = last_of_each(numbered, key)
    if len(emptied):
        gone = own.scan().append_column("__ended", pa.array(np.ones(len(own), bool)))
        last = last_of_each(pa.concat_tables([gone.cast(last.schema), last]), key)
    return Changes(last.drop_columns(["__ended"]), last["__ended"].combine_chunks())


def _by_value(
    rows: pa.Table, ended: np.ndarray, own: pa.Table, evaluator: Evaluator, *, emptied: bool
) -> Changes:
    """Deletes, in a table without a key, one row that equals each deleted one."""
    before = own.slice(0, 0) if emptied else own
    put = pa.concat_tables([before.drop_columns([ROW]), rows.filter(pa.array(~ended))])
    numbered = put.append_column(ROW, pa.array(np.arange(put.num_rows)))
    left = evaluator.difference(numbered, rows.filter(pa.array(ended)), ())
    stay = left.rows.filter(left.deleted).drop_columns([ROW]) if left.deleted is not None else put.slice(0, 0)
    return evaluator.difference(own, stay, ())


def with_kept(
    rows: pa.Table,
    ops: np.ndarray,
    kept: pa.ChunkedArray,
    places: dict[int, int],
    key: list[str],
    own: Snapshot,
) -> pa.Table:
    """Returns the rows with the values that the log does not contain: those of the same row before, in the log or in
    the table.
    """
    keys = list(zip(*(rows[k].to_pylist() for k in key), strict=True))
    which = np.flatnonzero(kept.is_valid().to_numpy())
    known = own.get(key, rows.select(key).take(pa.array(_roots(ops, which))))
    here = dict(zip(zip(*(known[k].to_pylist() for k in key), strict=True), known.to_pylist(), strict=True))
    columns = {i: rows.column(i).to_pylist() for i in places.values()}
    last: dict[tuple[object, ...], int] = {}
    omitted = {int(i): kept[int(i)].as_py() for i in which}
    for at in range(len(ops)):
        if ops[at] == EMPTIED:
            last.clear()
            here.clear()
        elif ops[at] in (PUT, ADDED):
            if (missing := omitted.get(at)) is not None:
                old = keys[at - 1] if at and ops[at - 1] == MOVED else keys[at]
                source = last.get(old)
                for place in missing:
                    column = places.get(place)
                    if column is None:
                        continue
                    if source is not None:
                        columns[column][at] = columns[column][source]
                    elif old in here:
                        columns[column][at] = here[old][rows.column_names[column]]
            last[keys[at]] = at
        elif ops[at] == ENDED:
            last.pop(keys[at], None)
            here.pop(keys[at], None)
    for i, values in columns.items():
        rows = rows.set_column(i, rows.schema.field(i), pa.array(values, rows.schema.field(i).type))
    return rows


def _roots(ops: np.ndarray, which: np.ndarray) -> np.ndarray:
    """Returns, for rows with values that the log does not contain, the rows whose keys they had before."""
    return np.where((which > 0) & (ops[which - 1] == MOVED), which - 1, which)


def release_kept(entry: Saved | None, kind: str, name: str, identity: str, mask: Mask) -> None:
    """Releases what a database stores for a relation that is dropped, also if nothing follows it now. Only its
    statement, ``entry``, is used: what it reads may be gone.
    """
    statement = parse(entry.text).require()[0] if entry is not None else None
    if not isinstance(statement, CreateTable | CreateStream):
        return
    uris = [s.value for s in statement.settings if s.name.lower() == "connector"]
    uris += uris_read(statement.query) if statement.query is not None else []
    for uri in uris:

        def forget(uri: str = uri) -> None:
            declared = find_source(uri)
            if not issubclass(declared, Capturing):
                return
            mine = [s for s in statement.settings if find_option(declared.options, s.name) is not None]
            source = declared(uri, read_options(kind, declared.options, mine), None)
            if source.captures:
                source.forget(f"{identity}/{kind}:{name}")
                source.close()

        let_go(mask, f'{kind} "{name}"', forget)


def let_go(mask: Mask, what: str, go: Callable[[], None]) -> None:
    """Removes what a database stores for something that was dropped; if that fails, it stays there, with a warning."""
    try:
        go()
    except Error as error:
        log.warning("what the database keeps for %s stays there: %s", mask(what), mask(error.message))
