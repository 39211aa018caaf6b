"""Finds which statement of a state directory each statement of a changed file stands for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from millpond.sql import statements as st
from millpond.sql.blocks import grouped
from millpond.sql.identity import identity
from millpond.sql.parse import parse
from millpond.sql.reserved_names import shadow_of
from millpond.sql.variable_values import has_values
from millpond.statements.file_drops import passed_over
from millpond.statements.saved_statements import SavedStatements
from millpond.store.catalog import Saved, SavedQuery, SavedRelation

CREATES = (st.CreateStream, st.CreateTable, st.CreateView)
_RELATIONS = ("stream", "table", "view")


@dataclass(frozen=True)
class Match:
    """Contains a statement, and what the state directory has of it. ``same`` says that its text is the same, or that it
    says IF NOT EXISTS; ``past`` that a DROP of the file has undone it, or is that DROP.
    """

    statement: st.Statement
    entry: Saved | None
    same: bool
    past: bool = False


def match(
    statements: Sequence[st.Statement], entries: Mapping[str, Saved]
) -> tuple[list[Match], dict[str, Saved]]:
    """Returns what each statement stands for, and what no statement stands for."""
    left = dict(entries)
    found = []
    past = passed_over(statements, left.values())
    renamed = {
        s.name.lower()
        for s in statements
        if isinstance(s, st.AlterTable) and isinstance(s.action, st.RenameTable)
    }
    for number, statement in enumerate(statements):
        if number in past:
            found.append(Match(statement, None, same=False, past=True))
            continue
        entry = _entry(statement, left, renamed)
        if entry is not None:
            del left[entry.id]
        if entry is not None and _was_replaced(statement, entry):
            statement = grouped(parse(entry.text).require())[0]
        same = entry is not None and (_is_of(statement, entry) or _if_missing(statement))
        found.append(Match(statement, entry, same))
    return found, left


def has_others(m: Match, saved: SavedStatements) -> bool:
    """Returns whether a variable in the query of a statement has another value than it had, or one in what is kept
    beside its table.
    """
    entry = m.entry
    if not isinstance(entry, SavedRelation):
        return False
    if entry.following is not None and not entry.shadowed:
        return False
    if entry.fingerprint is not None and not has_values(
        grouped(parse(entry.text).require())[0], entry.fingerprint
    ):
        return True
    beside = saved.relation(f"table:{shadow_of(entry.name)}") if entry.shadowed else None
    return beside is not None and m.same and not has_values(m.statement, beside.fingerprint)


def _is_of(statement: st.Statement, entry: Saved) -> bool:
    """Returns whether an entry is that of a statement, or is becoming it."""
    following = entry.following if isinstance(entry, SavedRelation) else None
    return identity(statement) == (entry.identity if following is None else following[1])


def _was_replaced(statement: st.Statement, entry: Saved) -> bool:
    """Returns whether OR REPLACE, or ALTER TABLE … CASCADE, has replaced a statement that the file still has: the new
    one counts.
    """
    if isinstance(statement, CREATES) and statement.or_replace:
        return False
    return identity(statement) in entry.replaced


def _if_missing(statement: st.Statement) -> bool:
    return isinstance(statement, (*CREATES, st.CreateIndex)) and statement.if_not_exists


def _entry(statement: st.Statement, left: Mapping[str, Saved], renamed: set[str]) -> Saved | None:
    key = identity(statement)
    if isinstance(statement, (*st.WRITES, st.Block)):
        queries = [e for e in left.values() if isinstance(e, SavedQuery)]
        found = [e for e in queries if e.identity == key] + [e for e in queries if key in e.replaced]
        return found[0] if found else None
    if not isinstance(statement, (*CREATES, st.CreateIndex)):
        return None
    name = statement.name.lower()
    for entry in left.values():
        # A new table may have the old name of one that was renamed: what this statement created comes first.
        if (
            isinstance(entry, SavedRelation)
            and (entry.first_name or "").lower() == name
            and key in (entry.identity, *entry.replaced)
        ):
            return entry
    kinds = ("index",) if isinstance(statement, st.CreateIndex) else _RELATIONS
    known = next((e for e in left.values() if e.kind in kinds and e.name.lower() == name), None)
    if known is not None or name not in renamed:
        return known
    # The file renames the table after it has created it, and has done so.
    tables = [
        e for e in left.values() if isinstance(e, SavedRelation) and isinstance(statement, st.CreateTable)
    ]
    return next((e for e in tables if (e.first_name or "").lower() == name), None)


def changed_names(matches: Sequence[Match]) -> set[str]:
    """Returns the names of what the file declares differently, with those that tables had before they were renamed."""
    entries = [m.entry for m in matches if m.entry is not None and not m.same]
    first = [e.first_name for e in entries if isinstance(e, SavedRelation) and e.first_name is not None]
    return {name.lower() for name in (*(e.name for e in entries), *first)}
