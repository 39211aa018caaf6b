"""What makes the processes that tests start cheap: most of them live for seconds, and do little but begin."""

from __future__ import annotations

import os

QUICK = "-XX:TieredStopAtLevel=1"
"""A JVM that does not compile twice."""


def make_them_quick() -> None:
    """For those that are started from here on, and those that they start.

    With the quick compiler alone, and the archive of classes that ``make test`` has had made
    (``millpond.engine.archive``), a start of Spark takes a third of the work.
    """
    os.environ.setdefault("SPARK_SUBMIT_OPTS", QUICK)
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", QUICK)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
