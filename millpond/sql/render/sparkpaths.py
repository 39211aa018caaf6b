"""Renders paths with wildcards in Spark SQL."""

from __future__ import annotations

import pyarrow as pa
from sqlglot import exp

from millpond.sql.paths import Words, write
from millpond.types import quote, type_name


class SparkWords(Words):
    def cast(self, x: str, source: pa.DataType, target: pa.DataType) -> str:
        return x if source == target else f"CAST({x} AS {type_name(target)})"

    def one(self, x: str) -> str:
        return f"array({x})"

    def none(self, dtype: pa.DataType) -> str:
        return f"CAST(array() AS ARRAY<{type_name(dtype)}>)"

    def both(self, a: str, b: str) -> str:
        return f"concat({a}, {b})"

    def each(self, x: str, variable: str, body: str, none: str) -> str:
        return f"coalesce(flatten(transform({x}, {variable} -> {body})), {none})"

    def when(self, condition: str, then: str, otherwise: str) -> str:
        return f"IF({condition}, {then}, {otherwise})"

    def field(self, x: str, name: str) -> str:
        return f"{x}.{quote(name)}"

    def values(self, x: str) -> str:
        return f"map_values({x})"

    def has(self, x: str, key: str) -> str:
        return f"map_contains_key({x}, {key})"

    def of_key(self, x: str, key: str) -> str:
        return f"try_element_at({x}, {key})"

    def key(self, value: str | int) -> str:
        if isinstance(value, int):
            return str(value)
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"

    def at(self, x: str, index: int) -> str:
        return f"get({x}, {index})"

    def longer(self, x: str, index: int) -> str:
        return f"size({x}) > {index}"


def values_sql(heads: list[str], node: exp.Expr) -> str:
    """Returns the array of a PathValues; ``heads`` are its rendered columns."""
    typed = zip(heads, node.expressions, node.meta["steps"], strict=True)
    result = node.meta["dtype"]
    return write(SparkWords(), [(x, h.meta["dtype"], steps) for x, h, steps in typed], result.value_type)


def sum_sql(array: str, name: str) -> str:
    """Returns the sum of an array in the type of that name, NULL without a value."""
    added = f"CAST(coalesce(total, CAST(0 AS {name})) + CAST(item AS {name}) AS {name})"
    return f"aggregate({array}, CAST(NULL AS {name}), (total, item) -> IF(item IS NULL, total, {added}))"
