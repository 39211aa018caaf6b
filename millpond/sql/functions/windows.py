"""Functions that are there only with OVER."""

from __future__ import annotations

from sqlglot import exp

from millpond.sql.functions._builders import bare, listed
from millpond.sql.functions.base import Function, WindowFunction
from millpond.sql.render.duckdb import ranking as duckdb
from millpond.sql.typing import aggregates as types
from millpond.sql.typing.coercion import DOUBLE, INT
from millpond.sql.typing.rule import always

# fmt: off
FUNCTIONS: tuple[Function, ...] = (
    WindowFunction("cume_dist", "The share of the rows at or before this one in the order.",
        "cume_dist() OVER (ORDER BY k) = k / 4D", arity="any", type=always(DOUBLE),
        duckdb=duckdb.ranking("cume_dist"), node=exp.CumeDist, build=listed(exp.CumeDist)),
    WindowFunction("dense_rank",
        "The rank of the row in the order; equal rows have one, and no number is left out.",
        "dense_rank() OVER (ORDER BY k) = k", arity="any", type=always(INT),
        duckdb=duckdb.ranking("dense_rank"), node=exp.DenseRank, build=listed(exp.DenseRank)),
    WindowFunction("lag", "The value so many rows before (by default one), or a default.",
        "lag(k, 1, 0) OVER (ORDER BY k) = k - 1", arity="1-3", type=types.neighbour,
        duckdb=duckdb.neighbour("lag"), node=exp.Lag, keys=("this", "offset", "default"), frame="whole"),
    WindowFunction("lead", "The value so many rows behind (by default one), or a default.",
        "lead(k, 1, 5) OVER (ORDER BY k) = k + 1", arity="1-3", type=types.neighbour,
        duckdb=duckdb.neighbour("lead"), node=exp.Lead, keys=("this", "offset", "default"), frame="whole"),
    WindowFunction("nth_value", "The value in the n-th row of the frame, counted from 1.",
        "nth_value(k, 1) OVER (ORDER BY k) = 1", arity="2-3", type=types.same, duckdb=duckdb.nth_value,
        node=exp.NthValue, keys=("this", "offset"), frame="any"),
    WindowFunction("ntile", "The number of the row's part, of so many parts of equal size.",
        "ntile(2) OVER (ORDER BY k) = (k + 1) DIV 2", arity="0-1", type=always(INT), duckdb=duckdb.ntile,
        node=exp.Ntile),
    WindowFunction("percent_rank", "The rank of the row as a share from 0 to 1.",
        "percent_rank() OVER (ORDER BY k) = (k - 1) / 3D", arity="any", type=always(DOUBLE),
        duckdb=duckdb.ranking("percent_rank"), node=exp.PercentRank, build=listed(exp.PercentRank)),
    WindowFunction("rank",
        "The rank of the row in the order; equal rows have one, and as many numbers are left out.",
        "rank() OVER (ORDER BY k) = k", arity="any", type=always(INT), duckdb=duckdb.ranking("rank"),
        node=exp.Rank, build=listed(exp.Rank)),
    WindowFunction("row_number", "The number of the row in the order, from 1.",
        "row_number() OVER (ORDER BY k) = k", arity="0", type=always(INT),
        duckdb=duckdb.ranking("row_number"), node=exp.RowNumber, build=bare(exp.RowNumber)),
)
# fmt: on
