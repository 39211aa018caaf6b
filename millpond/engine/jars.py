"""Finds the jars of Spark's formats that PySpark does not include.

They are in a folder, ``MILLPOND_JARS`` or one in the user's cache, which ``millpond jars`` fills with Maven; for
a machine without access, copy the folder. Without the folder Spark downloads them itself.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from millpond.connectors.spark import SparkFormat
from millpond.errors import ConnectorMissing


def cache() -> Path:
    """Returns the directory for downloads."""
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "millpond"


def folder() -> Path:
    named = os.environ.get("MILLPOND_JARS")
    return Path(named) if named else cache() / "jars"


def jars_of(kind: SparkFormat) -> list[Path]:
    """Returns the jars of a format; nothing if one is missing."""
    found = [folder() / f"{name}-{version}.jar" for _, name, version in (x.split(":") for x in kind.jars)]
    return found if all(jar.is_file() for jar in found) else []


def fetch(jars: tuple[str, ...], target: Path, *, alone: bool) -> None:
    """Downloads jars into a folder with Maven: with what they need, or ``alone``. Raises ConnectorMissing.

    Each is ``group:name:version``, or ``group:name:version:classifier`` for a jar in addition to the main one.
    """
    if shutil.which("mvn") is None:
        raise ConnectorMissing(
            "the jars are fetched with Maven, and there is no command mvn",
            hint="Debian, Ubuntu: apt-get install maven; macOS: brew install maven",
        )
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="millpond-jars-") as scratch:
        (Path(scratch) / "pom.xml").write_text(_pom(jars, alone=alone), encoding="utf-8")
        out = Path(scratch) / "jars"
        command = ["mvn", "-B", "-ntp", "-q", "dependency:copy-dependencies", f"-DoutputDirectory={out}"]
        done = subprocess.run(command, cwd=scratch, capture_output=True, text=True)
        if done.returncode:
            said = (done.stdout + done.stderr).strip().splitlines()
            raise ConnectorMissing(
                f"Maven could not fetch {', '.join(jars)}: {said[0] if said else 'it said nothing'}",
                hint="check Maven's settings and the network",
            )
        for jar in out.glob("*.jar"):
            shutil.copyfile(jar, target / f".{jar.name}.new")
            os.replace(target / f".{jar.name}.new", target / jar.name)


_ALL = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"


def _pom(jars: tuple[str, ...], *, alone: bool) -> str:
    needs = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version>"
        f"{''.join(f'<classifier>{c}</classifier>' for c in classifiers)}{_ALL if alone else ''}</dependency>"
        for group, name, version, *classifiers in (jar.split(":") for jar in jars)
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>millpond</groupId><artifactId>jars</artifactId><version>1</version>"
        f"<dependencies>{needs}</dependencies></project>\n"
    )
