"""Large tables of PostgreSQL are read in columns, by ADBC's driver: the same rows as by the texts of COPY."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.connectors.postgresql import client, columns
from millpond.errors import BadData, ConnectionLost, Error
from millpond.types import Schema
from tests.postgres_tables import rows, source
from tests.servers import Postgres, Servers

COLUMNS = (
    "id int8, b boolean, s int2, i int4, r float4, d float8, n numeric(12, 3), w numeric(38, 10), x numeric,"
    " t text, v varchar(20), c char(3), y bytea, day date, ts timestamp, tz timestamptz"
)
ROW = st.tuples(
    st.none() | st.booleans(),
    st.none() | st.integers(-(2**15), 2**15 - 1),
    st.none() | st.integers(-(2**31), 2**31 - 1),
    st.none() | st.floats(width=32),
    st.none() | st.floats(),
    st.none() | st.decimals(-(10**8), 10**8, places=3),
    st.none() | st.decimals(-(10**27), 10**27, places=10),
    st.none() | st.decimals(-(10**15), 10**15, places=18),
    st.none() | st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20),
    st.none() | st.text(st.sampled_from('a,"\n\\é😀 '), max_size=20),
    st.none() | st.text(st.sampled_from("ab "), max_size=3),
    st.none() | st.binary(max_size=10),
    st.none() | st.dates(),
    st.none() | st.datetimes(),
    st.none() | st.datetimes(datetime(2, 1, 1), datetime(9999, 12, 30), timezones=st.just(UTC)),
)


@pytest.fixture(scope="module")
def server(servers: Servers) -> Postgres:
    servers.postgresql.execute(f"DROP TABLE IF EXISTS in_columns; CREATE TABLE in_columns ({COLUMNS})")
    return servers.postgresql


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The queries that were read in columns."""
    queries: list[str] = []
    read = columns.ColumnReader.read

    def noted(self: Any, query: str, *more: Any) -> Any:
        queries.append(query)
        return read(self, query, *more)

    monkeypatch.setattr(columns.ColumnReader, "read", noted)
    monkeypatch.setattr(client, "LARGE", 0)
    yield queries


def read_all(server: Postgres, declared: Schema | None = None) -> list[str]:
    return [repr(row) for row in rows(source(server, "in_columns", declared=declared))]


def test_the_same_rows_as_by_texts(
    server: Postgres, used: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = psycopg.connect(server.url(), autocommit=True)
    marks = ", ".join(["%s"] * 16)

    @settings(max_examples=25, deadline=None)
    @given(st.lists(ROW, max_size=8))
    def check(made: list[tuple[Any, ...]]) -> None:
        connection.execute("TRUNCATE in_columns")
        with connection.cursor() as cursor:
            cursor.executemany(
                f"INSERT INTO in_columns VALUES ({marks})", [(i, *row) for i, row in enumerate(made)]
            )
        used.clear()
        found = read_all(server)
        assert len(used) == 1 and len(found) == len(made)
        with monkeypatch.context() as texts:
            texts.setattr(client, "LARGE", 1 << 60)
            assert read_all(server) == found
        assert len(used) == 1

    check()
    connection.close()


@pytest.mark.parametrize(
    ("column", "value", "told"),
    [
        ("ts", "infinity", "infinity"),
        ("tz", "-infinity", "-infinity"),
        ("day", "infinity", "infinity"),
        ("day", "0044-03-15 BC", "0044-03-15 BC"),
        ("ts", "10000-01-01", "10000-01-01"),
        ("n", "NaN", "nan"),
        ("x", "1e30", "1000000000000000000000000000000"),
    ],
)
def test_values_that_have_no_place_here_are_told(
    server: Postgres, used: list[str], column: str, value: str, told: str
) -> None:
    server.execute("TRUNCATE in_columns; INSERT INTO in_columns (id) VALUES (1)")
    server.execute(f"INSERT INTO in_columns (id, {column}) VALUES (2, '{value}')")
    with pytest.raises(BadData, match=rf'"{column}" has the value "(?i:{told})') as caught:
        read_all(server)
    assert used and caught.value.hint


def test_columns_that_have_no_exact_form_are_read_as_texts(server: Postgres, used: list[str]) -> None:
    server.execute("DROP TABLE IF EXISTS not_in_columns")
    server.execute(
        "CREATE TABLE not_in_columns AS SELECT 1 AS id, '1 day'::interval AS i, '{}'::jsonb AS j, '{1}'::int[] AS a"
    )
    assert len(rows(source(server, "not_in_columns"))) == 1 and not used
    server.execute(
        "TRUNCATE in_columns; INSERT INTO in_columns (id, tz) VALUES (1, '2024-01-01 00:00:00+00')"
    )
    for options in ({"where": "id > 0"}, {"query_timeout": "10s"}, {"socket_timeout": "10s"}):
        assert len(rows(source(server, "in_columns", **options))) == 1 and not used
    (row,) = rows(source(server, "in_columns"))
    assert row["tz"] == datetime(2024, 1, 1, tzinfo=UTC) and used


def test_a_load_is_one_snapshot_and_ends_with_its_connection(
    server: Postgres, used: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(columns, "_BATCH", 1 << 16)
    server.execute("TRUNCATE in_columns; INSERT INTO in_columns (id, t) SELECT i, repeat('x', 500)"
                   " FROM generate_series(1, 30000) i")  # fmt: skip
    read = source(server, "in_columns", prefetch_count="0", retry_timeout="0s")
    (split,) = read.splits(None, read.latest(None))
    batches = read.read(split)
    first = next(batches)
    server.execute("DELETE FROM in_columns WHERE id > 20000")
    assert first.num_rows + sum(batch.num_rows for batch in batches) == 30_000
    batches = read.read(split)
    next(batches)
    server.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'COPY%'")
    with pytest.raises(ConnectionLost):
        list(batches)
    assert len(used) == 2 and len(rows(source(server, "in_columns"))) == 20_000
    read.close()


def test_without_the_driver_texts_are_read(server: Postgres) -> None:
    server.execute("TRUNCATE in_columns; INSERT INTO in_columns (id, n) VALUES (1, 1.5)")
    code = (
        "import sys; sys.modules['adbc_driver_postgresql'] = None\n"
        "from millpond.connectors.postgresql import client; client.LARGE = 0\n"
        "from tests.postgres_tables import rows, source\n"
        "class Server: port = int(sys.argv[1])\n"
        "print(rows(source(Server(), 'in_columns'))[0]['n'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(server.port)], capture_output=True, text=True, timeout=120
    )
    assert done.stdout.strip() == str(Decimal("1.500")), done.stderr


def test_a_wrong_login_is_told_as_by_texts(server: Postgres, used: list[str]) -> None:
    with pytest.raises(Error, match="nobody"):
        rows(source(server, "in_columns", user="nobody"))
    assert not used
