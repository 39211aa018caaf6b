"""Finishes changes of tables in databases: a kill or a lost connection left open whether they were made."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Iterable
from typing import Any

from millpond.alterations import ColumnChange, dump_change
from millpond.errors import ConnectionLost, Error, NotSupported
from millpond.sql import statements as st
from millpond.sql.catalog import Relation
from millpond.store.catalog import Saved, SavedRelation
from millpond.store.store import Store

log = logging.getLogger("millpond")


def open_pending(
    entry: SavedRelation, open_table: Callable[[SavedRelation], Store], *, read_only: bool
) -> tuple[SavedRelation, tuple[str, ...]]:
    """Opens a table whose change in its database was begun, and finishes that; returns the entry as it is then, and
    the statement of the file that is done with it. An app that only reads changes nothing: it opens the table as it is.
    """
    assert entry.pending is not None
    made = settled(entry, schema=entry.pending.schema(entry.schema), changed=True)
    try:
        store = open_table(entry)
    except ConnectionLost:
        raise
    except Error:
        open_table(made)  # it has the new columns
        return made, entry.pending_by
    if read_only:
        return entry, ()
    try:
        store.backend(entry.name).alter(entry.pending)
    except ConnectionLost:
        raise
    except Error as error:
        log.warning(
            'table "%s" stays as it was: its database refuses a change: %s', entry.name, error.message
        )
        return settled(entry), ()
    store.backend(entry.name).close()
    open_table(made)
    return made, entry.pending_by


def settled(entry: SavedRelation, **values: Any) -> SavedRelation:
    """Returns an entry, with other values, of which no change is pending."""
    return dataclasses.replace(entry, pending=None, pending_by=(), pending_with=None, **values)


def refuse_pending(entry: SavedRelation, s: st.Statement, change: ColumnChange | None = None) -> None:
    """Raises an error if another change of the table is pending."""
    pending = entry.pending
    if pending is not None and (change is None or dump_change(change) != dump_change(pending)):
        raise NotSupported(
            f'a change of column "{pending.name}" of table "{entry.name}" has begun, and its database has not answered',
            hint="run that ALTER TABLE again, or start the app again: either finishes it",
            place=s.place,
        )


def refuse_new_name(table: Relation, store: Store, s: st.Statement) -> None:
    """Raises an error if a table must keep its name."""
    if table.name in store.logged:
        raise NotSupported(
            f'table "{table.name}" cannot get another name: it follows the log of its database',
            hint="drop it, and create it with the other name and the same 'table'",
            place=s.place,
        )


def refuse_with_shadow(entries: Iterable[Saved], s: st.Statement) -> None:
    """Raises an error for a statement that creates or drops something while it is open what a change of a table takes
    with it.
    """
    if not isinstance(s, st.CreateStream | st.CreateTable | st.CreateView | st.CreateIndex | st.Drop):
        return
    for entry in entries:
        with_it = entry.pending_with if isinstance(entry, SavedRelation) else None
        if with_it is not None and (with_it.put or with_it.drop):
            raise NotSupported(
                f'ALTER TABLE … CASCADE of table "{entry.name}" has begun, and its database has not answered',
                hint="run that ALTER TABLE again, or start the app again: either finishes it",
                place=s.place,
            )
