"""Finds the archive of the Java classes that Spark loads: with it Spark's Java process starts in less time.

One is in the user's cache for each Java, Spark and set of jars. The first start of Spark goes without, and then has one
made by a process of lowest priority (``archive_maker.py``), which outlives this one if need be. Java leaves an archive
aside that does not fit, so nothing here can fail a start. ``MILLPOND_CLASS_ARCHIVE=off`` turns it off.
"""

from __future__ import annotations

import hashlib
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from millpond.engine.internals import spark_home
from millpond.engine.jars import cache
from millpond.engine.java import Java

log = logging.getLogger("millpond")
_OPTIONS = ("SPARK_SUBMIT_OPTS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS")
_OTHERS = ("-Xshare", "SharedArchiveFile", "ArchiveClassesAtExit")
"""Options of a user, or of the process that makes an archive, which ours would contradict."""
_FOLDERS = ("SPARK_CONF_DIR", "HADOOP_CONF_DIR", "YARN_CONF_DIR")
"""Folders on Java's class path. Java writes no archive if there is something in one."""
_NEWEST = 17
"""Newer Java finds another class path than the one that it wrote down, and leaves the archive aside."""
_AGAIN = 24 * 3600
"""Seconds after which one is tried again that could not be made."""


def find_archive(java: Java) -> Path | None:
    """Returns where the archive is, or will be; None where there is to be none."""
    if os.environ.get("MILLPOND_CLASS_ARCHIVE", "").lower() in ("off", "0", "false", "no"):
        return None
    if java.version > _NEWEST:
        return None
    if "PYSPARK_GATEWAY_PORT" in os.environ:  # somebody else has started Java
        return None
    if any(other in os.environ.get(name, "") for name in _OPTIONS for other in _OTHERS):
        return None
    import pyspark

    try:
        home = spark_home()
        folders = [Path(os.environ.get("SPARK_CONF_DIR") or home / "conf")]
        folders += [Path(os.environ[name]) for name in _FOLDERS[1:] if os.environ.get(name)]
        if any(folder.is_dir() and any(folder.iterdir()) for folder in folders):
            return None
        jars = sorted((j.name, j.stat().st_size, j.stat().st_mtime_ns) for j in os.scandir(home / "jars"))
        paths = [str(folder) for folder in folders], os.environ.get("SPARK_DIST_CLASSPATH")
        about = (java.build, pyspark.__version__, str(home), jars, paths)
        name = hashlib.sha256(repr(about).encode()).hexdigest()[:24]
        found = cache().absolute() / "classes" / f"{name}.jsa"
    except (OSError, RuntimeError):  # no such folder, or no home of the user
        return None
    return None if set(str(found)) & set(':"\\') else found  # Java reads a list there


def base_of(archive: Path) -> Path:
    """Returns the archive of Java's own classes beneath another one, for a Java that brings none along."""
    return archive.with_suffix(".base")


def is_whole(archive: Path) -> bool:
    """Returns whether an archive is there as it was written: Java would crash with one that was cut off."""
    try:
        return os.access(archive, os.R_OK) and archive.stat().st_size == int(size_of(archive).read_text())
    except (OSError, ValueError):
        return False


def size_of(archive: Path) -> Path:
    """Returns the file that says how many bytes an archive has."""
    return archive.with_suffix(".size")


def java_options(archive: Path | None) -> str:
    """Returns the options with which Java uses the archive, if it is there."""
    if archive is None or not is_whole(archive):
        return ""
    base = base_of(archive)
    files = f"{base}:{archive}" if base.exists() else str(archive)
    try:
        for file in (archive, size_of(archive), base):
            if file.exists():
                os.utime(file)  # those that nobody uses are removed
    except OSError:
        log.debug("the archive of classes belongs to somebody else", exc_info=True)
    # What Java says of an archive that does not fit is not for a terminal.
    return f'-Xshare:auto "-XX:SharedArchiveFile={files}" -Xlog:cds*=off'


def make_later(archive: Path | None, environment: Mapping[str, str]) -> None:
    """Has the archive made, if it is not there, by a process that nothing waits for. It starts with the
    ``environment`` that this one had before it started Spark.
    """
    if archive is None or is_whole(archive) or _failed_lately(archive):
        return
    if getattr(sys, "frozen", False):
        return  # the executable is the user's program
    # The maker imports this very Millpond, wherever it is imported from.
    path = [*filter(None, [environment.get("PYTHONPATH")]), str(Path(__file__).parents[2])]
    try:
        archive.parent.mkdir(parents=True, exist_ok=True)
        made = subprocess.Popen(
            [sys.executable, "-m", "millpond.engine.archive_maker", str(archive)],
            env={**environment, "PYTHONPATH": os.pathsep.join(path)},
            cwd=archive.parent,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError:
        log.debug("no archive of classes can be made", exc_info=True)
        return
    threading.Thread(target=made.wait, name="millpond-class-archive", daemon=True).start()


def note_of_failure(archive: Path) -> Path:
    """Returns the file that says why an archive could not be made."""
    return archive.with_suffix(".failed")


def _failed_lately(archive: Path) -> bool:
    try:
        return time.time() - note_of_failure(archive).stat().st_mtime < _AGAIN
    except OSError:
        return False
