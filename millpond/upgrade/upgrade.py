"""Upgrades a state directory to a changed file.

All of it is one commit of the journal, made while nothing runs; the app then starts as after any restart. What is
dropped is marked in that commit, and removed when the statements of the file have run: if one fails, a start with the
old file finds it again. So a kill leaves the old state, or the new one.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from millpond import faults
from millpond.errors import CheckFailed, Error
from millpond.journal.catalog import Entry
from millpond.journal.revision import Revision
from millpond.plan.connectors import Connectors
from millpond.query.evaluate import Evaluator
from millpond.query.result import Result
from millpond.replace.leftovers import BUILDING
from millpond.replace.or_replace import Replacements
from millpond.replace.shadow_tables import ShadowTables
from millpond.sql.checked_commands import CheckedUpgrade
from millpond.sql.errortables import error_table
from millpond.sql.reserved_names import difference_of, is_part, shadow_of
from millpond.statements.drop import Removals, run_again
from millpond.statements.handlers import Handlers, WithTypes, handle
from millpond.statements.indexes import Indexes
from millpond.statements.saved_statements import SavedStatements
from millpond.statements.script import Checks
from millpond.statements.secrets import Secrets
from millpond.statements.sql_file import read_sql_file
from millpond.statements.text_run import TextRun
from millpond.store.catalog import Saved, SavedIndex, SavedQuery, SavedRelation
from millpond.store.done_statements import with_notes
from millpond.store.store import Store
from millpond.store.undo import Undo
from millpond.upgrade.decisions import Decision, as_table, raise_refused
from millpond.upgrade.edits import Edit, Upgrade
from millpond.upgrade.facts import Facts
from millpond.upgrade.plan import UpgradePlanner
from millpond.upgrade.rebuilds import Rebuilds

log = logging.getLogger("millpond")
Agree = Callable[[Sequence[Decision]], None]
"""Is told what an upgrade does; raises an error if it must not."""


@dataclass(frozen=True, eq=False, repr=False)
class Upgrades:
    """Upgrades a state directory."""

    planner: UpgradePlanner
    store: Store
    text: TextRun
    removals: Removals
    indexes: Indexes
    secrets: Secrets
    rebuilds: Rebuilds

    @property
    def handlers(self) -> Handlers:
        return {**dict((handle(CheckedUpgrade, self.explain),)), **self.rebuilds.shadows.handlers}

    def explain(self, checked: CheckedUpgrade, undo: Undo) -> Result:
        """Returns what an upgrade to another file would do."""
        s = checked.statement
        return Result(as_table(self.decisions(read_sql_file(Path(s.path)), shadow=s.shadow)))

    def prepare(self, text: str, agree: Agree, *, shadow: bool = False) -> bool:
        """Changes the state directory, of which nothing runs yet, as a text says; returns whether it did, or a start
        before has and could not finish. Raises an error, and changes nothing, if that is not possible or not agreed to.
        With ``shadow`` what is rebuilt stays beside the old tables.
        """
        self.planner.saved.compare_values(self.store.journal)
        upgrade = self.planner.plan(text, self.text, fully=False, shadow=shadow)
        raise_refused(upgrade.decisions)
        if any(d.asks or d.action not in ("kept", "new") for d in upgrade.decisions):
            agree([_masked(d, self.secrets) for d in upgrade.decisions])
        if not upgrade.edits and not upgrade.again:
            return any(e.dropping for e in self.planner.saved.entries.values())
        faults.reach("upgrade: planned")
        self._commit(upgrade)
        faults.reach("upgrade: committed")
        return True

    def decisions(self, text: str, *, shadow: bool = False) -> Sequence[Decision]:
        """Returns what an upgrade to a text would do. ``shadow`` is as in ``prepare``."""
        self.planner.saved.compare_values(None)
        upgrade = self.planner.plan(text, self.text, fully=True, shadow=shadow)
        return [_masked(d, self.secrets) for d in upgrade.decisions]

    def _commit(self, upgrade: Upgrade) -> None:
        journal = self.store.journal
        forgotten = [e.entry for e in upgrade.edits if e.forgets and isinstance(e.entry, SavedRelation)]
        tables = [t for entry in forgotten for t in self._tables(entry)]
        positions = [p for e in forgotten for p in journal.positions() if self._is_position_of(p, e)]
        streams = [e.name for e in forgotten if e.kind == "stream" and journal.stream_end(e.name)]

        rows = {n: r for e in upgrade.edits for n, r in e.rows.items()}
        tables += [n for n in rows if journal.has_table(n)]
        prepared = {name: journal.snapshot([part]) for name, part in rows.items()}
        for name, marks in upgrade.again.items():
            run_again(self.store, name, marks)
        undone = [stored for name, marks in upgrade.again.items() for stored in with_notes(marks, name)]

        def revision(number: int) -> Revision:
            put = [_numbered(edit, number).entry() for edit in upgrade.edits]
            put += [Entry(shadow_of(n), BUILDING, "") for n in upgrade.beside]  # the next start removes them
            drop = [(e.kind, e.name) for n in upgrade.beside for e in self._shadow_entries(n)]
            return Revision(put, drop, tables=tables, streams=streams, positions=positions, undone=undone)

        journal.alter(revision, prepared)

    def _shadow_entries(self, table: str) -> list[Saved]:
        names = (f"table:{shadow_of(table)}", f"view:{difference_of(table)}")
        return [entry for name in names if (entry := self.planner.saved.get(name)) is not None]

    def _is_position_of(self, position: str, entry: SavedRelation) -> bool:
        """Returns whether a position is one of a statement, or of its part for one of several streams."""
        others = self.planner.saved.entries.keys() - {entry.id}
        return is_part(position, f"{entry.kind}:{entry.name}") and position.lower() not in others

    def _tables(self, entry: SavedRelation) -> list[str]:
        """Returns the tables of the journal with what a statement has stored."""
        query = f"{entry.kind}:{entry.name}"
        own = {error_table(query).lower()} | ({entry.name.lower()} if entry.kind == "table" else set())
        return [t for t in self.store.journal.table_names() if t in own or _is_of(t, query)]

    @contextmanager
    def explaining(self, *, changed: bool) -> Iterator[None]:
        """Adds to the error of a statement of the file what an upgrade before it has ``changed``."""
        try:
            yield
        except Error as error:
            if changed:
                hint = "the other changes of the file are made: start again when it is corrected"
                if hidden := [f'{e.kind} "{e.name}"' for e in self.planner.saved.hidden.values()]:
                    hint += (
                        f". What it drops is still stored, for a start with the old file: {', '.join(hidden)}"
                    )
                for one in error.errors if isinstance(error, CheckFailed) else (error,):
                    one.hint = hint if one.hint is None else f"{one.hint}; {hint}"
            raise

    def finish(self) -> None:
        """Removes what an upgrade has marked as dropped."""
        marked = [e for e in self.planner.saved.entries.values() if e.dropping]
        for entry in [e for e in marked if isinstance(e, SavedIndex)]:
            index = self.planner.catalog.index(entry.name)
            if index is not None:
                self.indexes.drop(index)
        found = [self.planner.catalog.find(e.name) for e in marked if isinstance(e, SavedRelation)]
        relations = [r for r in found if r is not None]
        if relations:
            self.removals.drop_all(relations)
            for relation in relations:
                log.info("%s %s is dropped: the file does not have it any more", relation.kind, relation.name)
        for query in [e for e in marked if isinstance(e, SavedQuery)]:
            log.warning("the query %s is not in the SQL any more; it is dropped", query.name)
            if self.planner.saved.get(query.id) is not None:  # else it has gone with what it uses
                self.removals.take_back_query(query.name)
        faults.reach("upgrade: finished")


def make_upgrades(
    saved: SavedStatements,
    checks: Checks,
    connectors: Connectors,
    home: Path,
    with_types: WithTypes,
    evaluator: Evaluator,
    text: TextRun,
    removals: Removals,
    indexes: Indexes,
    secrets: Secrets,
    replacements: Replacements,
    lock: threading.RLock,
) -> Upgrades:
    """Makes what upgrades the state directory ``home``."""
    store = removals.store
    facts = Facts(store, connectors, home)
    planner = UpgradePlanner(removals.catalog, saved, checks, facts, with_types, evaluator)
    rebuilds = Rebuilds(lock, ShadowTables(text, checks, replacements), replacements)
    return Upgrades(planner, store, text, removals, indexes, secrets, rebuilds)


def _is_of(name: str, query: str) -> bool:
    """Returns whether a table or position belongs to a query."""
    name, query = name.lower(), query.lower()
    return name == query or name.startswith(f"{query}$")


def _numbered(edit: Edit, number: int) -> Saved:
    """Returns the entry of an edit, with the number of the commit that changes its columns."""
    entry = edit.entry
    if not edit.changes:
        return entry
    assert isinstance(entry, SavedRelation)
    altered = entry.altered
    for change in edit.changes:
        altered = altered.and_then(number, change)
    return replace(entry, altered=altered)


def _masked(decision: Decision, secrets: Secrets) -> Decision:
    return replace(decision, why=secrets.mask(decision.why))
