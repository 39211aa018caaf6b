"""What sinks of databases read from their options and URIs, and how they write values, without a server."""

from __future__ import annotations

import datetime
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import sqlalchemy as sa

from millpond import App, Error
from millpond.changes import Position
from millpond.connectors.clickhouse.sink import ClickhouseSink
from millpond.connectors.postgresql.sink import PostgresSink
from millpond.connectors.sql.sink import AnySqlSink
from millpond.connectors.sql.written_table import WrittenTable
from millpond.errors import BadData, InvalidOption
from millpond.types import Column, Schema

IDS = Schema((Column("id", pa.int64()),))


@pytest.mark.parametrize(
    ("uri", "url"),
    [
        (
            "postgresql://h:1/d?options=-csearch_path%3Da%20b+c&retry.timeout=3s&table=t",
            "postgresql://h:1/d?options=-csearch_path%3Da%20b+c",
        ),
        ("postgresql://h:1/d?table=t", "postgresql://h:1/d"),
        (
            "postgresql://h:1/d?table=t&application_name='a b&c'",
            "postgresql://h:1/d?application_name=a%20b%26c",
        ),
    ],
)
def test_what_is_no_option_stays_in_the_url(uri: str, url: str) -> None:
    assert PostgresSink.target(uri, {"table": "t"}) == (url, "t")


def test_what_sqlalchemy_reads_stays_as_it_is_written() -> None:
    uri = "sql://mssql+pyodbc://h/d?driver=ODBC+Driver&table=t&Extra=%2B%26"
    found = sa.make_url(AnySqlSink.target(uri, {"table": "t"})[0])
    assert dict(found.query) == {"driver": "ODBC Driver", "Extra": "+&"}


def test_options_in_the_uri_are_read() -> None:
    sink = PostgresSink("postgresql://h:1/d?table=t&retry.timeout=3s&key=id", {}, IDS)
    assert (sink.values["retry.timeout"], sink.columns.key) == (3.0, ("id",))
    house = ClickhouseSink("clickhouse://h:1/d?table=t&username=u&password=p&ssl.mode=require", {}, IDS)
    assert [house.values[n] for n in ("username", "password", "ssl.mode")] == ["u", "p", "require"]
    assert "password" not in house.url
    with pytest.raises(InvalidOption, match="delivery"):
        PostgresSink("postgresql://h:1/d?table=t&delivery=at-least-once", {}, IDS)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("postgresql://h:1/d?table=t", "by their key"),
        ("sql://sqlite:///x.db?table=t", "by their key"),
        ("clickhouse://h:1/d?table=t", "by their key"),
    ],
)
def test_aggregates_are_refused_before_anything_runs(target: str, message: str) -> None:
    text = f"CREATE STREAM s (k STRING);\nINSERT INTO {target} SELECT k, COUNT(*) AS n FROM s GROUP BY k;"
    with pytest.raises(Error, match=message) as found:
        App(text)
    assert found.value.place is not None
    assert found.value.place.line == 2


def test_times_are_texts_in_sqlite_alone(tmp_path: Path) -> None:
    """Another database gets times with their zone."""
    values = pa.array([0], pa.timestamp("us", "UTC"))
    table = WrittenTable(f"sqlite:///{tmp_path}/out.db", "t", Schema((Column("at", values.type),)))
    assert table._cells("at", values) == ["1970-01-01 00:00:00.000000"]
    table._plain = False
    assert table._cells("at", values) == [datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)]
    table.close()


def read(file: Path, sql: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(file)) as connection:
        return connection.execute(sql).fetchall()


@pytest.mark.parametrize("key", [None, "a:b"])
def test_any_name_of_a_column(key: str | None, tmp_path: Path) -> None:
    file = tmp_path / "out.db"
    names = ["a:b", "x%y", "select", 'q"t', "p0", "a b", "offsets"]
    schema = Schema(tuple(Column(n, pa.int64()) for n in names))
    sink = AnySqlSink(f"sql://sqlite:///{file}", {"table": "t", "key": key}, schema)
    sink.open("q")
    for batch in range(2):
        sink.write(
            pa.table({n: [i + batch * (n != "a:b")] for i, n in enumerate(names)}), Position("q", "", batch)
        )
    sink.close()
    last = (0, *range(2, 8))
    assert read(file, "SELECT * FROM t ORDER BY 2") == ([last] if key else [tuple(range(7)), last])


def test_a_kill_while_a_query_is_dropped(tmp_path: Path) -> None:
    """The position that it leaves in the database is not that of a new query of the same name."""
    file, state = tmp_path / "out.db", tmp_path / "state"
    insert = f"INSERT INTO sql://sqlite:///{file} SELECT id FROM s WITH ('table' = 't', 'query.name' = 'q')"
    code = (
        "import sys; from millpond import App; from millpond.testing.faults import killing\n"
        "app = App('CREATE STREAM s (id BIGINT)', state=sys.argv[1])\n"
        "app.send('s', [{'id': 1}, {'id': 2}]); app.sql(sys.argv[2]); app.drain(60)\n"
        "with killing('drop journalled'): app.sql('DROP QUERY q')"
    )
    command = [sys.executable, "-c", code, str(state), insert]
    assert subprocess.run(command, capture_output=True, timeout=120).returncode == -signal.SIGKILL
    assert len(read(file, "SELECT * FROM millpond_sink_positions")) == 1
    with App("CREATE STREAM s (id BIGINT)", state=state) as app:
        app.sql(insert)
        app.drain(60)
    assert read(file, "SELECT id FROM t ORDER BY id") == [(1,), (1,), (2,), (2,)]


def test_sqlite_refuses_nan(tmp_path: Path) -> None:
    """It would store NULL."""
    sink = AnySqlSink(
        f"sql://sqlite:///{tmp_path}/out.db", {"table": "t"}, Schema((Column("v", pa.float64()),))
    )
    sink.open("q")
    with pytest.raises(BadData, match="NaN"):
        sink.check(pa.table({"v": [1.0, float("nan")]}))
    sink.check(pa.table({"v": [1.0, None, float("inf")]}))
    sink.close()
