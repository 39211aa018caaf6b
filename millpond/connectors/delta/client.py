"""Says where a Delta table is, and translates the errors of delta-rs."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from millpond.connectors.databases.uri import split_query
from millpond.errors import (
    AuthenticationIssue,
    BadData,
    ConnectionLost,
    InvalidOption,
    SourceError,
    without_passwords,
)
from millpond.options import Option
from millpond.packages import needed

STORAGE = Option(
    "storage.*",
    "secret",
    "a setting of the object store, by its name in delta-rs: storage.AWS_ENDPOINT_URL, storage.AWS_REGION. By default "
    "they come from the environment",
)
_PREFIX = "storage."
_REFUSED = (
    "status: 403",
    "status code: 403",
    "403 Forbidden",
    "AccessDenied",
    "InvalidAccessKeyId",
    "SignatureDoesNotMatch",
    "no providers in chain",
)


def location(uri: str) -> str:
    """Returns where the table is: ``delta:///absolute/path`` and ``delta://relative/path`` are folders, and
    ``delta://s3://bucket/path`` is a place in an object store.
    """
    path = split_query(uri)[0].partition("://")[2].rstrip("/")
    if not path:
        raise InvalidOption(
            f'"{uri}" names no table',
            hint="delta:///absolute/path, delta://relative/path or delta://s3://bucket/path",
        )
    return place_of(path if "://" in path else unquote(path))


def place_of(path: str) -> str:
    """Returns where the table is: an absolute path, or a place in an object store."""
    if "://" in path and not path.startswith("file://"):
        return path.rstrip("/")
    if "%" in path:
        raise InvalidOption(
            f'"{path}": a folder of a Delta table has no "%" in its name', hint="rename the folder"
        )
    return os.path.abspath(path.removeprefix("file://"))


def storage_options(values: Mapping[str, Any]) -> dict[str, str]:
    """Returns the settings of the object store."""
    return {
        name[len(_PREFIX) :]: str(value)
        for name, value in values.items()
        if name.startswith(_PREFIX) and name != STORAGE.name and value is not None
    }


def library() -> Any:
    """Returns the package of delta-rs."""
    return needed("deltalake", "delta:// tables", "delta")


def exists(place: str, storage: Mapping[str, str]) -> bool:
    """Returns whether a table is there."""
    with explained(place):
        return bool(library().DeltaTable.is_deltatable(place, dict(storage)))


def is_unused(place: str) -> bool:
    """Returns whether a table is in a folder that nothing was ever written to."""
    if not exists(place, {}) or any(entry.name != "_delta_log" for entry in Path(place).iterdir()):
        return False
    with explained(place):
        table = library().DeltaTable(place)
        return table.version() == 0 and not table.file_uris()


def quoted(name: str) -> str:
    """Returns the name of a column as delta-rs takes it in conditions."""
    return '"' + name.replace('"', '""') + '"'


@contextmanager
def explained(place: str) -> Iterator[None]:
    """Raises errors of delta-rs, other than those of conflicts, as ours."""
    from deltalake.exceptions import (
        CommitFailedError,
        DeltaError,
        DeltaProtocolError,
        SchemaMismatchError,
        TableNotFoundError,
    )

    what = f'Delta table "{without_passwords(place)}"'
    try:
        yield
    except CommitFailedError:
        raise
    except SchemaMismatchError as error:
        raise BadData(f"{what} refuses it: {_said(error)}") from None
    except TableNotFoundError as error:
        raise SourceError(f"{what} is not there: {_said(error)}") from None
    except DeltaProtocolError as error:
        raise SourceError(
            f"{what} needs a feature of Delta that delta-rs does not have: {_said(error)}"
        ) from None
    except (DeltaError, OSError) as error:
        said = str(error)
        if any(mark in said for mark in _REFUSED):
            raise AuthenticationIssue(f"{what}: the store refuses the login: {_said(error)}") from None
        if isinstance(error, OSError) or "object store" in said.lower():
            raise ConnectionLost(f"{what} cannot be reached: {_said(error)}") from None
        raise SourceError(f"{what}: {_said(error)}") from None
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # of Rust, and no Exception
            raise
        raise SourceError(f"{what}: delta-rs has failed: {_said(error)}") from None


def _said(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0]
