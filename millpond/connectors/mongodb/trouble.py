"""Translates the errors of the driver."""

from __future__ import annotations

from typing import Any

from millpond.errors import AccessRefused, Conflict, ConnectionLost, Error, SourceError
from millpond.packages import needed

_REFUSED = (13, 18, 8000)
"""The codes of a login or a right that is refused."""
_STOPPED = (91, 189, 10107, 11600, 11602, 13435, 13436)
"""The codes of a server that is stopping, or is not the first of its set any more."""


class SecondWriter(Conflict):
    """Reports that another commit came in between."""


def driver() -> Any:
    return needed("pymongo", "tables in MongoDB", "mongodb")


def place_of(url: str) -> str:
    """Returns the hosts and the database of a URL, without the login."""
    scheme, hosts, database = _parts(url)
    srv = scheme.endswith("+srv")
    named = sorted(host if ":" in host or srv else f"{host}:27017" for host in hosts.lower().split(","))
    return f"{scheme}://{','.join(named)}/{database}"


def database_of(url: str) -> str:
    return _parts(url)[2]


def _parts(url: str) -> tuple[str, str, str]:
    """Returns scheme, hosts and database. A login may have characters that should have been escaped."""
    scheme, _, rest = url.partition("://")
    hosts, _, database = rest.partition("?")[0].rpartition("@")[2].partition("/")
    return scheme, hosts, database.strip("/")


def explained(error: Exception, name: str) -> Error:
    """Translates an error. Its text has no part of the URL."""
    errors = driver().errors
    text = _first_line(error)
    if isinstance(error, errors.OperationFailure) and error.code in _REFUSED:
        return AccessRefused(f"{name} refuses: {text}", hint="check user, password, authSource and rights")
    if isinstance(error, errors.ConnectionFailure) or (
        isinstance(error, errors.OperationFailure) and error.code in _STOPPED
    ):
        return ConnectionLost(f"{name} does not answer: {text}", hint="check that it runs and can be reached")
    if isinstance(error, errors.OperationFailure) and error.code is None:
        return ConnectionLost(f"{name} has failed: {text}", hint="look into the log of the server")
    if isinstance(error, errors.BulkWriteError):
        text = str((error.details.get("writeErrors") or [{}])[0].get("errmsg") or text)
    return SourceError(f"{name}: {text}")


def _first_line(error: Exception) -> str:
    """Returns what the error says, without all that the driver knows of the servers."""
    text = str(error).splitlines()[0] if str(error) else type(error).__name__
    for end in (", full error:", ", Timeout:", " (configured timeouts:"):
        text = text.partition(end)[0]
    return text


def wrong_url(error: Exception, name: str) -> SourceError:
    """Reports a URL that the driver cannot read; what it says of it may show a password."""
    known = {
        "ConfigurationError": "its options contradict each other, or one is not known",
        "InvalidURI": "its URL cannot be read",
    }
    return SourceError(
        f"{name}: {known.get(type(error).__name__, 'an option of its URL has a wrong value')}",
        hint="mongodb://host:27017/database?tls=true; escape special characters of user and password",
    )
