"""Our functions and those of programs on Spark: the ones that the SQL names."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millpond.query.jsonpaths import FUNCTIONS
from millpond.sql.userfunctions import functions_in
from millpond.types import type_name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession, sql: str) -> None:
    """Makes the functions known to the session if the text names one."""
    for name, (function, element) in FUNCTIONS.items():
        if name in sql:
            from pyspark.sql.pandas.functions import arrow_udf

            made = arrow_udf(_typed(function), f"array<{type_name(element)}>")  # type: ignore[call-overload]
            spark.udf.register(name, made)
    for own in functions_in(sql):
        from pyspark.sql.pandas.functions import arrow_udf

        made = arrow_udf(_of_columns(own.call), type_name(own.returns))  # type: ignore[call-overload]
        spark.udf.register(own.key, made)


def _typed(function: Callable[[Any, Any], pa.Array]) -> Callable[[pa.Array, pa.Array], pa.Array]:
    """The function with the annotations that Spark asks for."""

    def with_types(column: pa.Array, paths: pa.Array) -> pa.Array:
        return function(column, paths)

    with_types.__annotations__ = {"column": pa.Array, "paths": pa.Array, "return": pa.Array}
    return with_types


def _of_columns(function: Callable[..., pa.Array]) -> Callable[..., pa.Array]:
    def with_types(*columns: pa.Array) -> pa.Array:
        return function(*columns)

    with_types.__annotations__ = {"columns": pa.Array, "return": pa.Array}
    return with_types
