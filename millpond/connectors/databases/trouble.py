"""Tells what went wrong in a database, by the kind of a failure: who can do something about it, and what."""

from __future__ import annotations

from typing import Literal

from millpond.errors import (
    AccessRefused,
    Conflict,
    ConnectionLost,
    Error,
    InvalidRecord,
    SourceError,
    UnknownName,
)

Trouble = Literal[
    "conflict",
    "login",
    "user",
    "privilege",
    "database",
    "lost",
    "timeout",
    "locked",
    "name",
    "value",
    "other",
]
"""Another writer was first; the login is refused or unknown; a privilege is missing; the database does not exist; it
does not respond; it took too long; a table is in use; a table, column or schema does not exist; a value does not fit.
"""


class SecondWriter(Conflict):
    """Reports that another transaction of the database has changed the same rows."""


def explained(trouble: Trouble, name: str, text: str, detail: str | None = None) -> Error:
    """Returns the error of a table in the database ``name``: ``text`` is what the database said."""
    match trouble:
        case "conflict":
            return SecondWriter(f"{name}: another writer was first", hint="try again")
        case "login" | "privilege":
            return AccessRefused(f"{name} refuses: {text}", hint="check user, password and rights")
        case "database":
            return UnknownName(f"{name} is not there", hint="create it, or correct the URL")
        case "user":
            return AccessRefused(f"{name} refuses: {text}", hint="check the user")
        case "lost" | "timeout":
            return ConnectionLost(
                f"{name} does not answer: {text}", hint="check that it runs and can be reached"
            )
        case "locked":
            return Conflict(
                f"{name}: the table is in use: {text}", hint="release its snapshots, then try again"
            )
        case "name":
            return UnknownName(f"{name}: {text}", hint="its tables were changed since they were declared")
        case "value":
            return InvalidRecord(f"{name} refuses a row: {text}", hint=detail or "nothing was changed")
        case _:
            return SourceError(f"{name}: {text}", hint="nothing was changed")
