"""Writes objects of S3, and of others that fsspec has a file system for: CSV, JSON lines, Parquet and Avro."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from millpond.connectors.files.manifest import Storage
from millpond.connectors.files.written_files import WrittenFiles
from millpond.connectors.objects.source import ObjectSource
from millpond.connectors.objects.store import STORE_OPTIONS, Store
from millpond.errors import InvalidOption
from millpond.options import Option
from millpond.types import Schema


class ObjectStorage(Storage):
    """Represents an object store. It has no folders; a final name is given by a copy in the store."""

    def __init__(self, store: Store):
        self._store = store

    def _asking(self, path: str) -> Any:
        return self._store.asking(f"{self._store.scheme}://{path}", "written")

    def read(self, path: str) -> bytes | None:
        with self._asking(path):
            try:
                return bytes(self._store.files.cat_file(path))
            except FileNotFoundError as error:
                if "NoSuchBucket" in type(error.__cause__).__name__:
                    raise
                return None

    def write(self, path: str, data: bytes) -> None:
        with self._asking(path):
            self._store.files.pipe_file(path, data)

    def move(self, source: str, target: str, *, replaces: bool) -> bool:
        """Copies the object to its final name. A copy replaces another object: who publishes has looked before whether
        there is one.
        """
        with self._asking(target):
            try:
                self._store.files.cp_file(source, target)
            except FileNotFoundError:
                return False
            self._store.files.rm_file(source)
            return True

    def exists(self, path: str) -> bool:
        with self._asking(path):
            return bool(self._store.files.exists(path))

    def names(self, folder: str) -> list[str]:
        with self._asking(folder):
            try:
                return [name.rpartition("/")[2] for name in self._store.files.ls(folder, detail=False)]
            except FileNotFoundError:
                return []

    def remove(self, path: str) -> None:
        with self._asking(path):
            try:
                self._store.files.rm_file(path)
            except FileNotFoundError:
                return


class ObjectSink(WrittenFiles):
    """Writes objects."""

    kind: ClassVar[str] = "objects"
    schemes: ClassVar[tuple[str, ...]] = ObjectSource.schemes
    everywhere: ClassVar[bool] = True
    options: ClassVar[tuple[Option, ...]] = (*WrittenFiles.file_options, *STORE_OPTIONS)

    def __init__(self, uri: str, values: Mapping[str, Any], schema: Schema):
        super().__init__(uri, values, schema)
        self._store = Store(uri.partition(":")[0].lower(), self.values)

    @classmethod
    def path(cls, uri: str) -> str:
        path = uri.partition("://")[2].rstrip("/")
        if not path:
            raise InvalidOption(f'"{uri}" names no bucket', hint="s3://bucket/prefix")
        return path

    def storage(self) -> ObjectStorage:
        return ObjectStorage(self._store)
