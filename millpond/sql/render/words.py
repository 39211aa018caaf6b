"""Defines how each evaluator writes the parts of a fold."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

import pyarrow as pa
from sqlglot import exp

from millpond.sql.fold import SEQ
from millpond.sql.render import spark
from millpond.sql.render.duckdb.names import duck, quoted, typed
from millpond.sql.render.duckdb.query import Queries
from millpond.sql.rewrite import FOR_DUCKDB, rewrite
from millpond.types import quote, type_name

STATUS = pa.int8()
"""The type of the result for a row."""
PART = 64
"""Items of a list that are reduced at once where each appends to a list: Spark copies it at each step."""


class Words(ABC):
    """Declares how an evaluator writes the parts of a fold."""

    one_type: ClassVar[bool]
    """Whether the items of a list, and the row that they are reduced to, must have one type."""

    @abstractmethod
    def name(self, name: str) -> str: ...

    @abstractmethod
    def sql(self, node: exp.Expr) -> str: ...

    @abstractmethod
    def cast(self, sql: str, dtype: pa.DataType) -> str: ...

    @abstractmethod
    def struct(self, fields: Mapping[str, str]) -> str: ...

    @abstractmethod
    def collect(self, struct: str, *, comparable: bool) -> str:
        """Returns the structs of a group as a list, ordered by their ``seq``. If they are ``comparable`` as a whole,
        it must be their first field.
        """

    @abstractmethod
    def gather(self, struct: str) -> str:
        """Returns the structs of a group as a list, in any order."""

    @abstractmethod
    def same(self, a: str, b: str) -> str:
        """Returns an equality in which NULL equals NULL."""

    @abstractmethod
    def reduce(self, items: str, row: str, item: str, step: str, start: str) -> str: ...

    @abstractmethod
    def each(self, items: str, item: str, value: str) -> str: ...

    @abstractmethod
    def keep(self, items: str, item: str, condition: str) -> str: ...

    @abstractmethod
    def append(self, items: str, item: str) -> str: ...

    @abstractmethod
    def empty(self, dtype: pa.DataType) -> str:
        """Returns an empty list of that type."""

    @abstractmethod
    def unnest(self, items: str) -> str: ...

    @abstractmethod
    def once(self, value: str) -> str:
        """Returns an output that is evaluated once for each row, however often it is read."""

    @abstractmethod
    def size(self, items: str) -> str: ...

    def of(self, struct: str, field: str) -> str:
        return f"{self.name(struct)}.{self.name(field)}"

    def null(self, dtype: pa.DataType | None) -> str:
        assert dtype is not None
        return self.cast("NULL", dtype)

    def status(self, value: int) -> str:
        return self.cast(str(value), STATUS)


class DuckWords(Words):
    one_type = True

    def __init__(self) -> None:
        self._expressions = Queries().expressions

    def name(self, name: str) -> str:
        return quoted(name)

    def sql(self, node: exp.Expr) -> str:
        return self._expressions.sql(rewrite(node, FOR_DUCKDB))

    def cast(self, sql: str, dtype: pa.DataType) -> str:
        return typed(sql, dtype)

    def struct(self, fields: Mapping[str, str]) -> str:
        return "{" + ", ".join(f"'{name}': {value}" for name, value in fields.items()) + "}"

    def collect(self, struct: str, *, comparable: bool) -> str:
        return f"list({struct} ORDER BY {quoted(SEQ)})"

    def gather(self, struct: str) -> str:
        return f"list({struct})"

    def same(self, a: str, b: str) -> str:
        return f"{a} IS NOT DISTINCT FROM {b}"

    def reduce(self, items: str, row: str, item: str, step: str, start: str) -> str:
        return f"list_reduce({items}, lambda {quoted(row)}, {quoted(item)}: {step}, {start})"

    def each(self, items: str, item: str, value: str) -> str:
        return f"list_transform({items}, lambda {quoted(item)}: {value})"

    def keep(self, items: str, item: str, condition: str) -> str:
        return f"list_filter({items}, lambda {quoted(item)}: {condition})"

    def append(self, items: str, item: str) -> str:
        return f"list_append({items}, {item})"

    def empty(self, dtype: pa.DataType) -> str:
        return f"CAST([] AS {duck(dtype)})"

    def unnest(self, items: str) -> str:
        return f"unnest({items})"

    def once(self, value: str) -> str:
        return value

    def size(self, items: str) -> str:
        return f"len({items})"


class SparkWords(Words):
    """Writes Spark SQL. With ``stable``, events of one number stay in the order in which they come."""

    one_type = False

    def __init__(self, *, stable: bool = False):
        self._stable = stable

    def name(self, name: str) -> str:
        return quote(name)

    def sql(self, node: exp.Expr) -> str:
        return spark.expression(node)

    def cast(self, sql: str, dtype: pa.DataType) -> str:
        return f"CAST({sql} AS {type_name(dtype)})"

    def struct(self, fields: Mapping[str, str]) -> str:
        return "named_struct(" + ", ".join(f"'{name}', {value}" for name, value in fields.items()) + ")"

    def collect(self, struct: str, *, comparable: bool) -> str:
        if comparable and not self._stable:
            return f"sort_array(collect_list({struct}))"
        order = f"(a, b) -> CASE WHEN a.{SEQ} < b.{SEQ} THEN -1 WHEN a.{SEQ} > b.{SEQ} THEN 1 ELSE 0 END"
        return f"array_sort(collect_list({struct}), {order})"

    def flat(self, lists: str) -> str:
        return f"flatten({lists})"

    def gather(self, struct: str) -> str:
        return f"collect_list({struct})"

    def same(self, a: str, b: str) -> str:
        return f"{a} <=> {b}"

    def reduce(self, items: str, row: str, item: str, step: str, start: str) -> str:
        return f"aggregate({items}, {start}, ({quote(row)}, {quote(item)}) -> {step})"

    def parts(self, items: str) -> str:
        """Returns a list as lists of at most PART items."""
        return f"transform(sequence(1, size({items}), {PART}), i -> slice({items}, i, {PART}))"

    def each_of_both(self, items: str, others: str, item: str, other: str, value: str) -> str:
        """Returns a value for each item and the other item at its place."""
        return f"zip_with({items}, {others}, ({quote(item)}, {quote(other)}) -> {value})"

    def each(self, items: str, item: str, value: str) -> str:
        return f"transform({items}, {quote(item)} -> {value})"

    def keep(self, items: str, item: str, condition: str) -> str:
        return f"filter({items}, {quote(item)} -> {condition})"

    def append(self, items: str, item: str) -> str:
        return f"concat({items}, array({item}))"

    def empty(self, dtype: pa.DataType) -> str:
        return f"CAST(array() AS {type_name(dtype)})"

    def unnest(self, items: str) -> str:
        return f"explode({items})"

    def once(self, value: str) -> str:
        # Spark would copy the expression into conditions on it.
        return f"explode(array({value}))"

    def size(self, items: str) -> str:
        return f"size({items})"
