"""Decides about statements of a changed file that meet something of the old one."""

from __future__ import annotations

from collections.abc import Collection

from millpond.sql import statements as st
from millpond.sql.checked import Checked, CheckedRunnable
from millpond.sql.printer import print_name
from millpond.sql.statement_text import title
from millpond.statements.saved_statements import SavedStatements
from millpond.store.catalog import Saved, SavedQuery, SavedRelation
from millpond.upgrade.decisions import Decision


def new_once(s: st.Statement, left: Collection[Saved], again: Collection[str]) -> Decision:
    """Returns the decision about a statement that runs once. ``left`` is what the file has no longer, ``again`` what
    the statement changes that has rows of statements which the file has no longer.
    """
    what = title(s).upper()
    if isinstance(s, st.AlterTable) and isinstance(s.action, st.RenameTable):
        taken = s.action.name.lower()
        if any(e.name.lower() == taken and isinstance(e, SavedRelation) for e in left):
            why = f'"{s.action.name}" is dropped when this has run: it has its name until then'
            hint = f'start with a file that has neither "{s.action.name}" nor this statement first'
            return Decision("refused", "statement", what, why, hint, place=s.place)
    if again:
        why = f'it runs, and "{min(again)}" has rows of a statement that the file has no longer'
        return Decision("new", "statement", what, why, asks=True, place=s.place)
    return Decision("new", "statement", what, "it runs once", place=s.place)


def refused_name(checked: Checked, left: Collection[Saved]) -> Decision | None:
    """Returns the decision about a new query with the name of one that the file has no longer; None for another."""
    options = checked.query_options if isinstance(checked, CheckedRunnable) else {}
    name = str(options.get("query.name") or "")
    if not any(isinstance(e, SavedQuery) and e.name.lower() == name.lower() for e in left):
        return None
    why = "another query of the old file has its name, and is dropped when this one has begun"
    hint = "give it another 'query.name'"
    return Decision("refused", "query", name, why, hint, place=checked.statement.place)


def what_to_do(kind: str, name: str, saved: SavedStatements) -> str:
    """Returns what to do with a statement that is the same, and cannot go on with the new file."""
    entry = saved.get(f"{kind}:{name}")
    if entry is None or entry.of_file:
        return "change that statement in the file too, or leave what it reads as it was"
    drop = f"DROP {kind.upper()} {print_name(name)}"
    return f"it is in no file: start with the file as it was, and {drop}; or leave what it reads as it was"
