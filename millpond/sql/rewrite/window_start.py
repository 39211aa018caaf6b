"""Rewrites the start of a window in Spark's functions."""

from __future__ import annotations

import pyarrow as pa
from sqlglot import exp

from millpond.sql.assign import build_type
from millpond.sql.nodes import WindowStart
from millpond.sql.typing import type_of
from millpond.types import TIMESTAMP, TIMESTAMP_NTZ


def window_start(tree: exp.Expr) -> exp.Expr:
    for node in list(tree.find_all(WindowStart)):
        node.replace(_made(node))
    return tree


def _made(node: WindowStart) -> exp.Expr:
    time: exp.Expr = node.this.copy()
    dtype = type_of(node)
    size, offset = int(node.args["size"].name), int(node.args["offset"].name)
    if not size:
        return time
    if dtype == TIMESTAMP_NTZ:
        time = exp.Cast(this=time, to=build_type(TIMESTAMP))
    at = exp.Anonymous(this="unix_micros", expressions=[time])
    moved = exp.Sub(
        this=at.copy(), expression=exp.Cast(this=exp.Literal.number(offset), to=build_type(pa.int64()))
    )
    over = exp.Anonymous(
        this="pmod", expressions=[moved, exp.Cast(this=exp.Literal.number(size), to=build_type(pa.int64()))]
    )
    start = exp.Anonymous(this="timestamp_micros", expressions=[exp.Sub(this=at, expression=over)])
    return exp.Cast(this=start, to=build_type(TIMESTAMP_NTZ)) if dtype == TIMESTAMP_NTZ else start
