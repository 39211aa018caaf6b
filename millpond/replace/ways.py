"""Says what becomes of a relation that a statement replaces."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from millpond.alter.column_users import RenewedView, User

Kind = Literal["kept", "altered", "renewed", "rebuilt", "chained", "emptied"]
_WORDS: dict[Kind, str] = {
    "kept": "stays as it is, with its rows: the statement means the same",
    "altered": "is altered, with its rows",
    "renewed": "gets the new definition; it has no rows of its own that would change",
    "rebuilt": "is built again beside the old one, which is used until both are swapped;"
    " rows that statements have changed in it are not kept",
    "chained": "is built again beside the old one, with what reads it; the old ones are used until all are swapped in"
    " one commit",
    "emptied": "begins again: nothing uses it",
}


@dataclass(frozen=True)
class Way:
    """Says what becomes of a relation. ``columns`` are those that are new or change, ``options`` those with
    other values. ``readers`` are running statements that start again, ``views`` named views that get other columns,
    ``with_it`` the names of what is built with it.
    """

    kind: Kind
    columns: tuple[str, ...] = ()
    options: tuple[tuple[str, object], ...] = ()
    users: tuple[User, ...] = ()
    readers: tuple[User, ...] = ()
    views: tuple[RenewedView, ...] = ()
    with_it: tuple[str, ...] = ()

    def __str__(self) -> str:
        details = [f"new or changed columns: {', '.join(self.columns)}"] if self.columns else []
        details += [f"with it: {', '.join(self.with_it)}"] if self.with_it else []
        details += [f"options: {', '.join(name for name, _ in self.options)}"] if self.options else []
        return f"{_WORDS[self.kind]}{' (' + '; '.join(details) + ')' if details else ''}"
