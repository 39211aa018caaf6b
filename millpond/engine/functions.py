"""Registers with Spark the functions that a query names: Millpond's own and those of programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pyarrow as pa

from millpond.query.jsonpaths import FUNCTIONS
from millpond.sql.userfunctions import functions_in
from millpond.types import type_name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession, sql: str) -> None:
    """Registers the functions that the text names with the session."""
    named = [(name, f, f"array<{type_name(of)}>") for name, (f, of) in FUNCTIONS.items() if name in sql]
    named += [(own.key, own.call, type_name(own.returns)) for own in functions_in(sql)]
    for name, function, returns in named:
        from pyspark.sql.pandas.functions import arrow_udf

        spark.udf.register(name, arrow_udf(_typed(function), returns))  # type: ignore[call-overload]


def _typed(function: Callable[..., pa.Array]) -> Callable[..., pa.Array]:
    """Returns the function with the annotations that Spark requires."""

    def with_types(*columns: pa.Array) -> pa.Array:
        return function(*columns)

    with_types.__annotations__ = {"columns": pa.Array, "return": pa.Array}
    return with_types
