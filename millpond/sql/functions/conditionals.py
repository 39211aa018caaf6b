"""Choices between values, tests for NULL, and errors on purpose."""

from __future__ import annotations

from sqlglot import exp

from millpond.sql.functions._builders import binary, several
from millpond.sql.functions.base import Function
from millpond.sql.render.duckdb import arithmetic as duckdb_arithmetic
from millpond.sql.render.duckdb import maths as duckdb_maths
from millpond.sql.render.duckdb import operators as duckdb
from millpond.sql.typing import conditionals as types
from millpond.sql.typing import functions as types_functions

# fmt: off
FUNCTIONS: tuple[Function, ...] = (
    Function("assert_true", "NULL if a condition holds; else an error, optionally with a message.",
        "assert_true(1 < 2) IS NULL", arity="1-2"),
    Function("coalesce", "The first argument that is not NULL.", "coalesce(NULL, 2, 3) = 2", arity="1+",
        type=types.choice, duckdb=duckdb.choice("coalesce"), node=exp.Coalesce, build=several(exp.Coalesce)),
    Function("equal_null", "Whether two values are equal, or both NULL.", "equal_null(NULL, NULL)", arity="2",
        type=types_functions.operator, duckdb=duckdb_arithmetic.operator, operator=binary(exp.NullSafeEQ),
        eager=True),
    Function("greatest", "The greatest of the arguments that are not NULL.", "greatest(1, 3, 2) = 3",
        arity="2+", type=types.extreme, duckdb=duckdb.choice("greatest"), node=exp.Greatest,
        build=several(exp.Greatest, ignore_nulls=True)),
    Function("if", "The second argument where the condition holds, else the third.",
        "if(1 < 2, 'yes', 'no') = 'yes'", arity="3", type=types.iff, duckdb=duckdb.iff, node=exp.If,
        keys=("this", "true", "false")),
    Function("ifnull", "The first argument, or the second where it is NULL.", "ifnull(NULL, 2) = 2",
        also=("nvl",), arity="2", type=types.choice, duckdb=duckdb.choice("coalesce"), node=exp.Coalesce,
        build=several(exp.Coalesce)),
    Function("isnotnull", "Whether a value is not NULL.", "isnotnull(1)", takes="(any) boolean",
        duckdb=duckdb_maths.null_test("IS NOT NULL"), eager=True),
    Function("isnull", "Whether a value is NULL.", "isnull(NULL)", takes="(any) boolean",
        duckdb=duckdb_maths.null_test("IS NULL"), eager=True),
    Function("least", "The least of the arguments that are not NULL.", "least(1, 3, 2) = 1", arity="2+",
        type=types.extreme, duckdb=duckdb.choice("least"), node=exp.Least,
        build=several(exp.Least, ignore_nulls=True)),
    Function("nullif", "NULL if two values are equal, else the first.", "nullif(1, 1) IS NULL", arity="2",
        type=types.nullif, duckdb=duckdb.nullif, node=exp.Nullif, keys=("this", "expression")),
    Function("nullifzero", "NULL for 0, else the number.", "nullifzero(0) IS NULL", arity="1"),
    Function("nvl2", "The second argument where the first is not NULL, else the third.",
        "nvl2(NULL, 1, 2) = 2", arity="3", type=types.nvl2, duckdb=duckdb.nvl2, node=exp.Nvl2,
        keys=("this", "true", "false")),
    Function("raise_error", "Raises an error with a message.", arity="1"),
    Function("typeof", "The name of the type of a value.", "typeof(1) = 'int'", takes="(any) string"),
    Function("zeroifnull", "0 for NULL, else the number.", "zeroifnull(NULL) = 0", arity="1"),
)
# fmt: on
