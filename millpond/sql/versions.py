"""Reads which earlier version of a table FROM names: ``t VERSION AS OF 3``, ``t TIMESTAMP AS OF '2026-01-31'``."""

from __future__ import annotations

from datetime import UTC, datetime
from urllib.parse import quote

from sqlglot import exp

from millpond.errors import InvalidOption, NotSupported, SqlError

WITH_VERSIONS = "tables in Delta and delta:// sources have versions"
"""The hint of what needs versions."""
AsOf = int | datetime
"""The number of a version, or a time: the version that was the newest then."""


def version_of(node: exp.Table) -> AsOf | None:
    """Returns the version that an input names; None for its rows now."""
    clause = node.args.get("version")
    if clause is None:
        return None
    value = clause.expression
    if isinstance(value, exp.Cast):  # TIMESTAMP '2026-01-31 12:00:00'
        value = value.this
    if clause.name.upper() == "VERSION":
        if isinstance(value, exp.Literal) and value.name.isdecimal() and int(value.name) < 2**63:
            return int(value.name)
        raise SqlError("VERSION AS OF takes the number of a version", hint="VERSION AS OF 3")
    hint = "TIMESTAMP AS OF '2026-01-31T12:00:00Z'"
    if not isinstance(value, exp.Literal) or not value.is_string:
        raise SqlError("TIMESTAMP AS OF takes a time as a text", hint=hint)
    try:
        found = datetime.fromisoformat(value.name.strip())
    except ValueError:
        raise SqlError(f'"{value.name}" is no time', hint=hint) from None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def uri_at(uri: str, at: AsOf) -> str:
    """Returns the URI of a source with the option that names a version."""
    name, value = ("version", str(at)) if isinstance(at, int) else ("timestamp", at.isoformat())
    if any(part.partition("=")[0] in ("version", "timestamp") for part in uri.partition("?")[2].split("&")):
        raise InvalidOption(f'"{uri}" names a version already', hint="leave AS OF out, or the option")
    return f"{uri}{'&' if '?' in uri else '?'}{name}={quote(value)}"


def words_of(at: AsOf) -> str:
    """Returns the clause that names a version."""
    return f"VERSION AS OF {at}" if isinstance(at, int) else f"TIMESTAMP AS OF '{at.isoformat()}'"


def no_versions(what: str) -> NotSupported:
    """Returns the error about a version of something that has none."""
    return NotSupported(f"{what}: it has no VERSION AS OF", hint=WITH_VERSIONS)
