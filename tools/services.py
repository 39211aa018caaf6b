"""Servers that the tests start: PostgreSQL, MariaDB, Redis, Kafka and mongo-java-server, the jars by which Spark reads
Kafka and Delta, Spark's own SQL tests, and the programs that check what we serve: promtool, curl, Chromium. Run by
``make setup``; does nothing when they are there.

As root on a system with apt they are installed. Anybody else is told what to install: the tests that need a server
fail without it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from millpond.connectors.spark import spark_formats  # noqa: E402
from millpond.engine import jars  # noqa: E402
from millpond.errors import Error  # noqa: E402
from tests.oracle.suite import files  # noqa: E402

PROGRAMS = {
    "postgresql": "initdb",
    "mariadb-server": "mariadbd",
    "redis-server": "redis-server",
    "maven": "mvn",
    "prometheus": "promtool",
    "curl": "curl",
    "chromium": "chromium",
}
BROKER = (
    "org.apache.kafka:kafka_2.13:4.3.1",
    "org.apache.kafka:kafka-tools:4.3.1",
    "org.slf4j:slf4j-simple:1.7.36",
)
DOCUMENTS = (
    "de.bwaldvogel:mongo-java-server:1.47.0",
    "de.bwaldvogel:mongo-java-server-h2-backend:1.47.0",
)
"""What speaks the protocol of MongoDB: no server of MongoDB itself can be fetched."""
S3A = (
    "org.apache.hadoop:hadoop-aws:3.5.0",
    "software.amazon.s3.analyticsaccelerator:analyticsaccelerator-s3:1.3.1",
)
AWS = tuple(
    f"software.amazon.awssdk:{name}:2.35.4" for name in ("s3", "s3-transfer-manager", "sts", "apache-client")
)
"""What S3A uses of Amazon's SDK: 16 MB, where the bundle that it asks for has 686."""


def is_there(program: str) -> bool:
    return shutil.which(program) is not None or any(
        found
        for place in ("usr/lib/postgresql/*/bin", "usr/sbin")
        for found in Path("/").glob(f"{place}/{program}")
    )


def broker() -> Path:
    """Where the jars of a Kafka broker are."""
    return jars.cache() / "kafka-4.3.1"


def documents() -> Path:
    """Where the jars of mongo-java-server are."""
    return jars.cache() / "mongo-java-server-1.47.0"


def s3a() -> Path:
    """Where the jars are by which Spark reads and writes S3."""
    return jars.cache() / "s3a-3.5.0"


def fetch_jars() -> int:
    """The broker's jars, the connectors', those of S3A and that of Spark's SQL tests, once for all clones."""
    done = broker() / ".complete"
    try:
        if not done.is_file():
            print("fetching a Kafka broker for the tests")
            jars.fetch(BROKER, broker(), alone=False)
            done.touch()
        if not (documents() / ".complete").is_file():
            print("fetching mongo-java-server for the tests")
            jars.fetch(DOCUMENTS, documents(), alone=False)
            (documents() / ".complete").touch()
        for kind in spark_formats().values():
            if not jars.jars_of(kind):
                print(f"fetching the jars by which Spark reads {kind.name}")
                jars.fetch(kind.jars, jars.folder(), alone=True)
        if not (s3a() / ".complete").is_file():
            print("fetching the jars by which Spark reads and writes S3")
            jars.fetch(S3A, s3a(), alone=True)
            jars.fetch(AWS, s3a(), alone=False)
            (s3a() / ".complete").touch()
        if not files.jar().is_file():
            print("fetching Spark's own SQL tests")
            jars.fetch((files.JAR,), files.jar().parent, alone=True)
    except Error as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def main() -> int:
    return install_programs() or fetch_jars()


def install_programs() -> int:
    missing = [package for package, program in PROGRAMS.items() if not is_there(program)]
    if not missing:
        return 0
    names = " ".join(missing)
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        print(f"Not installed, and needed by some of the tests: {names}", file=sys.stderr)
        print(f"  Debian, Ubuntu: sudo apt-get install {names}", file=sys.stderr)
        print(
            "  macOS: brew install postgresql mariadb redis maven prometheus curl chromium", file=sys.stderr
        )
        return 0
    print(f"installing {names} for the tests")
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (
        ["apt-get", "update", "-qq"],
        ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *missing],
    ):
        done = subprocess.run(command, env=quiet, capture_output=True, text=True)
        if done.returncode:
            print(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}", file=sys.stderr)
            return 1
    if "mariadb-server" in missing:
        leave_stopped("mariadb")
    return 0


def leave_stopped(service: str) -> None:
    """The tests start servers of their own: what a package has started is ended, now and for the next boot."""
    if Path("/run/systemd/system").is_dir():
        command = ["systemctl", "disable", "--now", "--quiet", service]
    else:
        command = ["service", service, "stop"]
    subprocess.run(command, capture_output=True)


if __name__ == "__main__":
    sys.exit(main())
