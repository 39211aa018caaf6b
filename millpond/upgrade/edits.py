"""Makes the new journal entries of statements that an upgrade changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pyarrow as pa

from millpond.alterations import ColumnChange
from millpond.sql import statements as st
from millpond.sql.checked import CheckedCreate, CheckedStream, CheckedTable
from millpond.sql.identity import identity
from millpond.sql.variable_values import has_values
from millpond.store.catalog import Saved, SavedRelation, saved, without_secrets
from millpond.upgrade.columns import altered_schema
from millpond.upgrade.decisions import Altered, Decision, Difference, Kept, Rebuilt, Regrouped


@dataclass(frozen=True)
class Edit:
    """Contains the new entry of a saved statement. ``changes`` are those of a table's columns; ``forgets`` says that
    what it has stored is removed, and is made again; ``rows`` are those of the tables of a live aggregate, if they
    are made from its state.
    """

    entry: Saved
    changes: tuple[ColumnChange, ...] = ()
    forgets: bool = False
    rows: Mapping[str, pa.Table] = field(default_factory=dict)


@dataclass(frozen=True)
class Upgrade:
    """Contains what becomes of each statement, and what changes in the state directory."""

    decisions: tuple[Decision, ...]
    edits: tuple[Edit, ...] = ()
    beside: tuple[str, ...] = ()
    """The names of tables beside which what was built is removed."""
    again: Mapping[str, list[str]] = field(default_factory=dict)
    """The marks of statements that are forgotten, since others take their place, by the names of what they changed."""


def edit_of(
    s: st.Statement,
    entry: SavedRelation,
    checked: CheckedCreate,
    difference: Difference,
    *,
    same: bool,
    outside: bool,
    beside: bool,
    shadow: bool,
) -> Edit | None:
    """Returns what changes of a saved statement. ``same`` says that its text is the same, ``outside`` that a database
    has its rows, ``beside`` that the old statement can go on while it is rebuilt, ``shadow`` that it
    stays when it is.
    """
    named = entry.of_file or not same
    known = replace(entry, text=s.text, identity=identity(s), of_file=named, following=None, replaced=())
    made = replace(saved(checked, identity(s)), name=entry.name, of_file=known.of_file, anchor=entry.anchor)
    match difference:
        case Kept() if not same:
            return Edit(replace(known, changed=False, fingerprint=made.fingerprint))
        case Kept() if entry.kind == "view" and not has_values(s, entry.fingerprint):
            return Edit(replace(entry, fingerprint=made.fingerprint))
        case Altered(_, changes, _) if isinstance(checked, CheckedTable):
            options = without_secrets(checked.table_options)
            if entry.first_name is not None and "table" in entry.options:
                options["table"] = entry.options["table"]
            known = replace(known, options=options, changed=False)
            if outside:
                return Edit(replace(known, pending=changes[0] if changes else None))
            return Edit(replace(known, schema=altered_schema(entry.schema, checked.relation.schema)), changes)
        case Altered() if entry.kind == "view" or isinstance(checked, CheckedStream):
            return Edit(made)
        case Altered():
            return Edit(replace(made, schema=entry.schema, widths=entry.widths, altered=entry.altered))
        case Regrouped(_, rows):
            return Edit(made, rows=rows)
        case Rebuilt() if shadow and beside:
            return Edit(replace(entry, following=(s.text, identity(s)), shadowed=True, of_file=named))
        case Rebuilt() if entry.live and made.live and made.schema == entry.schema:
            # Its rows stay until the first round replaces them by those of the new query.
            return Edit(replace(made, altered=entry.altered))
        case Rebuilt() if beside:
            return Edit(replace(entry, following=(s.text, identity(s)), shadowed=False, of_file=named))
        case Rebuilt():
            return Edit(made, forgets=True)
    return None
