"""Finds the statements of a file that a DROP of the same file has undone.

A file may drop what it has created, and create it again: CREATE TABLE t …; DROP TABLE t; CREATE TABLE t …. After a
restart only the last one counts. The DROP, and what came before it, must not happen again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from millpond.sql import statements as st
from millpond.sql.identity import identity
from millpond.sql.reads import names_used
from millpond.store.catalog import Saved, SavedRelation

_CREATES = (st.CreateStream, st.CreateTable, st.CreateView, st.CreateIndex)


def passed_over(statements: Sequence[st.Statement], entries: Iterable[Saved]) -> frozenset[int]:
    """Returns the numbers of the statements that are not run, since the state directory has what the file creates
    after them, or since they went with a column. ``entries`` are the statements of the state directory.
    """
    there = list(entries)
    identities = {e.identity for e in there}
    found: set[int] = set()
    for number, drop in enumerate(statements):
        if not isinstance(drop, st.Drop) or drop.kind == "query":
            continue
        entry = next((e for e in there if _is_named(e, drop)), None)
        if entry is None or not any(_creates(s, drop) for s in statements[number + 1 :]):
            continue
        first = [identity(s) for s in statements[:number] if _creates(s, drop)]
        then = [identity(s) for s in statements[number + 1 :] if _creates(s, drop)]
        following = entry.following if isinstance(entry, SavedRelation) else None
        made = {entry.identity, *(following or ())[1:]}
        if made & {*first} and not made & {*then}:
            continue  # a kill came before the DROP
        found.add(number)
        earlier = statements[:number]
        names = {drop.name.lower()} | {
            str(getattr(s, "name", "")).lower() for s in earlier if _renames(s, drop)
        }
        for before, s in enumerate(earlier):
            uses = drop.kind != "index" and names & ({_created(s)} | names_used(s))
            if _creates(s, drop) or (uses and identity(s) not in identities):
                found.add(before)
    return frozenset(found | _cascaded(statements, there))


def _cascaded(statements: Sequence[st.Statement], entries: Sequence[Saved]) -> set[int]:
    """Returns the numbers of the statements of what ALTER TABLE … DROP COLUMN … CASCADE has dropped."""
    tables = [e for e in entries if isinstance(e, SavedRelation)]
    gone = {one for e in tables for found in e.cascaded.values() for one in found}
    gone -= {one for e in entries for one in (e.identity, *e.replaced)}
    return {number for number, s in enumerate(statements) if gone and identity(s) in gone}


def _is_named(entry: Saved, drop: st.Drop) -> bool:
    kind = isinstance(entry, SavedRelation) if drop.kind != "index" else entry.kind == "index"
    return kind and entry.name.lower() == drop.name.lower()


def _creates(statement: st.Statement, drop: st.Drop) -> bool:
    if isinstance(statement, st.CreateIndex) != (drop.kind == "index"):
        return False
    return _created(statement) == drop.name.lower() or _renames(statement, drop)


def _created(statement: st.Statement) -> str | None:
    return statement.name.lower() if isinstance(statement, _CREATES) else None


def _renames(statement: st.Statement, drop: st.Drop) -> bool:
    """Returns whether a statement gives a table the name that is dropped."""
    if not isinstance(statement, st.AlterTable) or not isinstance(statement.action, st.RenameTable):
        return False
    return drop.kind != "index" and statement.action.name.lower() == drop.name.lower()
