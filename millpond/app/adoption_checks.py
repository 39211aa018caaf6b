"""Checks a state directory before and after a statement of it goes on for a job of another system."""

from __future__ import annotations

from pathlib import Path

from millpond.app.adoption import Adoption
from millpond.app.app import App, runtime_of
from millpond.errors import AdoptionRefused
from millpond.sql import statements as st
from millpond.sql.parse import parse
from millpond.store.catalog import SavedQuery


def check_not_begun(state: Path, adoption: Adoption) -> None:
    """Raises AdoptionRefused if the statement has a position in the state directory, which need not exist."""
    if not state.is_dir() or not any(state.iterdir()):
        return
    target = adoption.plan.target.name.lower()
    with App(state=state, _read_only=True) as app:
        parts = runtime_of(app)
        for entry in parts.saved.entries.values():
            if not isinstance(entry, SavedQuery):
                continue
            statement = parse(entry.text).require()[0]
            if isinstance(statement, st.Insert) and statement.target.lower() == target:
                position = parts.store.position(entry.name)
                if position is not None and adoption.stream in position.offsets:
                    raise AdoptionRefused(
                        f'query "{entry.name}" of "{state}" has begun: it has a position of its own',
                        hint="take the job over with a new state directory, or DROP QUERY first",
                    )


def check_begun(app: App, adoption: Adoption) -> None:
    """Raises AdoptionRefused if the statement of an app, of which nothing runs yet, has no position."""
    parts = runtime_of(app)
    for waiting in parts.runner.starter:
        if adoption.begins(waiting.plan) is not None and parts.store.position(waiting.plan.name) is not None:
            return
    failed = "; ".join(s.error.message for s in parts.runner.starter.failed_starts.values())
    raise AdoptionRefused(
        "the statement that would go on for the job could not be prepared"
        + (f": {failed}" if failed else ""),
        hint="it may be stopped, or dropped: SHOW QUERIES shows it",
        place=adoption.plan.place,
    )
