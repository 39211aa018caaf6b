"""What Millpond says of expressions over the relation ``t``, by each way that it can answer."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
import pyarrow as pa
from sqlglot import exp, parse_one

from millpond.errors import Error
from millpond.query.duck import Duck, register_decimals, to_duckdb
from millpond.query.spelling import FUNCTIONS
from millpond.sql.catalog import Catalog, Relation
from millpond.sql.parse import parse
from millpond.sql.render import spark
from millpond.sql.render.duckdb import NOW, Unrenderable, explain_error
from millpond.sql.resolve import Resolved, Resolver
from millpond.sql.statements import Select
from millpond.types import Schema, normal, type_name
from tests.oracle.cells import RAISED, Refused, cells
from tests.oracle.foreign import WORDS

FOREIGN = re.compile(
    rf"{WORDS}|Exception|pyarrow|explicit type cast|is not implemented|HUGEINT|\bVARCHAR\b", re.IGNORECASE
)
"""Here messages come without the SQL, in which the last words may stand."""


@dataclass(frozen=True)
class Ours:
    """An expression that was accepted: its type if it is known without Spark, its text for Spark, and for DuckDB
    if that can answer it."""

    type: str | None
    spark: str
    duckdb: str | None
    why_not: str | None


class OurSide:
    """Reads ``SELECT text FROM t``, or with ``end`` what that adds."""

    number = "k"
    """The column that tells the rows of an answer apart."""

    def __init__(self, rows: pa.Table, end: str = ""):
        self.rows, self.end = rows, end
        self.schema = Schema.of(rows.schema)
        self.catalog = Catalog()
        self.catalog.add(Relation("t", "table", self.schema))
        # A connection as queries have it, with every function that rendered SQL may call.
        self.connection = Duck()._connection(" ".join(FUNCTIONS), {}).cursor
        self._decimals: set[str] = set()
        self.connection.execute(f"SET VARIABLE {NOW} = now()")
        # In one piece: threads that read several would make lists in any order.
        self.connection.register("__t0", rows.combine_chunks())
        self.connection.register("none", rows.schema.empty_table())

    def resolve(self, text: str) -> Resolved | Refused:
        """The statement, parsed and checked."""
        sql = f"SELECT {text} AS c FROM t{self.end}"
        parsed = parse(sql, {})
        if parsed.errors:
            return Refused(_told(parsed.errors[0]))
        (statement,) = parsed.statements
        assert isinstance(statement, Select), statement
        resolver = Resolver(self.catalog, locate=parsed.script.place)
        resolved = resolver.resolve(statement.query.expression)
        if resolver.errors:
            return Refused(_told(resolver.errors[0]))
        return resolved

    def read(self, text: str) -> Ours | Refused:
        found = self.resolve(text)
        if isinstance(found, Refused):
            return found
        dtype = found.schema.columns[0].type
        rendered = spark.render(found.expression)
        ours, why = None, None
        try:
            if dtype is None:
                raise Unrenderable("only Spark knows the type")
            ours = to_duckdb(found)
            register_decimals(self.connection, ours, self._decimals)
        except Unrenderable as reason:
            why = str(reason)
        return Ours(None if dtype is None else spelled(dtype), rendered, ours, why)

    def duck_type(self, sql: str) -> str | Refused:
        """The type that DuckDB gives rendered SQL, as Spark spells it."""
        try:
            schema = (
                self.connection.sql(f"SELECT * FROM ({_of_none(sql)}) AS q LIMIT 0").to_arrow_table().schema
            )
        except duckdb.Error as error:
            return self.failure(error)
        try:
            return spelled(normal(schema.field("c").type))
        except TypeError:
            return str(schema.field("c").type)

    def failure(self, error: duckdb.Error) -> Refused:
        explained = explain_error(error)
        return Refused(explained[0] if explained else f"unexplained: {error}")

    def values(self, sqls: Sequence[str]) -> list[list[Any] | Refused]:
        """The values of each rendered query, row by row, RAISED where a row fails."""
        columns = "".join(f", TRY({{'v': {_inner(s)}}}) AS c{i}" for i, s in enumerate(sqls))
        try:
            return list(cells(self.connection.sql(f"SELECT k{columns} FROM __t0 AS t").to_arrow_table()))
        except duckdb.Error as error:
            if len(sqls) == 1:
                return [self.failure(error)]
            half = len(sqls) // 2
            return [*self.values(sqls[:half]), *self.values(sqls[half:])]

    def answers(self, sql: str) -> bool:
        """Whether rendered SQL has a value for a row."""
        (found,) = self.values([sql])
        return not isinstance(found, Refused) and any(not isinstance(v, str) or v != RAISED for v in found)

    def error(self, sql: str, row: int | None = None) -> str | None:
        """What a user is told when a query fails, over one row or all; None if it does not."""
        if row is not None:
            one = f'(SELECT * FROM "__t0" WHERE "{self.number}" = {row}) AS "t"'
            sql = sql.replace('"__t0" AS "t"', one)
        try:
            self.connection.sql(sql).to_arrow_table()
        except duckdb.Error as error:
            return self.failure(error).why
        return None

    def part_fails(self, sql: str, row: int) -> bool:
        """Whether a part of rendered SQL, by itself, fails on a row."""
        whole = parse_one(_inner(sql), read="duckdb")
        parts = {
            node.sql("duckdb"): None for node in whole.walk() if node is not whole and _stands_alone(node)
        }
        return any(self._fails(part, row) for part in parts)

    def _fails(self, part: str, row: int) -> bool:
        try:
            rows = f'(SELECT * FROM "__t0" WHERE "{self.number}" = {row}) AS "t"'
            self.connection.sql(f"SELECT {part} FROM {rows}").to_arrow_table()
        except (duckdb.BinderException, duckdb.ParserException, duckdb.CatalogException):
            return False  # a name of a lambda, or another piece that means nothing by itself
        except duckdb.Error:
            return True
        return False


def _stands_alone(node: exp.Expr) -> bool:
    """Whether a piece is an expression, and not what a CASE around it lets fail."""
    if not isinstance(node, exp.Condition) or isinstance(node, exp.Literal | exp.Column | exp.Null):
        return False
    for guard in filter(_always_fails, node.find_all(exp.Cast, exp.Anonymous)):
        around: exp.Expr | None = guard
        while around is not None and not isinstance(around, exp.Case | exp.If | exp.Coalesce):
            if around is node:
                return False
            around = around.parent
    return True


def _always_fails(node: exp.Expr) -> bool:
    """``error('…')``, or a text that is made to fail, as it is no number."""
    if isinstance(node, exp.Anonymous):
        return node.name.lower() == "error"
    first = next(node.this.find_all(exp.Literal), None)
    return (
        isinstance(node.this, exp.DPipe | exp.Literal)
        and first is not None
        and first.name.startswith("not a")
    )


def _inner(sql: str) -> str:
    """The expression of ``SELECT expression AS "c" FROM "t" AS "t"``."""
    return sql[len("SELECT ") : sql.rindex(' AS "c" FROM ')]


def _of_none(sql: str) -> str:
    return sql.replace('"__t0"', '"none"')


class OurGroups(OurSide):
    """Reads aggregates over the groups of ``t``."""

    number = "g"

    def __init__(self, rows: pa.Table):
        super().__init__(rows, " GROUP BY g")

    def values(self, sqls: Sequence[str]) -> list[list[Any] | Refused]:
        return [self._groups(sql) for sql in sqls]

    def _groups(self, sql: str) -> list[Any] | Refused:
        start, rest = sql[: sql.rindex(' AS "c" FROM ')], sql[sql.rindex(' AS "c" FROM ') :]
        try:
            made = self.connection.sql(
                f'SELECT "t"."g" AS "k", {{\'v\': {start.removeprefix("SELECT ")}}}{rest}'
            )
            return cells(made.to_arrow_table())[0]
        except duckdb.Error as error:
            return self.failure(error)


def _told(error: Error) -> str:
    return error.message


def spelled(dtype: pa.DataType) -> str:
    """Spark's simple name of a type."""
    t = pa.types
    if t.is_struct(dtype):
        return "struct<" + ",".join(f"{f.name}:{spelled(f.type)}" for f in dtype) + ">"
    if t.is_list(dtype):
        return f"array<{spelled(dtype.value_type)}>"
    if t.is_map(dtype):
        return f"map<{spelled(dtype.key_type)},{spelled(dtype.item_type)}>"
    return type_name(dtype).lower()
