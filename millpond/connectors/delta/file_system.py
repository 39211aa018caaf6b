"""Opens the files of Delta tables, in a folder or an object store."""

from __future__ import annotations

from collections.abc import Mapping

from pyarrow.fs import FileSystem, LocalFileSystem, PyFileSystem, SubTreeFileSystem


def file_system(place: str, storage: Mapping[str, str]) -> FileSystem:
    """Returns what opens the files of a table, by their paths in its folder."""
    if "://" not in place:
        return SubTreeFileSystem(place, LocalFileSystem())
    from deltalake.fs import DeltaStorageHandler

    return PyFileSystem(DeltaStorageHandler(place, dict(storage)))
