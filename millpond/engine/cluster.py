"""Configures Spark masters other than this machine's cores: what remote executors need, and what is left to them."""

from __future__ import annotations

import socket
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from millpond.errors import EngineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OWN = frozenset(
    (
        "spark.local.dir",
        "spark.sql.shuffle.partitions",
        "spark.default.parallelism",
        "spark.executor.killOnFatalError.depth",
    )
)
"""Settings that depend on the driver's disk and cores, which say nothing about the workers: there spark-defaults.conf
applies. A remote executor may end: Spark starts another one.
"""
SETTINGS = {
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.execution.arrow.localRelationThreshold": "256KB",
}
"""Spark chooses the number of shuffle partitions. Of the driver's rows, more than that are shipped as Arrow with the
tasks: as rows of the plan they take several times the work.
"""
_STANDALONE = "spark://"
_PATIENCE = 5.0
"""Seconds to wait for a master."""
_HERE = ("127.0.0.1", "localhost", "::1")


def is_cluster(master: str) -> bool:
    """Returns whether executors are other processes than the driver's."""
    return master != "local" and not master.startswith("local[")


def is_here(master: str) -> bool:
    """Returns whether everything runs on this machine, which nobody else need reach."""
    return master.startswith("local") or urlsplit(master).hostname in _HERE


def check_master(master: str) -> None:
    """Raises EngineError if none of the standalone masters that a URL names can be reached: Spark itself tries for a
    minute.
    """
    if not master.startswith(_STANDALONE):
        return
    why: list[str] = []
    for part in master.removeprefix(_STANDALONE).split(","):
        try:
            address = urlsplit(_STANDALONE + part)
            socket.create_connection((address.hostname or "", address.port or 7077), _PATIENCE).close()
            return
        except (OSError, ValueError) as error:
            why.append(str(error))
    raise EngineError(
        f'no Spark master can be reached at "{master}": {"; ".join(why)}',
        hint="check the address, and that the master runs there",
    )


def send_package(spark: SparkSession, directory: Path) -> None:
    """Sends this very Millpond to the executors, whatever is installed there."""
    root = Path(__file__).parent.parent
    made = directory / "millpond.zip"
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as package:
        for file in sorted(root.rglob("*")):
            if file.suffix in (".py", ".txt"):
                package.write(file, Path("millpond", file.relative_to(root)))
    spark.sparkContext.addPyFile(str(made))
