"""What makes the processes that tests start cheap: most of them live for seconds, and do little but begin."""

from __future__ import annotations

import os
from pathlib import Path

ARCHIVE = Path(__file__).parent.parent / ".cache" / "spark.jsa"
QUICK = "-XX:TieredStopAtLevel=1"
"""A JVM that does not compile twice."""


def make_them_quick() -> None:
    """For those that are started from here on, and those that they start.

    With the quick compiler alone, and classes from the archive that ``make test`` has had Spark write
    (``tools/archive.py``), a start of Spark takes a third of the work.
    """
    # An archive of another Java or another Spark is left aside by the JVM; what it says of that is not for a terminal.
    shared = f" -Xshare:auto -XX:SharedArchiveFile={ARCHIVE} -Xlog:disable" if ARCHIVE.is_file() else ""
    os.environ.setdefault("SPARK_SUBMIT_OPTS", QUICK + shared)
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", QUICK)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
