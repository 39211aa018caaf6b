"""Shares the driver, and the meaning of its errors, among tables in PostgreSQL and tables that are read from it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millpond.connectors.databases.trouble import Trouble
from millpond.packages import needed

if TYPE_CHECKING:
    import psycopg

_CONFLICT = ("40001", "40P01")
_LOST = ("08", "53", "57")
_NAMES = ("42P01", "42703", "3F000")
_AT_LOGIN = (
    "authentication failed",
    "pg_hba.conf",
    "no password supplied",
    "is not permitted to log in",
)


def driver(by: str) -> Any:
    return needed("psycopg", by, "postgresql")


def said(error: psycopg.Error) -> str:
    """Returns the server's message, in one line."""
    text = (error.diag.message_primary or str(error)).strip()
    return text.splitlines()[0] if text else type(error).__name__


def trouble(error: psycopg.Error, *, lost: bool) -> Trouble:
    """Returns the kind of a failure; ``lost`` says that the connection is gone, or never existed."""
    state, text = error.sqlstate or "", said(error)
    if state in _CONFLICT:
        return "conflict"
    if state == "42501":
        return "privilege"
    if state.startswith("28") or any(word in str(error) for word in _AT_LOGIN):
        return "login"
    if state == "3D000" or ('database "' in text and "does not exist" in text):
        return "database"
    if 'role "' in text and "does not exist" in text:
        return "user"
    if state == "57014":
        return "timeout"
    if lost or state[:2] in _LOST:
        return "lost"
    if state == "55P03":
        return "locked"
    if state in _NAMES:
        return "name"
    return "value" if state[:2] in ("22", "23") else "other"
