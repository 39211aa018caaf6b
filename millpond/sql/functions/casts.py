"""Casts: CAST itself, and types whose names are functions that cast to them."""

from __future__ import annotations

from sqlglot import exp

from millpond.sql.functions.base import Function
from millpond.sql.render.duckdb import operators as duckdb
from millpond.sql.typing import functions as types
from millpond.sql.typing import operators as types_operators

# fmt: off
FUNCTIONS: tuple[Function, ...] = (
    Function("bigint", "Casts to BIGINT.", "bigint('7') = 7", arity="1",
        type=types.named_cast(exp.DType.BIGINT), duckdb=duckdb.cast_call),
    Function("binary", "Casts to BINARY.", "binary(X'61') = X'61'", arity="1",
        type=types.named_cast(exp.DType.BINARY), duckdb=duckdb.cast_call),
    Function("boolean", "Casts to BOOLEAN.", "boolean('true')", arity="1",
        type=types.named_cast(exp.DType.BOOLEAN), duckdb=duckdb.cast_call),
    Function("cast", "Brings a value to a type: CAST(x AS INT). What does not fit is an error.",
        "cast('7' AS INT) = 7", arity="any", type=types_operators.cast, duckdb=duckdb.cast_entry,
        node=exp.Cast),
    Function("date", "Casts to DATE.", "date('2024-05-06') = DATE '2024-05-06'", arity="1",
        type=types.named_cast(exp.DType.DATE), duckdb=duckdb.cast_call),
    Function("decimal", "Casts to DECIMAL(10,0).", "decimal('7') = 7", arity="1",
        type=types.named_cast(exp.DType.DECIMAL), duckdb=duckdb.cast_call),
    Function("double", "Casts to DOUBLE.", "double('1.5') = 1.5", arity="1",
        type=types.named_cast(exp.DType.DOUBLE), duckdb=duckdb.cast_call),
    Function("float", "Casts to FLOAT.", "float(3) = 3", arity="1",
        type=types.named_cast(exp.DType.FLOAT), duckdb=duckdb.cast_call),
    Function("int", "Casts to INT.", "int('7') = 7", arity="1", type=types.named_cast(exp.DType.INT),
        duckdb=duckdb.cast_call),
    Function("smallint", "Casts to SMALLINT.", "smallint('7') = 7", arity="1",
        type=types.named_cast(exp.DType.SMALLINT), duckdb=duckdb.cast_call),
    Function("string", "Casts to STRING.", "string(7) = '7'", arity="1",
        type=types.named_cast(exp.DType.TEXT), duckdb=duckdb.cast_call),
    Function("timestamp", "Casts to TIMESTAMP.",
        "timestamp('2024-05-06 07:08:09') = TIMESTAMP '2024-05-06 07:08:09'", arity="1",
        type=types.named_cast(exp.DType.TIMESTAMPTZ), duckdb=duckdb.cast_call),
    Function("tinyint", "Casts to TINYINT.", "tinyint('7') = 7", arity="1",
        type=types.named_cast(exp.DType.TINYINT), duckdb=duckdb.cast_call),
    Function("try_cast", "Brings a value to a type, or gives NULL where it does not fit: TRY_CAST(x AS INT).",
        "try_cast('x' AS INT) IS NULL", arity="any", type=types_operators.cast, duckdb=duckdb.cast_entry,
        node=exp.TryCast),
)
# fmt: on
