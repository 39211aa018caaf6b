"""Random ALTERs and changes of a table, with restarts in between, against the same statements in SQLite."""

from __future__ import annotations

import sqlite3
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from millpond import App

NAMES = ["a", "b", "c", "d"]
STEP = st.one_of(
    st.tuples(st.just("add"), st.sampled_from(NAMES)),
    st.tuples(st.just("drop"), st.sampled_from(NAMES)),
    st.tuples(st.just("rename"), st.sampled_from(NAMES), st.sampled_from(NAMES)),
    st.tuples(st.just("key"), st.sampled_from(["id", "k"])),
    st.tuples(st.just("put"), st.integers(0, 5), st.integers(0, 99)),
    st.tuples(st.just("set"), st.sampled_from(NAMES), st.integers(0, 99), st.integers(0, 5)),
    st.tuples(st.just("delete"), st.integers(0, 5)),
    st.tuples(st.just("compact")),
    st.tuples(st.just("restart")),
)


def statements(step: tuple[Any, ...], columns: list[str]) -> str | None:
    """Returns the statement of a step, and changes the columns as it does; None if it cannot run."""
    match step:
        case ("add", name) if name not in columns:
            columns.append(name)
            return f"ALTER TABLE t ADD COLUMN {name} INT"
        case ("drop", name) if name in columns[1:]:
            columns.remove(name)
            return f"ALTER TABLE t DROP COLUMN {name}"
        case ("rename", old, new) if old in columns and new not in columns:
            columns[columns.index(old)] = new
            return f"ALTER TABLE t RENAME COLUMN {old} TO {new}"
        case ("key", new) if columns[0] != new:
            old, columns[0] = columns[0], new
            return f"ALTER TABLE t RENAME COLUMN {old} TO {new}"
        case ("put", key, value):
            names = ", ".join(columns)
            return f"INSERT INTO t ({names}) VALUES ({', '.join([str(key), *[str(value)] * (len(columns) - 1)])})"
        case ("set", name, value, key) if name in columns:
            return f"UPDATE t SET {name} = {value} WHERE {columns[0]} = {key}"
        case ("delete", key):
            return f"DELETE FROM t WHERE {columns[0]} = {key}"
    return None


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(["memory", "sqlite"]), st.lists(STEP, min_size=5, max_size=25))
def test_a_table_is_as_in_sqlite(extension: str, steps: list[tuple[Any, ...]]) -> None:
    sql = f"CREATE TABLE t (id INT PRIMARY KEY, a INT) WITH (extension = '{extension}')"
    model = sqlite3.connect(":memory:")
    model.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, a INT)")
    columns = ["id", "a"]
    with tempfile.TemporaryDirectory() as state:
        app = App(sql, state=Path(state), _direct=True)
        try:
            for step in steps:
                if step == ("restart",):
                    app.close()
                    app = App(sql, state=Path(state), _direct=True)
                elif step == ("compact",):
                    app._runtime.compactor.compact("t")
                elif (statement := statements(step, columns)) is not None:
                    app.sql(statement)
                    model.execute(statement.replace("INSERT INTO", "INSERT OR REPLACE INTO"))
                wanted = model.execute(f"SELECT * FROM t ORDER BY {columns[0]}").fetchall()
                found = app.sql(f"SELECT * FROM t ORDER BY {columns[0]}")
                assert list(found.to_arrow().column_names) == columns
                assert [tuple(r.values()) for r in found.rows()] == wanted
        finally:
            app.close()
            model.close()
