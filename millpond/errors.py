"""Defines the errors of Millpond.

Error
├── SqlError              the text is wrong; has a place in it
│   ├── SqlSyntaxError    it does not parse
│   ├── UnknownName       a stream, table, column, function, option or statement that does not exist
│   ├── AlreadyExists     a name that is taken
│   ├── InUse             dropped or changed while something reads it
│   ├── TypeMismatch      types that do not fit together
│   ├── InvalidOption     an option with a wrong value, or missing
│   ├── NotSupported      understood, but not something this version can run
│   └── CheckFailed       several of the above at once
├── DataError             the data is wrong
│   ├── InvalidRecord     a given record does not fit; names row and field
│   ├── DuplicateKey      a key that exists, in a table with 'on.conflict' = 'error'
│   ├── TableFull         a write beyond max_memory
│   ├── BadData           a file or message that cannot be decoded
│   └── QueryFailed       evaluation failed: division by zero, overflow, two rows in a scalar subquery
├── SourceError           an outside system failed
│   ├── FileMissing       no file at that path
│   ├── AddressMissing    a web server has nothing at that URL
│   ├── SourceEmpty       there is no data to discover columns from
│   ├── SourceChanged     the data changed while it was read; a retry may help
│   ├── ConnectionLost    it does not answer, or stopped answering; a retry may help
│   │   └── NetworkIssue  no broker answers
│   ├── AccessRefused     it refuses the login or the request
│   │   ├── AuthenticationIssue  brokers refuse the login
│   │   └── PrivilegeMissing  a database refuses for lack of a privilege
│   ├── DatabaseMissing   a server has no database of that name
│   ├── TableMissing      a database has no table of that name
│   ├── CaptureRefused    a database does not allow change capture
│   ├── CaptureLost       changes that were not read are gone from the log of a database
│   ├── TopicMissing      the brokers have no topic of that name; a retry may help
│   ├── TopicReplaced     a topic was deleted and created again while it was read
│   └── ConfigurationIssue   a setting of a client is wrong, or a web server does not understand a request
├── StateError            the state directory
│   ├── StateLocked       another app is running on it
│   ├── StateForeign      it belongs to another app, another format version, or is not ours
│   ├── UpgradeNeeded     the SQL has changed, and something would be dropped, rebuilt or run again
│   ├── AdoptionRefused   a job of another system cannot be taken over
│   ├── StateCorrupt      its content is damaged
│   ├── StateUnwritable   it cannot be written
│   └── StoreStopped      tables in memory are behind the journal; a restart restores them
├── Conflict              another commit has changed the same rows; try again
├── EngineError           running queries
│   ├── PipelineFailed    a running query stopped with an error
│   ├── TimedOut          something took too long; a retry may help
│   ├── NothingLeft       no memory or files are left; a retry may help
│   ├── ResultTooLarge    executors may not pass so much to the driver at once
│   ├── EngineLost        Spark's Java process is gone; a retry may help
│   ├── JavaMissing       no Java that Spark can run on
│   └── Closed            the app was closed
├── PackageMissing        a Python package of an extra is not installed
├── BadExtension          a source, sink, table, format or function of another package cannot be used
└── ConnectorMissing      Spark lacks the jars of a connector
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import ClassVar

from millpond.text_places import Caution as Caution
from millpond.text_places import Place as Place
from millpond.text_places import without_passwords as without_passwords


class Error(Exception):
    """Represents any error of Millpond: has a message, a code, a hint what to do, and a place if there is one."""

    code: ClassVar[str] = "error"
    retryable: ClassVar[bool] = False
    after: float = 0.0
    """Seconds that the other side requests to wait before a retry."""

    def __init__(self, message: str, *, hint: str | None = None, place: Place | None = None):
        message = without_passwords(message)
        super().__init__(message)
        self.message = message
        self.hint = without_passwords(hint) if hint else hint
        self.place = place

    @property
    def line(self) -> int | None:
        return self.place.line if self.place else None

    @property
    def column(self) -> int | None:
        return self.place.column if self.place else None

    def __str__(self) -> str:
        parts = [self.message]
        if self.place:
            parts = [f"{self.place.line}:{self.place.column}: {self.message}"]
            parts += ["  " + line for line in self.place.caret().splitlines()]
        if self.hint:
            parts.append(f"hint: {self.hint}")
        return "\n".join(parts)


class SqlError(Error):
    code = "sql"


class SqlSyntaxError(SqlError):
    code = "syntax"


class UnknownName(SqlError):
    code = "unknown_name"


class AlreadyExists(SqlError):
    code = "already_exists"


class InUse(SqlError):
    code = "in_use"


class TypeMismatch(SqlError):
    code = "type_mismatch"


class InvalidOption(SqlError):
    code = "invalid_option"


class NotSupported(SqlError):
    code = "not_supported"


class CheckFailed(SqlError):
    """Reports several mistakes in one text; ``errors`` contains them in text order."""

    code = "check_failed"

    def __init__(self, errors: Sequence[Error]):
        self.errors = tuple(errors)
        super().__init__(f"{len(self.errors)} errors", place=self.errors[0].place)

    def __str__(self) -> str:
        return "\n\n".join(str(e) for e in self.errors)


class DataError(Error):
    code = "data"


class InvalidRecord(DataError):
    """Reports a record that does not fit; ``row`` is its index in the call, ``field`` the column."""

    code = "invalid_record"

    def __init__(
        self,
        message: str,
        *,
        row: int | None = None,
        field: str | None = None,
        hint: str | None = None,
        place: Place | None = None,
    ):
        super().__init__(message, hint=hint, place=place)
        self.row = row
        self.field = field


class DuplicateKey(DataError):
    code = "duplicate_key"


class TableFull(DataError):
    code = "table_full"


class BadData(DataError):
    code = "bad_data"


class QueryFailed(DataError):
    code = "query_failed"


class SourceError(Error):
    code = "source"


class FileMissing(SourceError):
    code = "file_missing"


class AddressMissing(SourceError):
    code = "address_missing"


class SourceEmpty(SourceError):
    """Reports that there is nothing from which columns could be discovered."""

    code = "source_empty"


class SourceChanged(SourceError):
    """Reports that the data changed since reading began; a retry reads the new data."""

    code = "source_changed"
    retryable = True


class ConnectionLost(SourceError):
    code = "connection_lost"
    retryable = True


class AccessRefused(SourceError):
    code = "access_refused"


class TopicMissing(SourceError):
    code = "topic_missing"
    retryable = True


class TopicReplaced(SourceError):
    code = "topic_replaced"


class NetworkIssue(ConnectionLost):
    code = "network"


class AuthenticationIssue(AccessRefused):
    code = "authentication"


class ConfigurationIssue(SourceError):
    code = "configuration"


class DatabaseMissing(SourceError):
    code = "database_missing"


class TableMissing(SourceError):
    code = "table_missing"


class PrivilegeMissing(AccessRefused):
    """Reports that the user who is logged in may not do this."""

    code = "privilege_missing"


class CaptureRefused(SourceError):
    """Reports that the database does not allow change capture: the hint says what is missing."""

    code = "capture_refused"


class CaptureLost(SourceError):
    """Reports that changes that were not read yet are gone from the log of the database."""

    code = "capture_lost"


class StateError(Error):
    code = "state"


class StateLocked(StateError):
    code = "state_locked"
    retryable = True


class StateForeign(StateError):
    code = "state_foreign"


class UpgradeNeeded(StateError):
    """Reports that the SQL has changed, and that somebody must agree to what the change drops or rebuilds."""

    code = "upgrade_needed"


class AdoptionRefused(StateError):
    """Reports why an app cannot go on where a job of another system has ended."""

    code = "adoption_refused"


class StateCorrupt(StateError):
    code = "state_corrupt"


class StateUnwritable(StateError):
    code = "state_unwritable"


class StoreStopped(StateError):
    code = "store_stopped"


class Conflict(Error):
    code = "conflict"
    retryable = True


class EngineError(Error):
    code = "engine"


class NothingLeft(EngineError):
    """Reports that the machine, or the process, has no memory or files left. A retry may help."""

    code = "nothing_left"
    retryable = True


class ResultTooLarge(EngineError):
    """Reports that executors have more results than they may pass to the driver at once."""

    code = "result_too_large"


class PipelineFailed(EngineError):
    code = "pipeline_failed"


class TimedOut(EngineError):
    code = "timed_out"
    retryable = True


class EngineLost(EngineError):
    code = "engine_lost"
    retryable = True


class JavaMissing(EngineError):
    code = "java_missing"


class Closed(EngineError):
    code = "closed"


class PackageMissing(Error):
    code = "package_missing"


class BadExtension(Error):
    code = "bad_extension"


class ConnectorMissing(Error):
    code = "connector_missing"


def known(error: BaseException) -> Error:
    """Returns the error as one of Millpond's; an unexpected one is logged with its trace."""
    if isinstance(error, Error):
        return error
    if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
        return NothingLeft(
            "the process has no more files and connections to open",
            hint="try again in a moment; raise the limit with ulimit -n",
        )
    if isinstance(error, MemoryError):
        return NothingLeft("the process has no more memory", hint="ask for less, or give it more memory")
    logging.getLogger("millpond").error("an internal error", exc_info=error)
    return EngineError(f"internal error: {type(error).__name__}: {error}", hint="please report it")


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Returns the known name most like ``name``, ignoring case, or None."""
    by_lower = {k.lower(): k for k in known}
    found = get_close_matches(name.lower(), by_lower, n=1, cutoff=0.6)
    return by_lower[found[0]] if found else None


def did_you_mean(name: str, known: Iterable[str], otherwise: str | None = None) -> str | None:
    """Returns a hint that suggests the nearest known name, else ``otherwise``."""
    near = nearest(name, known)
    return f'did you mean "{near}"?' if near else otherwise
