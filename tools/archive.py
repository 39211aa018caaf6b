"""Has Spark write the classes that it loads into an archive, so that the tests start it in a third of the time.

Run by ``make test``, once for each environment. Without the archive the tests run as well, only longer.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from millpond.testing import read_cases, run_case  # noqa: E402
from tests.processes import ARCHIVE, QUICK  # noqa: E402

CASE = "E3 a table keyed by the grouping column, with running sums"


def main() -> int:
    ARCHIVE.parent.mkdir(exist_ok=True)
    written = ARCHIVE.with_suffix(".new")
    written.unlink(missing_ok=True)
    os.environ["SPARK_SUBMIT_OPTS"] = f"{QUICK} -XX:ArchiveClassesAtExit={written} -Xlog:disable"
    print("writing an archive of Spark's classes, for the tests")
    case = next(c for c in read_cases(ROOT / "tests/sql/live_aggregates.test") if c.name == CASE)
    with tempfile.TemporaryDirectory() as directory:
        run_case(case, "restart", Path(directory))
    _end_jvm()
    if written.is_file():
        written.rename(ARCHIVE)
    else:
        print("this Java writes none: the tests go without")
    return 0


def _end_jvm() -> None:
    """The archive is written when the JVM ends."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    session, gateway = SparkSession.getActiveSession(), SparkContext._gateway
    if session is not None:
        session.stop()
    if gateway is not None:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(300)


if __name__ == "__main__":
    sys.exit(main())
