"""Declares streams, tables and views: opens them and stores them, so that a restart restores them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from millpond import faults
from millpond.errors import AlreadyExists, NotSupported
from millpond.journal.blob_rows import Adapt
from millpond.journal.revision import Revision
from millpond.loading.discovered_columns import KeptColumns
from millpond.loading.open_sources import Sources
from millpond.plan.connectors import Connectors
from millpond.query.constraints import Constraints
from millpond.query.evaluate import Evaluator
from millpond.sql import statements as st
from millpond.sql.catalog import Catalog, Relation
from millpond.sql.checked import Checked, CheckedCreate, CheckedTable, CheckedTableAs
from millpond.sql.identity import identity
from millpond.statements.handlers import WithTypes
from millpond.statements.publications import Publications
from millpond.statements.saved_statements import SavedStatements
from millpond.statements.text_run import TextRun
from millpond.store.catalog import SavedQuery, SavedRelation, saved, table_options, widths_of
from millpond.store.dropped_tables import DroppedTables
from millpond.store.old_rows import OldRows
from millpond.store.query_states import QUERY_STATE
from millpond.store.store import Store
from millpond.store.undo import Undo
from millpond.tables.flushed_table import FlushedTable


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Declarations:
    """Declares relations. ``take_back`` removes what a failed statement has declared."""

    catalog: Catalog
    store: Store
    connectors: Connectors
    sources: Sources
    columns: KeptColumns
    publications: Publications
    dropped_tables: DroppedTables
    saved: SavedStatements
    text: TextRun
    with_types: WithTypes
    evaluator: Evaluator
    old_rows: OldRows
    take_back: Callable[[Relation], None]
    read_only: bool

    def declare(self, checked: CheckedCreate, undo: Undo) -> SavedRelation:
        """Declares a stream, table or view; returns its entry for the journal."""
        checked = self.with_types(checked)
        relation, journal = checked.relation, self.store.journal
        if relation.kind == "table":
            self._check_stored(checked)
        undo.on_failure(partial(self.take_back, relation))
        if not isinstance(checked, CheckedTable):
            undo.put(self.sources.values, checked.source_options)
        if relation.kind == "table":
            self.dropped_tables.finish_one(relation.name)
            journal.drop_table(relation.name)
        elif relation.kind == "stream" and journal.stream_end(relation.name):
            journal.drop_stream(relation.name)
        options = table_options(checked)
        self.open(relation, options)
        faults.reach("relation opened")
        made = saved(checked, identity(checked.statement))
        if isinstance(table := self.store.table(relation.name), FlushedTable):
            if isinstance(checked, CheckedTableAs) and len(table):
                raise NotSupported(
                    f"{table.what} is filled by a query, and there are {len(table):,} rows of something else already",
                    hint="take another place; or declare its columns, and INSERT INTO it",
                    place=checked.statement.place,
                )
            self.store.options[relation.name.lower()] = {**options, "anchor": table.anchor}
            made.anchor = table.anchor
        return made

    def _check_stored(self, checked: CheckedCreate) -> None:
        """Raises an error if another table of the app has its rows where this one would have them: a renamed table
        keeps its name in its database. Tables whose options say so may share rows.
        """
        options, name = table_options(checked), checked.relation.name
        place, stored = self.connectors.stored_in(options), str(options.get("table") or name)
        for other in self.catalog if place is not None else ():
            table = self.store.table(other.name)
            known = table.behind.stored_name if table is not None and other.stored_in == place else None
            if table is None or known is None or known.lower() != stored.lower():
                continue
            entry = self.saved.relation(f"table:{other.name}")
            renamed = entry is not None and entry.first_name is not None
            if renamed or (not options.get("table") and "alter" in table.abilities):
                raise AlreadyExists(
                    f'table "{other.name}" has its rows in the database under the name "{known}"',
                    hint=f"give table \"{name}\" another name there: WITH ('table' = '…')",
                    place=checked.statement.place,
                )
        if place is not None:
            self.dropped_tables.finish_stored(stored)

    def open(self, relation: Relation, options: Mapping[str, Any], adapt: Adapt | None = None) -> None:
        """Opens a relation that is declared, or that is in a state directory. ``adapt`` is as in ``Journal.restore``:
        for rows from before a change of the columns.
        """
        if relation.kind == "table":
            self.store.options[relation.name.lower()] = options
            relation = dataclasses.replace(
                relation,
                stored_in=self.connectors.stored_in(options),
                evicts=self.connectors.evicts(options),
                versioned=self.connectors.keeps_versions(options),
                flushed_by=self.connectors.flushed_by(options),
                divides=self.connectors.divides(options, relation.schema),
            )
            extension = str(options.get("extension") or "memory")
            table = self.store.create(relation, extension, options, adapt)
            if isinstance(table, FlushedTable) and table.constraints:
                table.check_rows = Constraints(relation, table.constraints, self.evaluator).check
            if not self.store.keeps(relation.name) and not self.read_only:
                self.store.journal.forget(f"table:{relation.name}")
        self.publications.add(relation)
        self.catalog.add(relation)
        if not self.read_only:
            self.old_rows.watch(relation)

    def keep(self, entry: SavedRelation | SavedQuery, reads: Sequence[Relation]) -> None:
        """Stores a statement, with the columns of its inputs: from now on a restart restores it."""
        entry.of_file = self.text.in_file
        self.saved.add(entry)
        columns = self.columns.gather(reads)
        for found in columns:
            self.columns.note(found)
        if not self.read_only:
            dropped = (
                [(QUERY_STATE, entry.name)] if isinstance(entry, SavedQuery) and not self.text.in_file else []
            )
            self.store.journal.revise(Revision([entry.entry(), *columns], dropped))
        faults.reach("statement declared")


def query_entry(name: str, checked: Checked) -> SavedQuery | None:
    """Returns the journal entry of a running statement, so that it continues after a restart."""
    statement = checked.statement
    if not isinstance(statement, (*st.WRITES, st.Block)):
        return None
    return SavedQuery(name, statement.text, identity(statement), widths_of(checked))
