"""Computes the difference of two tables as multisets: added and removed rows."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from millpond.changes import ROW, Changes
from millpond.errors import QueryFailed
from millpond.query.duck import Duck

_AT = "__at"


def difference(duck: Duck, before: pa.Table, after: pa.Table, key: Sequence[str]) -> Changes:
    """Returns the changes that turn ``before`` into ``after``, two tables with the same columns.

    Without a key ``before`` has its row numbers as its last column. NULL equals NULL. Raises QueryFailed if ``after``
    has two rows with one key.
    """
    names = [n for n in after.column_names if n != ROW]
    if key:
        _each_once(duck, after, key)
    tables = {"b": _numbered(before.select(names)), "a": _numbered(after)}
    columns = range(len(names))
    keys = [names.index(k) for k in key] if key else columns
    came = _missing(duck, tables, "a", "b", columns, counted=not key)
    gone = _missing(duck, tables, "b", "a", keys, counted=not key)
    put, ended = after.take(came), before.take(gone)
    if not key:
        put = put.append_column(ROW, pa.nulls(put.num_rows, pa.int64()))
    if not ended.num_rows:
        return Changes(put)
    both = pa.concat_tables([ended.select(put.column_names), put])
    return Changes(both, pa.array([True] * ended.num_rows + [False] * put.num_rows))


def _missing(
    duck: Duck, tables: dict[str, pa.Table], of: str, other: str, columns: Sequence[int], *, counted: bool
) -> pa.ChunkedArray:
    """Returns the positions of the rows of one table that are not in the other, in order."""
    same = " AND ".join(f"x.c{c} IS NOT DISTINCT FROM y.c{c}" for c in columns)
    x, y = of, other
    if counted:  # the second of two equal rows is another row than the first
        listed = ", ".join(f"c{c}" for c in columns)
        number = f"row_number() OVER (PARTITION BY {listed} ORDER BY {_AT}) AS n"
        x, y = (f"(SELECT *, {number} FROM {t})" for t in (of, other))
        same += " AND x.n = y.n"
    sql = f"SELECT x.{_AT} AS place FROM {x} AS x ANTI JOIN {y} AS y ON {same} ORDER BY place"
    return duck.run(sql, tables)["place"]


def _each_once(duck: Duck, rows: pa.Table, key: Sequence[str]) -> None:
    keys = _numbered(rows.select(list(key)))
    listed = ", ".join(f"c{i}" for i in range(len(key)))
    sql = f"SELECT min({_AT}) AS place FROM k GROUP BY {listed} HAVING count(*) > 1 LIMIT 1"
    twice = duck.run(sql, {"k": keys})
    if twice.num_rows:
        (first,) = rows.select(list(key)).take(twice["place"]).to_pylist()
        key_text = ", ".join(f"{name} = {value!r}" for name, value in first.items())
        raise QueryFailed(
            f"the query gives several rows for the key {key_text}",
            hint="group by the key, or declare one that is unique",
        )


def _numbered(rows: pa.Table) -> pa.Table:
    plain = rows.rename_columns([f"c{i}" for i in range(rows.num_columns)])
    return plain.append_column(_AT, pa.array(range(rows.num_rows), pa.int64()))
