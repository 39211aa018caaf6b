"""Writes files of this machine: CSV, JSON lines, Parquet and Avro."""

from __future__ import annotations

from typing import ClassVar

from millpond.connectors.files.local_storage import LocalStorage
from millpond.connectors.files.paths import path_of
from millpond.connectors.files.written_files import WrittenFiles
from millpond.options import Option


class FileSink(WrittenFiles):
    """Writes files of this machine."""

    kind: ClassVar[str] = "file"
    schemes: ClassVar[tuple[str, ...]] = ("file",)
    options: ClassVar[tuple[Option, ...]] = WrittenFiles.file_options

    @classmethod
    def path(cls, uri: str) -> str:
        return path_of(uri)

    def storage(self) -> LocalStorage:
        return LocalStorage()
