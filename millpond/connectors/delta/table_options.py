"""Declares the options of tables that are stored in Delta."""

from __future__ import annotations

from millpond.connectors.delta.client import STORAGE
from millpond.options import Option

CACHE_SIZE = 256 << 20

TABLE_OPTIONS = (
    Option(
        "path",
        "text",
        "The folder of the Delta table, or its place in an object store. By default a folder in the state "
        "directory.",
    ),
    Option(
        "table",
        "text",
        "The name of the folder in the state directory, without `path`. By default the table's name.",
    ),
    Option(
        "partition.by",
        "text",
        "The columns that the Delta table is partitioned by when it is created, separated by commas.",
    ),
    Option(
        "flush.interval",
        "duration",
        "How long changes wait for others before they are written to the Delta table.",
        default=30.0,
        free=True,
    ),
    Option(
        "flush.size",
        "size",
        "How large changes may become before they are written without waiting. Four times as much is the limit.",
        default=64 << 20,
        free=True,
    ),
    Option(
        "cache.size",
        "size",
        "How much memory the rows take that were looked up by key. `0` is none.",
        default=CACHE_SIZE,
        free=True,
    ),
    Option(
        "optimize.files",
        "int",
        "How many files fewer there must be after OPTIMIZE, so that the app runs it after a flush. `0` is never.",
        default=16,
        free=True,
        least=0,
    ),
    Option(
        "vacuum.retention",
        "duration",
        "How long VACUUM keeps files that newer versions do not have, in whole hours. By default as long as the Delta "
        "table says, which is 7 days unless it was told otherwise.",
        free=True,
    ),
    STORAGE,
)
