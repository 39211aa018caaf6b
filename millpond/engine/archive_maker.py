"""Makes the archive of Spark's classes: starts Spark, has it load what a running statement needs, and Java writes
those classes when it ends. ``python -m millpond.engine.archive_maker [FILE]``.

The file appears when it is complete. A maker that is killed leaves nothing that anybody uses; of two, one works.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa

from millpond.engine import internals
from millpond.engine.answer import ask
from millpond.engine.archive import base_of, find_archive, is_whole, note_of_failure, size_of
from millpond.engine.java import find_java
from millpond.engine.session import get_session, new_session

_UNUSED = 30 * 24 * 3600
"""Seconds after which an archive is removed that nobody has used."""
_WRITE = 300
"""Maximum seconds that Java takes to end."""


def main(arguments: list[str]) -> int:
    """Makes the archive, unless it is there or somebody else makes it."""
    archive = Path(arguments[0]) if arguments else find_archive(find_java())
    if archive is None:
        return 1
    archive.parent.mkdir(parents=True, exist_ok=True)
    with archive.with_suffix(".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return 0
        if is_whole(archive):
            return 0
        os.nice(19)
        try:
            _make(archive)
        except Exception as error:
            note_of_failure(archive).write_text(f"{type(error).__name__}: {error}\n", encoding="utf-8")
            return 1
        note_of_failure(archive).unlink(missing_ok=True)
        _remove_unused(archive.parent)
    return 0


def _make(archive: Path) -> None:
    base, new = _make_base(archive), archive.with_suffix(".new")
    new.unlink(missing_ok=True)
    options = ["-XX:TieredStopAtLevel=1", f'"-XX:ArchiveClassesAtExit={new}"', "-Xlog:disable"]
    if base is not None:
        options.append(f'"-XX:SharedArchiveFile={base}"')
    os.environ["SPARK_SUBMIT_OPTS"] = " ".join([os.environ.get("SPARK_SUBMIT_OPTS", ""), *options])
    os.environ["MILLPOND_DRIVER_MEMORY"] = "1g"
    try:
        with tempfile.TemporaryDirectory(prefix="millpond-classes-") as directory:
            _load_classes(Path(directory))
            code = internals.end_process(_WRITE)
    except BaseException:
        internals.kill_process()  # it would write an archive of too little
        new.unlink(missing_ok=True)
        raise
    if code != 0 or not new.is_file():
        new.unlink(missing_ok=True)
        raise RuntimeError(f"Java wrote no archive and ended with code {code}")
    size_of(archive).unlink(missing_ok=True)
    _put(new, archive)
    new.write_text(str(archive.stat().st_size), encoding="utf-8")
    _put(new, size_of(archive))


def _make_base(archive: Path) -> Path | None:
    """Returns the archive of Java's own classes if this Java, as that of a wheel, lacks it."""
    home = find_java().home
    if home is None or (home / "lib" / "server" / "classes.jsa").exists():
        return None
    base, new = base_of(archive), archive.with_suffix(".newbase")
    new.unlink(missing_ok=True)
    command = [
        str(home / "bin" / "java"),
        "-Xshare:dump",
        "-XX:+UseParallelGC",
        f"-XX:SharedArchiveFile={new}",
    ]
    subprocess.run([*command, "-Xlog:disable"], check=True, timeout=_WRITE)
    _put(new, base)
    return base


def _put(new: Path, file: Path) -> None:
    """Makes a file visible that is complete and on the disk."""
    with new.open("rb") as written:
        os.fsync(written.fileno())
    new.replace(file)


def _load_classes(directory: Path) -> None:
    """Does in Spark what the first batches and queries of an app do."""
    rows = pa.table(
        {"k": ["a", "b"] * 50, "v": range(100), "t": pa.array(range(100), pa.timestamp("us", "UTC"))}
    )
    few = pa.table({"k": ["a", "b"], "name": ["one", "two"]})
    spark = get_session("local[1]", directory)
    tables = {"many": rows, "few": few}
    ask(
        spark,
        "SELECT name, count(*) AS n, sum(v) AS v, max(t) AS t FROM many JOIN few USING (k) GROUP BY name",
        tables,
    )
    ask(
        spark,
        "SELECT k, v, row_number() OVER (PARTITION BY k ORDER BY v) AS n FROM many WHERE v > 1.5D",
        tables,
    )
    session, folder = new_session(spark), str(directory / "rows")
    session.createDataFrame(rows).write.parquet(folder)
    read = session.read.schema("k STRING, v BIGINT, t TIMESTAMP").parquet(folder)
    read.createOrReplaceTempView("many")
    session.sql("SELECT k, upper(k) AS u, CAST(v AS DECIMAL(20, 2)) AS d FROM many WHERE v >= 10").toArrow()
    read.mapInArrow(lambda batches: batches, read.schema).toArrow()


def _remove_unused(folder: Path) -> None:
    for file in folder.iterdir():
        if time.time() - file.stat().st_mtime > _UNUSED:
            file.unlink(missing_ok=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
