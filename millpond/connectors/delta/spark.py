"""Declares the jars with which Spark reads and writes Delta tables, and explains the errors of its connector."""

from __future__ import annotations

import re

from millpond.connectors.spark import SparkFormat
from millpond.errors import Error, SourceError

_PACKAGE = "io.delta:delta-spark_4.2_2.13:4.4.0"
_CODE = re.compile(r"\[(DELTA_\w+)\] ([^\n]*)")


def _explain(text: str) -> Error | None:
    found = _CODE.search(text)
    return None if found is None else SourceError(f"Delta refuses it: {found[2].strip()} ({found[1]})")


FORMAT = SparkFormat(
    "delta",
    _PACKAGE,
    (_PACKAGE, "io.delta:delta-storage:4.4.0"),
    _explain,
    {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    },
)
