"""Computes the difference of two tables as multisets: added and removed rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond.changes import ROW, Changes
from millpond.errors import QueryFailed
from millpond.query.duck import Duck
from millpond.records.tuples import Row, rows_of

_AT = "__at"
_FEW = 1_000
"""Rows of both tables up to which they are compared without DuckDB."""

_GROUPED = 100_000
"""Rows of a table up to which Arrow groups them."""


def difference(duck: Duck, before: pa.Table, after: pa.Table, key: Sequence[str]) -> Changes:
    """Returns the changes that turn ``before`` into ``after``, two tables with the same columns.

    Without a key ``before`` has its row numbers as its last column. NULL equals NULL. Raises QueryFailed if ``after``
    has two rows with one key.
    """
    names = [n for n in after.column_names if n != ROW]
    columns = range(len(names))
    keys = [names.index(k) for k in key] if key else columns
    if not key and before.select(names).equals(after):
        return Changes(after.slice(0, 0).append_column(ROW, pa.nulls(0, pa.int64())))
    if after.num_rows and not before.num_rows:
        _check_once(after, key, _twice_in(duck, after, key) if key else None)
        return Changes(after)
    few = _as_rows(before, after, names)
    if few is not None:
        _check_once(after, key, _twice([tuple([row[k] for k in keys]) for row in few[1]]) if key else None)
        gone, came = _compared(few, columns, keys, counted=not key)
    else:
        _check_once(after, key, _twice_in(duck, after, key) if key else None)
        tables = {"b": _numbered(before.select(names)), "a": _numbered(after)}
        places = _others_of(tables) if _are_exact(after, names) else _others(duck, tables, columns)
        few = None if places is None else _as_rows(before.take(places[0]), after.take(places[1]), names)
        if places is not None and few is not None:
            found = _compared(few, columns, keys, counted=not key)
            gone, came = (p.take(f) for p, f in zip(places, found, strict=True))
        else:
            came = _missing(duck, tables, "a", "b", columns, counted=not key)
            gone = _missing(duck, tables, "b", "a", keys, counted=not key)
    put, ended = after.take(came), before.take(gone)
    if not key:
        put = put.append_column(ROW, pa.nulls(put.num_rows, pa.int64()))
    if not ended.num_rows:
        return Changes(put)
    both = pa.concat_tables([ended.select(put.column_names), put])
    return Changes(both, pa.array([True] * ended.num_rows + [False] * put.num_rows))


def _compared(
    rows: tuple[list[Row], list[Row]], columns: Sequence[int], keys: Sequence[int], *, counted: bool
) -> tuple[pa.Array, pa.Array]:
    """Returns the places of the rows that have gone, and of those that came."""
    there, now = rows
    return _missing_of(there, now, keys, counted=counted), _missing_of(now, there, columns, counted=counted)


def _others(
    duck: Duck, tables: dict[str, pa.Table], columns: Sequence[int]
) -> tuple[pa.ChunkedArray, pa.ChunkedArray] | None:
    """Returns the places of the rows that one table has more often than the other, and of all that equal them; None if
    they are many. One pass over both tells that most are the same.
    """
    listed = ", ".join(f"c{c}" for c in columns)
    both = f"SELECT {listed}, 1 AS n FROM a UNION ALL SELECT {listed}, -1 FROM b"
    sql = f"SELECT {listed} FROM ({both}) GROUP BY {listed} HAVING sum(n) <> 0 LIMIT {_FEW}"
    other = duck.run(sql, tables)
    if other.num_rows == _FEW:
        return None
    if not other.num_rows:
        none = pa.chunked_array([], pa.int64())
        return none, none
    same = " AND ".join(f"x.c{c} IS NOT DISTINCT FROM o.c{c}" for c in columns)
    places = [
        duck.run(
            f"SELECT x.{_AT} AS place FROM {t} AS x SEMI JOIN o ON {same} ORDER BY place",
            {t: tables[t], "o": other},
        )["place"]
        for t in ("b", "a")
    ]
    return places[0], places[1]


def _others_of(tables: dict[str, pa.Table]) -> tuple[pa.ChunkedArray, pa.ChunkedArray] | None:
    """Does the same as ``_others``, in less time for tables that are not large: nothing is planned."""
    sides = []
    names = [name for name in tables["a"].column_names if name != _AT]
    for rows, sign in ((tables["b"], -1), (tables["a"], 1)):
        at = rows[_AT].to_numpy()
        places = pa.array(at if sign > 0 else -1 - at)
        weights = pa.array(np.full(rows.num_rows, sign))
        columns = [*rows.select(names).columns, places, weights]
        sides.append(pa.Table.from_arrays(columns, names=[*names, _AT, "n"]))
    found = pa.concat_tables(sides).group_by(names, use_threads=False)
    found = found.aggregate([("n", "sum"), (_AT, "list")])
    other = found.filter(pc.not_equal(found["n_sum"], 0))
    if other.num_rows >= _FEW:
        return None
    at = np.sort(pc.list_flatten(other[f"{_AT}_list"]).to_numpy())
    gone, came = -1 - at[at < 0][::-1], at[at >= 0]
    return pa.chunked_array([pa.array(gone)]), pa.chunked_array([pa.array(came)])


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


def _as_rows(before: pa.Table, after: pa.Table, names: Sequence[str]) -> tuple[list[Row], list[Row]] | None:
    """Returns the rows of both tables; None if they are many, or Python does not compare their values as SQL does."""
    if before.num_rows + after.num_rows > _FEW or not all(
        _is_simple(after.schema.field(n).type) for n in names
    ):
        return None
    try:
        return rows_of(before, names), rows_of(after, names)
    except (OverflowError, ValueError):  # a date outside of Python's range
        return None


def _missing_of(
    of: Sequence[Row], other: Sequence[Row], columns: Sequence[int], *, counted: bool
) -> pa.Array:
    """Does the same as ``_missing`` for a few rows."""
    there = Counter(tuple([row[c] for c in columns]) for row in other)
    found: list[int] = []
    for at, row in enumerate(of):
        value = tuple([row[c] for c in columns])
        if not there[value]:
            found.append(at)
        elif counted:
            there[value] -= 1
    return pa.array(found, pa.int64())


def _twice(keys: Sequence[Row]) -> int | None:
    """Returns the place of a row with a key that another row has."""
    seen: set[Row] = set()
    for at, key in enumerate(keys):
        if key in seen:
            return at
        seen.add(key)
    return None


def _twice_in(duck: Duck, rows: pa.Table, key: Sequence[str]) -> int | None:
    """Does the same as ``_twice`` for many rows. That no key is there twice, Arrow finds in less time."""
    keys = rows.select(list(key))
    if _are_exact(keys, keys.column_names):
        if keys.group_by(keys.column_names, use_threads=False).aggregate([]).num_rows == rows.num_rows:
            return None
    listed = ", ".join(f"c{i}" for i in range(len(key)))
    sql = f"SELECT min({_AT}) AS place FROM k GROUP BY {listed} HAVING count(*) > 1 LIMIT 1"
    found: list[int] = duck.run(sql, {"k": _numbered(keys)})["place"].to_pylist()
    return found[0] if found else None


def _check_once(rows: pa.Table, key: Sequence[str], twice: int | None) -> None:
    if twice is not None:
        (first,) = rows.select(list(key)).slice(twice, 1).to_pylist()
        key_text = ", ".join(f"{name} = {value!r}" for name, value in first.items())
        raise QueryFailed(
            f"the query gives several rows for the key {key_text}",
            hint="group by the key, or declare one that is unique",
        )


def _is_simple(dtype: pa.DataType) -> bool:
    """Returns whether Python compares values of the type as SQL does."""
    t = pa.types
    kinds = (
        *(t.is_integer, t.is_floating, t.is_decimal, t.is_string),
        *(t.is_boolean, t.is_date32, t.is_timestamp),
    )
    return any(kind(dtype) for kind in kinds)


def _are_exact(rows: pa.Table, names: Sequence[str]) -> bool:
    """Returns whether Arrow groups the rows as SQL does, and there are not too many."""
    types = [rows.schema.field(n).type for n in names]
    return rows.num_rows <= _GROUPED and all(_is_simple(t) and not pa.types.is_floating(t) for t in types)


def _numbered(rows: pa.Table) -> pa.Table:
    plain = rows.rename_columns([f"c{i}" for i in range(rows.num_columns)])
    return plain.append_column(_AT, pa.array(np.arange(rows.num_rows)))
