"""Accesses objects of a store through any fsspec file system: lists them, and translates errors."""

from __future__ import annotations

import os
import posixpath
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from millpond.connectors.files.listing import FileSet, Seen
from millpond.connectors.files.paths import expand_braces
from millpond.errors import (
    AccessRefused,
    ConfigurationIssue,
    ConnectionLost,
    Error,
    PackageMissing,
    SourceChanged,
    known,
)
from millpond.formats.base import has_known_suffix
from millpond.options import Option
from millpond.packages import needed

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

_MAGIC = frozenset("*?[{")
_REFUSED = (
    "NoCredentials",
    "TokenRetrieval",
    "InvalidAccessKeyId",
    "SignatureDoesNotMatch",
    "PartialCredentials",
)
_CONFIGURATION = (
    "NoSuchBucket",
    "InvalidBucketName",
    "ProfileNotFound",
    "ParamValidation",
    "bucket does not exist",
)

_opening = threading.Lock()
_opened: dict[tuple[int, str, str], Any] = {}
"""The file systems of this process: opening one takes half a second, and all threads may use it."""

STORE_OPTIONS = (
    Option(
        "endpoint", "text", "the URL of the store, if it is not the provider's own: http://localhost:9000"
    ),
    Option("region", "text", "the region of the bucket"),
    Option("profile", "text", "the profile in ~/.aws with the login"),
    Option("key", "secret", "the access key; by default the login comes from the environment or the profile"),
    Option("secret", "secret", "the secret access key"),
    Option("token", "secret", "the session token of a temporary login"),
    Option("anonymous", "bool", "whether to read without a login", False),
    Option("fs.*", "secret", "any other setting of the file system, by its name in fsspec: fs.account_name"),
)


class Store:
    """Represents an fsspec file system, opened at first use. Picklable."""

    def __init__(self, scheme: str, values: Mapping[str, Any]):
        self.scheme = scheme
        self._values = {o.name: values[o.name] for o in STORE_OPTIONS if o.name in values}
        self._more = {name[3:]: value for name, value in values.items() if name.startswith("fs.")}

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k not in ("files", "arrow")}

    @cached_property
    def files(self) -> Any:
        settings = {**self._more, **(self._s3_settings() if self.scheme in ("s3", "s3a") else {})}
        key = os.getpid(), self.scheme, repr(sorted(settings.items()))
        with _opening:
            if key not in _opened:
                _opened[key] = self._open(settings)
            return _opened[key]

    def _open(self, settings: Mapping[str, Any]) -> Any:
        fsspec = needed("fsspec", f"{self.scheme}:// sources", "s3")
        if self.scheme in ("s3", "s3a"):
            needed("s3fs", f"{self.scheme}:// sources", "s3")
        try:
            return fsspec.filesystem(
                self.scheme, use_listings_cache=False, skip_instance_cache=True, **settings
            )
        except ImportError as error:
            raise PackageMissing(f"{self.scheme}:// sources need another package", hint=str(error)) from None

    def _s3_settings(self) -> dict[str, Any]:
        values = self._values
        named = {
            # The file system retries by itself: its client need not.
            "config_kwargs": {"retries": {"max_attempts": 0}, "connect_timeout": 10},
            "endpoint_url": values["endpoint"],
            "profile": values["profile"],
            "key": values["key"],
            "secret": values["secret"],
            "token": values["token"],
            "anon": values["anonymous"] or None,
            "client_kwargs": {"region_name": values["region"]} if values["region"] else None,
        }
        return {name: value for name, value in named.items() if value is not None}

    @cached_property
    def arrow(self) -> FileSystem:
        from pyarrow.fs import FSSpecHandler, PyFileSystem

        return PyFileSystem(FSSpecHandler(self.files))

    @contextmanager
    def asking(self, what: str, done: str = "read") -> Iterator[None]:
        """Translates errors of the store; ``done`` says what could not be done."""
        try:
            yield
        except FileNotFoundError as error:
            if "NoSuchBucket" in type(error.__cause__).__name__:
                raise self._failed(what, error, done) from None
            raise SourceChanged(f'"{what}" was removed while it was being read') from None
        except PermissionError as error:
            raise AccessRefused(
                f'"{what}" cannot be {done}: {_said(error)}',
                hint="check the login ('key' and 'secret', 'profile', or the environment) and what it may do",
            ) from None
        except Exception as error:
            raise self._failed(what, error, done) from None

    def _failed(self, what: str, error: Exception, done: str) -> Error:
        if isinstance(error, Error):
            return error
        kind, text = type(error).__name__, _said(error)
        if any(word in kind or word in text for word in _REFUSED):
            return AccessRefused(
                f'"{what}" cannot be {done}: {text}', hint="check 'key' and 'secret', or 'profile'"
            )
        if any(word in kind or word in text for word in _CONFIGURATION):
            return ConfigurationIssue(
                f'"{what}" cannot be {done}: {text}', hint="check the bucket and the options"
            )
        if isinstance(error, OSError) or kind.endswith(("ConnectionError", "TimeoutError", "ClientError")):
            return ConnectionLost(
                f'"{what}" cannot be {done}: {text}', hint="check 'endpoint' and the network"
            )
        return known(error)


def _said(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


class ObjectFiles(FileSet):
    """Represents the objects that a path matches: one, those right below a prefix, or those that match a pattern."""

    def __init__(self, store: Store, path: str, *, any_suffix: bool):
        self._store = store
        self._path = path
        self._any_suffix = any_suffix

    def seen(self) -> list[Seen]:
        with self._store.asking(f"{self._store.scheme}://{self._path}"):
            found = {info["name"]: info for info in self._infos() if info["type"] == "file"}
        return [_seen(found[name]) for name in sorted(found)]

    def _infos(self) -> Iterator[dict[str, Any]]:
        if not is_pattern(self._path):
            yield from self._below()
            return
        for pattern in expand_braces(self._path):
            marked = posixpath.basename(pattern).startswith(("_", "."))
            for path, info in self._store.files.glob(pattern, detail=True).items():
                if marked or not posixpath.basename(path).startswith(("_", ".")):
                    yield info

    def _below(self) -> Iterator[dict[str, Any]]:
        """Yields the object of this name, or those right below it."""
        try:
            listed = self._store.files.ls(self._path, detail=True)
        except FileNotFoundError as error:
            if "NoSuchBucket" in type(error.__cause__).__name__:
                raise
            return
        for info in listed:
            name = posixpath.basename(info["name"])
            if info["name"] == self._path or (
                not name.startswith(("_", ".")) and (self._any_suffix or has_known_suffix(name))
            ):
                yield info

    def find(self, path: str) -> Seen | None:
        with self._store.asking(path):
            try:
                return _seen(self._store.files.info(path))
            except FileNotFoundError:
                return None

    def read(self, path: str, begin: int, size: int) -> bytes:
        with self._store.asking(path):
            return bytes(self._store.files.cat_file(path, start=begin, end=begin + size))


def is_pattern(path: str) -> bool:
    return any(c in _MAGIC for c in path)


def _seen(info: Mapping[str, Any]) -> Seen:
    """Returns what the store reports about an object. It is another one if its tag, time or size differs."""
    at = (
        info.get("LastModified") or info.get("mtime") or info.get("last_modified") or info.get("updated") or 0
    )
    if isinstance(at, str):
        at = datetime.fromisoformat(at)
    seconds = at.timestamp() if isinstance(at, datetime) else float(at)
    tag = info.get("ETag") or info.get("etag") or info.get("md5Hash") or info.get("generation") or ""
    path = str(info["name"])
    return Seen(path, int(info["size"]), int(seconds * 1e9), f"{path} {tag}")
