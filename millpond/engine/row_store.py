"""Stores rows of the driver where executors see them: in a folder, or in what Hadoop's file systems reach (s3a://).

An app has a folder of its own there, and each run of it one in that. What a killed run has left behind is removed when
the app starts a day later, or still later: a run that goes on is never touched.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from urllib.parse import unquote, urlsplit
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from millpond.engine import jvm
from millpond.engine.internals import hadoop_files
from millpond.errors import ConnectionLost, EngineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTING = "millpond.store"
"""The setting of a session that contains the URI of the app's folder."""
READING = {
    "datetimeRebaseMode": "CORRECTED",
    "int96RebaseMode": "CORRECTED",
    "ignoreCorruptFiles": "false",
    "ignoreMissingFiles": "false",
}
"""Options of Spark's own reader of Parquet: spark-defaults.conf may have changed them."""
PARQUET = READING | {"__globPaths__": "false"}  # a path is one path, whatever characters it has
"""Those for files that we have written."""
_LEFT_BEHIND = 24 * 3600.0
_GROUP_ROWS = 131_072
"""Rows of a row group: groups are read in parallel."""


class RowStore(Protocol):
    """Keeps rows as Parquet, each table under a name."""

    uri: str

    def put(self, name: str, rows: pa.Table) -> str:
        """Writes rows, and returns the URI that Spark reads them from."""

    def copy(self, name: str, folder: Path) -> str:
        """Copies a folder of Parquet files, and returns the URI that Spark reads them from."""

    def uri_of(self, name: str) -> str:
        """Returns the URI that Spark reads rows from."""

    def remove(self, name: str) -> None:
        """Removes rows. Does not raise."""

    def clear(self) -> None:
        """Removes everything. Does not raise."""

    def tidy(self, before: float) -> None:
        """Removes what was last changed before a time."""

    def drop_if_empty(self) -> None:
        """Removes the folder itself, if nothing is in it. Does not raise."""


class FolderStore:
    """Keeps rows in a folder of this machine, which others may see too."""

    def __init__(self, path: Path):
        self._path = path
        self.uri = path.as_uri()

    def put(self, name: str, rows: pa.Table) -> str:
        folder = self._path / name
        try:
            folder.mkdir(parents=True)
        except OSError as error:
            raise _lost(self.uri, error) from error
        try:
            write_parquet(rows, folder / "rows.parquet")
        except OSError as error:
            self.remove(name)
            raise _lost(self.uri, error) from error
        return self.uri_of(name)

    def copy(self, name: str, folder: Path) -> str:
        try:
            for file in folder.rglob("*.parquet"):
                into = self._path / name / file.relative_to(folder)
                into.parent.mkdir(parents=True)  # with the usual permissions: workers may be other users
                shutil.copyfile(file, into)
        except OSError as error:
            self.remove(name)
            raise _lost(self.uri, error) from error
        return self.uri_of(name)

    def uri_of(self, name: str) -> str:
        return f"file://{self._path / name}"  # Hadoop takes a path as it is

    def remove(self, name: str) -> None:
        shutil.rmtree(self._path / name, ignore_errors=True)

    def clear(self) -> None:
        shutil.rmtree(self._path, ignore_errors=True)

    def drop_if_empty(self) -> None:
        with suppress(OSError):
            self._path.rmdir()

    def tidy(self, before: float) -> None:
        for left in self._path.iterdir() if self._path.is_dir() else ():
            if left.is_dir() and left.stat().st_mtime < before:
                shutil.rmtree(left, ignore_errors=True)


class HadoopStore:
    """Keeps rows where Spark's own file systems reach, with Spark's settings: the same for driver and executors."""

    def __init__(self, spark: SparkSession, uri: str):
        self.uri = uri
        self._spark = spark

    def put(self, name: str, rows: pa.Table) -> str:
        with tempfile.TemporaryDirectory(prefix="millpond-") as folder:
            write_parquet(rows, Path(folder, "rows.parquet"))
            return self.copy(name, Path(folder))

    def copy(self, name: str, folder: Path) -> str:
        uri = self.uri_of(name)
        try:
            files, path_of = hadoop_files(self._spark.sparkContext, uri)
            for made in folder.rglob("*.parquet"):
                into = f"{uri}/{made.relative_to(folder)}"
                files.copyFromLocalFile(False, True, path_of(f"file://{made}"), path_of(into))
        except Exception as error:
            raise jvm.lost(error) or _lost(self.uri, error) from error
        return uri

    def uri_of(self, name: str) -> str:
        return f"{self.uri}/{name}"

    def remove(self, name: str) -> None:
        self._delete(self.uri_of(name))

    def clear(self) -> None:
        self._delete(self.uri)

    def drop_if_empty(self) -> None:
        with suppress(Exception):  # it is not empty, or the JVM is gone
            files, path_of = hadoop_files(self._spark.sparkContext, self.uri)
            files.delete(path_of(self.uri), False)

    def tidy(self, before: float) -> None:
        files, path_of = hadoop_files(self._spark.sparkContext, self.uri)
        if files.exists(path_of(self.uri)):
            for left in files.listStatus(path_of(self.uri)):
                if left.isDirectory() and left.getModificationTime() < before * 1000:
                    files.delete(left.getPath(), True)

    def _delete(self, uri: str) -> None:
        with suppress(Exception):  # the JVM may be gone; the next start removes it
            files, path_of = hadoop_files(self._spark.sparkContext, uri)
            files.delete(path_of(uri), True)


def store_at(spark: SparkSession, uri: str) -> RowStore:
    """Returns the store at a URI."""
    if (path := folder_of(uri)) is not None:
        return FolderStore(path)
    return HadoopStore(spark, uri)


def store_of(spark: SparkSession) -> RowStore | None:
    """Returns the store of the app that the session belongs to, if it has one."""
    uri = spark.conf.get(SETTING, None)
    return None if uri is None else store_at(spark, uri)


def open_store(spark: SparkSession, uri: str) -> RowStore:
    """Makes a folder in the folder of an app the store of the session, and removes it when the process ends. What
    was left behind there a day ago or earlier is removed. Raises EngineError if the driver cannot write there.
    """
    app = store_at(spark, uri)
    store = store_at(spark, f"{app.uri}/{uuid4().hex}")
    try:
        app.tidy(time.time() - _LEFT_BEHIND)
        store.put("check", pa.table({"x": [1]}))
    except Exception as error:
        raise EngineError(
            f'the store "{uri}" cannot be written: {_first_line(error.__cause__ or error)}',
            hint="name a folder that the driver and all workers have, or a URI that Spark has the jars and keys of",
        ) from error
    spark.conf.set(SETTING, store.uri)
    atexit.register(app.drop_if_empty)
    atexit.register(store.clear)
    return store


def folder_of(uri: str) -> Path | None:
    """Returns the folder that a URI names; None if it is not one of a machine."""
    split = urlsplit(uri)
    if split.scheme in ("", "file"):
        return Path(unquote(split.path) if split.scheme else uri).absolute()
    return None


def write_parquet(rows: pa.Table, path: Path) -> None:
    """Writes rows for one read: no time is spent on size."""
    pq.write_table(
        rows,
        path,
        row_group_size=_GROUP_ROWS,
        compression="none",
        use_dictionary=False,
        write_statistics=False,
        store_schema=False,
    )


def _lost(uri: str, error: Exception) -> ConnectionLost:
    """Returns the error for rows that cannot be written just now."""
    return ConnectionLost(f'rows for Spark cannot be written to "{uri}": {_first_line(error)}')


def _first_line(error: BaseException) -> str:
    if isinstance(error, OSError):
        return error.strerror or str(error)
    java = getattr(error, "java_exception", None)
    return str(java if java is not None else error).strip().partition("\n")[0]
