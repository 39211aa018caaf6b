"""Renders paths with wildcards."""

from __future__ import annotations

import pyarrow as pa
from sqlglot import exp

from millpond.sql.nodes import AnyValue, ArraySum, EachOnce, Element, FilteredValues, PathValues
from millpond.sql.paths import Words, write
from millpond.sql.render.duckdb.casts import cast
from millpond.sql.render.duckdb.expression import Entry, Expressions
from millpond.sql.render.duckdb.names import text, typed


class _DuckWords(Words):
    def cast(self, x: str, source: pa.DataType, target: pa.DataType) -> str:
        return cast(x, source, target)

    def one(self, x: str) -> str:
        return f"[{x}]"

    def none(self, dtype: pa.DataType) -> str:
        return typed("[]", pa.list_(dtype))

    def both(self, a: str, b: str) -> str:
        return f"list_concat({a}, {b})"

    def each(self, x: str, variable: str, body: str, none: str) -> str:
        return f"coalesce(flatten(list_transform({x}, lambda {variable}: {body})), {none})"

    def when(self, condition: str, then: str, otherwise: str) -> str:
        return f"CASE WHEN {condition} THEN {then} ELSE {otherwise} END"

    def field(self, x: str, name: str) -> str:
        return f"struct_extract({x}, {text(name)})"

    def values(self, x: str) -> str:
        return f"map_values({x})"

    def has(self, x: str, key: str) -> str:
        return f"list_contains(map_keys({x}), {key})"

    def of_key(self, x: str, key: str) -> str:
        return f"map_extract_value({x}, {key})"

    def key(self, value: str | int) -> str:
        return text(value) if isinstance(value, str) else str(value)

    def at(self, x: str, index: int) -> str:
        return f"{x}[{index + 1}]"

    def longer(self, x: str, index: int) -> str:
        return f"len({x}) > {index}"


def values(r: Expressions, node: exp.Expr) -> str:
    result = r.type(node)
    heads = [
        (r.sql(h), r.type(h), steps) for h, steps in zip(node.expressions, node.meta["steps"], strict=True)
    ]
    return typed(write(_DuckWords(), heads, result.value_type), result)


def filtered_values(r: Expressions, node: exp.Expr) -> str:
    variable = node.args["variable"].name
    return f"list_filter({r.sql(node.this)}, lambda {variable}: {r.sql(node.args['condition'])})"


def any_value(r: Expressions, node: exp.Expr) -> str:
    return f"(len({filtered_values(r, node)}) > 0)"


def array_sum(r: Expressions, node: exp.Expr) -> str:
    return typed(f"list_sum({r.sql(node.this)})", r.type(node))


def each_once(r: Expressions, node: exp.Expr) -> str:
    return typed(f"list_distinct(flatten({r.sql(node.this)}))", r.type(node))


ENTRIES: dict[type[exp.Expr], Entry] = {
    PathValues: values,
    AnyValue: any_value,
    FilteredValues: filtered_values,
    ArraySum: array_sum,
    EachOnce: each_once,
    Element: lambda r, node: str(node.name),
}
