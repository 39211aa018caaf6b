"""Finds the saved statement that a statement of the file stands for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from millpond.errors import Error, StateForeign
from millpond.sql import statements as st
from millpond.sql.checked import Checked, CheckedTable
from millpond.sql.identity import identity
from millpond.sql.parse import parse
from millpond.sql.printer import print_name
from millpond.store.catalog import Saved, SavedQuery, SavedRelation, without_secrets

Check = Callable[[st.Statement], Checked]
"""Checks a statement as if nothing of its name existed. Raises its errors."""


@dataclass(frozen=True, slots=True)
class Claim:
    """Contains the saved statement. ``anew`` says that the file has another text, which means the same: it replaces
    the saved one.
    """

    entry: Saved
    anew: bool = False


def claim(statement: st.Statement, unclaimed: Mapping[str, Saved], check: Check) -> Claim | None:
    """Returns what the state has of a statement; a different statement of the same name is an error."""
    if isinstance(statement, (*st.WRITES, st.Block)):
        same = identity(statement)
        queries = [e for e in unclaimed.values() if isinstance(e, SavedQuery)]
        found = [e for e in queries if e.identity == same] + [e for e in queries if same in e.replaced]
        return next((Claim(e) for e in found), None)
    if not isinstance(statement, st.CreateStream | st.CreateTable | st.CreateView | st.CreateIndex):
        return None
    kinds = ("index",) if isinstance(statement, st.CreateIndex) else ("stream", "table", "view")
    name = statement.name.lower()
    # A new table may have the old name of one that was renamed: what this statement created comes first.
    if (renamed := _renamed(statement, unclaimed)) is not None:
        return renamed
    entry = next((e for e in unclaimed.values() if e.kind in kinds and e.name.lower() == name), None)
    if entry is None:
        return None
    same = identity(statement)
    if isinstance(entry, SavedRelation) and entry.following is not None and entry.following[1] == same:
        return Claim(entry)
    if entry.identity == same or identity(parse(entry.text).require()[0]) == same:
        return Claim(entry, anew=isinstance(entry, SavedRelation) and bool(entry.replaced))
    replaces = not isinstance(statement, st.CreateIndex) and statement.or_replace
    if statement.if_not_exists or (same in entry.replaced and not replaces):
        return Claim(entry)
    if _means_the_same(statement, entry, check):
        return Claim(entry, anew=True)
    if replaces:
        return None
    raise StateForeign(
        f'"{statement.name}" was declared differently when the state directory was created',
        hint=f"drop it first (DROP {entry.kind.upper()} {print_name(entry.name)}), or name another state directory",
        place=statement.place,
    )


def _renamed(statement: st.Statement, unclaimed: Mapping[str, Saved]) -> Claim | None:
    """Returns the table that this statement created, if it has got another name since."""
    for entry in unclaimed.values():
        if isinstance(entry, SavedRelation) and isinstance(statement, st.CreateTable) and entry.first_name:
            known = (entry.identity, *entry.replaced)
            if entry.first_name.lower() == statement.name.lower() and identity(statement) in known:
                return Claim(entry)
    return None


def _means_the_same(statement: st.Statement, entry: Saved, check: Check) -> bool:
    """Returns whether a CREATE TABLE declares the table as it is now, after all changes of it."""
    if not isinstance(statement, st.CreateTable) or statement.query is not None:
        return False
    if not isinstance(entry, SavedRelation) or entry.kind != "table":
        return False
    try:
        checked = check(statement)
    except Error:
        return False
    if not isinstance(checked, CheckedTable) or checked.relation.schema != entry.schema:
        return False
    ignored = {"table"} if entry.first_name else set()
    wanted, there = without_secrets(checked.table_options), dict(entry.options)
    names = (wanted.keys() | there.keys()) - ignored - {"primary.key"}
    return all(wanted.get(name) == there.get(name) for name in names)
