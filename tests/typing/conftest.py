"""Two engines side by side: Spark says what an expression is, DuckDB must say the same."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import duckdb
import pyarrow as pa
import pytest
from pyspark.sql.classic.column import Column
from sqlglot import exp

from millpond.errors import TypeMismatch
from millpond.query.duck import Duck, register_decimals
from millpond.query.spelling import FUNCTIONS
from millpond.sql.parse import parse
from millpond.sql.render.duckdb import NOW, Unrenderable, render
from millpond.sql.statements import Select
from millpond.sql.typing import type_of
from millpond.types import normal, type_name
from tests.oracle.cells import RAISED, same

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = {
    "i8": "TINYINT", "i16": "SMALLINT", "i": "INT", "j": "INT", "l": "BIGINT", "m": "BIGINT",
    "f": "FLOAT", "x": "DOUBLE", "y": "DOUBLE",
    "d": "DECIMAL(10,2)", "e": "DECIMAL(18,4)", "g": "DECIMAL(38,18)", "c": "DECIMAL(5,0)",
    "s": "STRING", "t": "STRING", "n": "STRING", "o": "BOOLEAN", "p": "BOOLEAN",
    "dt": "DATE", "du": "DATE", "ts": "TIMESTAMP", "tu": "TIMESTAMP", "tn": "TIMESTAMP_NTZ",
    "a": "ARRAY<INT>", "sa": "ARRAY<STRING>", "mp": "MAP<STRING,INT>", "st": "STRUCT<p:INT,q:STRING>",
    "bin": "BINARY",
}  # fmt: skip


def rows_of(name: str) -> list[str]:
    """Rows as Spark SQL: ``mild`` has values that no usual expression fails on, ``edge`` the ends of the types,
    zero divisors, and strings that are no numbers."""
    return (Path(__file__).parent / f"{name}.txt").read_text(encoding="utf-8").splitlines()


def values(rows: Sequence[str]) -> str:
    """A relation ``t`` with COLUMNS, as Spark SQL text."""
    names = list(COLUMNS)
    casts = ", ".join(f"CAST({n} AS {COLUMNS[n]}) AS {n}" for n in names)
    body = ", ".join(f"({i}, {r})" for i, r in enumerate(rows))
    return f"(SELECT k, {casts} FROM VALUES {body} AS v(k, {', '.join(names)})) AS t"


def resolve(sql: str, schemas: dict[str, pa.Schema]) -> exp.Expr:
    """A tree as the resolver gives it: columns qualified, with their types; projections aliased."""
    (statement,) = parse(sql, {}).require()
    assert isinstance(statement, Select)
    tree = statement.query.expression
    for select in tree.find_all(exp.Select):
        select.set("expressions", [_aliased(e, i) for i, e in enumerate(select.expressions)])
    for column in list(tree.find_all(exp.Column)):
        _bind(column, tree, schemas)
    return tree


def _aliased(node: exp.Expr, index: int) -> exp.Expr:
    return (
        node
        if isinstance(node, exp.Alias | exp.Star)
        else exp.alias_(node, node.alias_or_name or f"c{index}")
    )


def _bind(column: exp.Column, tree: exp.Expr, schemas: dict[str, pa.Schema]) -> None:
    """Finds the table of a column, from its own SELECT outwards."""
    scope = column.find_ancestor(exp.Select)
    while isinstance(scope, exp.Select):
        for source in [scope.args["from_"].this, *(j.this for j in scope.args.get("joins") or ())]:
            alias, types = source.alias_or_name, _columns(source, tree, schemas)
            if column.table in ("", alias) and column.name.lower() in types:
                column.set("table", exp.to_identifier(alias))
                column.meta["dtype"] = types[column.name.lower()]
                return
            if column.table.lower() in types:
                base = exp.column(column.table, table=alias)
                base.meta["dtype"] = types[column.table.lower()]
                column.replace(exp.Dot(this=base, expression=exp.to_identifier(column.name)))
                return
        scope = scope.find_ancestor(exp.Select)


def _columns(
    source: exp.Expr, tree: exp.Expr, schemas: dict[str, pa.Schema]
) -> dict[str, pa.DataType | None]:
    """The columns of something in FROM, with their types."""
    if source.name in schemas:
        return {f.name.lower(): normal(f.type) for f in schemas[source.name]}
    inner = source.this if isinstance(source, exp.Subquery) else None
    for cte in tree.find_all(exp.CTE):
        if isinstance(source, exp.Table) and cte.alias == source.name:
            inner = cte.this
    if inner is None:
        return {}
    for column in list(inner.find_all(exp.Column)):
        if "dtype" not in column.meta:
            _bind(column, tree, schemas)
    return {e.alias_or_name.lower(): type_of(e) for e in inner.selects}


@dataclass
class Engines:
    """Spark and DuckDB over the same rows."""

    spark: SparkSession
    schema: pa.Schema
    tables: dict[str, pa.Table] = field(default_factory=dict)
    connections: dict[int, tuple[duckdb.DuckDBPyConnection, set[str]]] = field(default_factory=dict)

    values: ClassVar[dict[str, list[str]]] = {name: rows_of(name) for name in ("mild", "edge")}
    resolve = staticmethod(resolve)
    same = staticmethod(same)

    @staticmethod
    def spelled(dtype: pa.DataType) -> str:
        return _spelled(dtype)

    def create_view(self, name: str) -> None:
        """A Spark view with COLUMNS and no rows."""
        self.spark.createDataFrame(
            [], ", ".join(f"{n} {t}" for n, t in COLUMNS.items())
        ).createOrReplaceTempView(name)

    def connection(self, **tables: pa.Table) -> duckdb.DuckDBPyConnection:
        """A connection without the network, set up as the SQL wants it."""
        found = Duck()._connection(" ".join(FUNCTIONS), {}).cursor
        found.execute(f"SET VARIABLE {NOW} = now()")
        for name, table in tables.items():
            found.register(name, table)
        return found

    def connected(self, sql: str, tables: dict[str, pa.Table]) -> duckdb.DuckDBPyConnection:
        """A connection with these tables, and with what the SQL calls."""
        connection = self.connection(**tables)
        register_decimals(connection, sql, set())
        return connection

    def over(self, table: pa.Table, sql: str) -> duckdb.DuckDBPyConnection:
        """A kept connection with ``t``, and with what the SQL calls."""
        if id(table) not in self.connections:
            self.connections[id(table)] = self.connection(t=table), set()
        connection, known = self.connections[id(table)]
        register_decimals(connection, sql, known)
        return connection

    def rows(self, rows: Sequence[str]) -> pa.Table:
        key = "\n".join(rows)
        if not rows:
            self.tables.setdefault(key, self.schema.empty_table())
        if key not in self.tables:
            self.tables[key] = self.spark.sql(f"SELECT * FROM {values(rows)}").toArrow()
        return self.tables[key]

    def on_spark(self, expressions: Sequence[str], rows: Sequence[str]) -> list[list[Any]]:
        """Each expression's values, RAISED where a row raises. One Spark job."""
        jvm, session = self.spark._jvm, self.spark._jsparkSession
        assert jvm is not None
        parser, catalyst = session.sessionState().sqlParser(), jvm.org.apache.spark.sql.catalyst.expressions
        frame = self.spark.sql(f"SELECT * FROM {values(rows)}")
        columns = [frame["k"]]
        for i, e in enumerate(expressions):
            tried = catalyst.TryEval(parser.parseExpression(f"named_struct('v', IF(k < 0, NULL, {e}))"))
            column = jvm.org.apache.spark.sql.classic.ExpressionUtils.column(tried)
            columns.append(Column(column).alias(f"c{i}"))
        return _cells(frame.select(*columns).toArrow())

    def on_duckdb(self, sqls: Sequence[str], rows: Sequence[str]) -> list[list[Any]]:
        """The same from DuckDB."""
        columns = "".join(f", TRY({{'v': {s}}}) AS c{i}" for i, s in enumerate(sqls))
        sql = f"SELECT k{columns} FROM t"
        return _cells(self.over(self.rows(rows), sql).sql(sql).to_arrow_table())

    def differences(self, expressions: Sequence[str], rows: Sequence[str]) -> Iterator[str]:
        """Where the two disagree: types, values, or which rows raise."""
        rendered: dict[str, str] = {}
        columns = ", ".join(f"{e} AS c{i}" for i, e in enumerate(expressions))
        schema = self.spark.sql(f"SELECT {columns} FROM {values(rows)}").schema
        for e, expected in zip(expressions, schema, strict=True):
            try:
                rendered[e] = self.rendered(e, expected.dataType.simpleString())
            except (Disagreement, TypeMismatch) as error:
                yield f"{e}: {error}"
            except Unrenderable as reason:
                yield f"{e}: not rendered: {reason}"
        theirs = self.on_spark(list(rendered), rows)
        for (e, sql), left in zip(rendered.items(), theirs, strict=True):
            try:
                right = self.on_duckdb([sql], rows)[0]
            except duckdb.Error as error:
                # A constant that cannot be evaluated fails the query, not a row.
                if RAISED not in left:
                    yield f"{e}: {error}\n      {sql}"
                continue
            for row, (a, b) in enumerate(zip(left, right, strict=True)):
                if not same(a, b):
                    yield f"{e}: row {row}: {b!r}, Spark has {a!r}\n      {sql}"

    def rendered(self, expression: str, expected: str) -> str:
        """The DuckDB form of an expression, whose type must be the expected one in both places."""
        tree = resolve(f"SELECT {expression} AS c FROM t", {"t": self.schema})
        found = type_of(tree.selects[0])  # type: ignore[attr-defined]
        if found is not None and _spelled(found) != expected:
            raise Disagreement(f"type {_spelled(found)}, Spark has {expected}")
        sql = render(tree)
        sql = sql[len("SELECT ") : sql.rindex(" AS ")]
        try:
            made = self.over(self.rows([]), sql).sql(f"SELECT {sql} AS c FROM t").to_arrow_table()
        except (duckdb.ConversionException, duckdb.OutOfRangeException):
            return sql  # a constant that cannot be evaluated: it must raise in Spark too
        except duckdb.Error as error:
            raise Disagreement(f"{error}\n      {sql}") from None
        if _spelled(normal(made.schema[0].type)) != expected:
            raise Disagreement(f"DuckDB's type {made.schema[0].type}, Spark has {expected}\n      {sql}")
        return sql


class Disagreement(Exception):
    """Two types of one expression."""


def _cells(table: pa.Table) -> list[list[Any]]:
    """The columns after ``k``, in the order of k; dates and times as numbers."""
    ordered = table.sort_by("k")
    return [
        [RAISED if v is None else v["v"] for v in _numbers(ordered.column(i)).to_pylist()]
        for i in range(1, ordered.num_columns)
    ]


def _numbers(column: pa.ChunkedArray) -> pa.ChunkedArray:
    kind = column.type.field(0).type
    number = {pa.date32(): pa.int32()}.get(kind) or (pa.int64() if pa.types.is_timestamp(kind) else None)
    return column if number is None else column.cast(pa.struct([pa.field("v", number)]))


def _spelled(dtype: pa.DataType) -> str:
    """Spark's simple name of a type."""
    if pa.types.is_struct(dtype):
        return "struct<" + ",".join(f"{f.name}:{_spelled(f.type)}" for f in dtype) + ">"
    if pa.types.is_list(dtype):
        return f"array<{_spelled(dtype.value_type)}>"
    if pa.types.is_map(dtype):
        return f"map<{_spelled(dtype.key_type)},{_spelled(dtype.item_type)}>"
    if dtype == pa.duration("us"):
        return "interval day to second"
    return type_name(dtype).lower()


@pytest.fixture(scope="session")
def engines(spark: SparkSession) -> Engines:
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    for key, value in (("ansi.enabled", "true"), ("session.timeZone", "UTC")):
        spark.conf.set(f"spark.sql.{key}", value)
    return Engines(spark, spark.sql(f"SELECT * FROM {values(rows_of('mild')[:1])}").toArrow().schema)
