"""Lists the options of a table in memory."""

from __future__ import annotations

from millpond.options import Option
from millpond.tables._hot import HOT_OPTION
from millpond.tables._limit import LIMIT_OPTIONS

OPTIONS = (
    Option(
        "durability",
        "choice",
        "What a commit waits for, with a state directory. commit: it is on disk. batch: it is "
        "written, and on disk at most 100 ms later, and after drain and close. none: nothing is "
        "stored, the table is empty after a restart.",
        default="commit",
        choices=("commit", "batch", "none"),
    ),
    *LIMIT_OPTIONS,
    HOT_OPTION,
)
