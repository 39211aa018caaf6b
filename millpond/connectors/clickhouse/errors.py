"""Translates errors of ClickHouse, its driver and the network to errors of Millpond."""

from __future__ import annotations

import re
import ssl
from collections.abc import Callable, Sequence

from clickhouse_connect.driver.exceptions import ClickHouseError
from sqlalchemy import exc
from urllib3 import exceptions as http

from millpond.errors import (
    AuthenticationIssue,
    BadData,
    ConnectionLost,
    DatabaseMissing,
    Error,
    InvalidOption,
    PrivilegeMissing,
    SourceError,
    TableMissing,
    TimedOut,
    did_you_mean,
)

LOGIN = {192, 193, 194, 516}
BUSY = {202, 203, 209, 210, 236, 279, 394, 425, 439, 999}
"""Too many queries at once, the network within a cluster, a server that shuts down."""
TIME = {159, 160}
DENIED, NO_TABLE, NO_DATABASE = 497, 60, 81
DIGITS = {69, 407}
WRONG = {36, 42, 43, 46, 47, 53, 62, 70, 184, 215, 386, 456, 457}
"""Errors in the text of a query."""
Names = Callable[[str], Sequence[str]]
"""The names that a query about the system returns."""

_CODE = re.compile(r"[Cc]ode: (\d+)")
_SAID = re.compile(r"DB::Exception: (.*?)(?: \(version [^)]*\))?(?: \(for url .*\))?\s*$", re.DOTALL)
_GRANT = re.compile(r"the grant (.*?)(?:\. \(|\.$|\s\(|$)")
_TABLE = re.compile(r"[Tt]able (?:expression identifier )?[`'\"]?([\w.$]+)")


def explain(error: BaseException, name: str, names: Names, *, asked: str | None) -> Error:
    """Translates an error. ``name`` is the name of the database; ``asked`` the option that contains SQL, if there is
    one.
    """
    while isinstance(error, exc.DBAPIError) and error.orig is not None:
        error = error.orig
    found = _CODE.search(str(error)) if isinstance(error, ClickHouseError) else None
    if found is None:
        return _lost(error, name)
    code = int(found[1])
    words = _SAID.search(str(error))
    said = words[1].strip().partition("\n")[0] if words else str(error)
    text = f"{name}: {said}"
    if code in LOGIN:
        return AuthenticationIssue(text, hint="check 'username' and 'password'")
    if code == DENIED:
        grant = _GRANT.search(said)
        needed = grant[1].strip() if grant else "SELECT ON …"
        return PrivilegeMissing(text, hint=f"as one who may: GRANT {needed} TO …")
    if code == NO_DATABASE:
        there = names("SELECT name FROM system.databases ORDER BY name")
        missing = re.search(r"[Dd]atabase [`'\"]?(\w+)", said)
        near = did_you_mean(missing[1] if missing else "", there, f"there are: {', '.join(there[:20])}")
        return DatabaseMissing(text, hint=near)
    if code == NO_TABLE:
        return _no_table(said, text, names)
    if code in TIME:
        return TimedOut(text, hint="'query.timeout' is how long a query may take")
    if code in BUSY:
        return ConnectionLost(text)
    if code in DIGITS:
        return BadData(text, hint="a number has too many digits: toString(…) in a query returns them as text")
    if code in WRONG and asked is not None:
        return InvalidOption(f'option "{asked}": {said}')
    return SourceError(text)


def _no_table(said: str, text: str, names: Names) -> Error:
    found = _TABLE.search(said)
    database, _, table = (found[1] if found else "").rpartition(".")
    where = f"'{database}'" if database.isidentifier() else "currentDatabase()"
    there = names(
        f"SELECT name FROM system.tables WHERE database = {where} AND NOT is_temporary ORDER BY name"
    )
    listed = f"there are: {', '.join(there[:20])}" if there else "there are no tables"
    return TableMissing(text, hint=did_you_mean(table, there, listed))


def _lost(error: BaseException, name: str) -> Error:
    """Translates an error of the network, or without a message."""
    chain: list[BaseException] = [error]
    while (below := chain[-1].__cause__ or chain[-1].__context__ or _reason(chain[-1])) is not None:
        if below in chain:
            break
        chain.append(below)
    said = str(chain[0]).partition("\n")[0]
    for each in chain:
        if isinstance(each, ssl.SSLCertVerificationError):
            return SourceError(
                f"{name}: {each.verify_message or each}",
                hint="'ssl.ca' names a file with the authorities to trust",
            )
        if isinstance(each, ssl.SSLError):
            return SourceError(f"{name}: {each.reason or each}", hint="check 'ssl.mode', and the port")
        if isinstance(each, http.NewConnectionError | http.NameResolutionError):
            return ConnectionLost(f"{name}: {str(each).rpartition(': ')[2]}")
        if isinstance(each, http.ConnectTimeoutError):
            return ConnectionLost(
                f"{name} does not answer", hint="'connect.timeout' is how long to wait for it"
            )
        if isinstance(each, http.ReadTimeoutError | TimeoutError):
            return TimedOut(
                f"{name} did not answer in time",
                hint="'connect.timeout' and 'socket.timeout' are how long to wait for it",
            )
    if isinstance(error, exc.TimeoutError):
        return ConnectionLost(f"{name}: {said}", hint="'pool.size' is the most connections at a time")
    if any(isinstance(each, http.HTTPError | OSError | ClickHouseError) for each in chain):
        return ConnectionLost(f"{name}: {said}")
    return SourceError(f"{name}: {said}")


def _reason(error: BaseException) -> BaseException | None:
    found = getattr(error, "reason", None)
    return found if isinstance(found, BaseException) else None
