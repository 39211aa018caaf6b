"""Matches rows with others: finds which of them are among these, with all columns of these."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from millpond.query.evaluate import Evaluator


def matching(
    evaluator: Evaluator, rows: pa.Table, others: pa.Table, columns: Sequence[str], *, keep: bool
) -> pa.Table:
    """Returns the rows whose columns equal those of one of the others, NULL being equal to NULL; without ``keep``
    the rest."""
    if not rows.num_rows or not others.num_rows:
        return rows if not keep else rows.slice(0, 0)
    same = " AND ".join(f'a."{c}" IS NOT DISTINCT FROM b."{c}"' for c in columns)
    sql = f"SELECT a.* FROM rows AS a {'SEMI' if keep else 'ANTI'} JOIN others AS b ON {same}"
    return evaluator.duckdb(sql, {"rows": rows, "others": others}).cast(rows.schema)


def aligned(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Returns the rows with all columns of the schema, NULL where they have none."""
    there = set(rows.column_names)
    return pa.table(
        [rows[f.name].cast(f.type) if f.name in there else pa.nulls(rows.num_rows, f.type) for f in schema],
        schema=schema,
    )
