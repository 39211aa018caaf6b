"""Every type of PostgreSQL: by COPY, in the log of changes, and in queries."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from millpond.connectors.postgresql.text import from_texts
from millpond.connectors.postgresql.types import PLAIN, TEXT, PgType, holds
from millpond.errors import BadData, NotSupported
from millpond.types import Column, Schema, normal, type_name
from tests.logs import next_changes
from tests.postgres_tables import following, rows, source
from tests.servers import Postgres, Servers

SETUP = """
DROP SCHEMA IF EXISTS kinds CASCADE; CREATE SCHEMA kinds;
CREATE EXTENSION IF NOT EXISTS hstore; CREATE EXTENSION IF NOT EXISTS citext;
CREATE TYPE kinds.mood AS ENUM ('sad', 'ok'); CREATE TYPE kinds.point AS (x int, y text);
CREATE DOMAIN kinds.amount AS numeric(5, 2); CREATE DOMAIN kinds.amounts AS kinds.amount[];
"""

# the type, a value of it in SQL, the type here, the value here
TYPES: list[tuple[str, str, str, Any]] = [
    ("boolean", "true", "BOOLEAN", True),
    ("smallint", "-32768", "SMALLINT", -32768),
    ("integer", "2147483647", "INT", 2147483647),
    ("bigint", "-9223372036854775808", "BIGINT", -9223372036854775808),
    ("real", "1.5", "FLOAT", 1.5),
    ("double precision", "0.1", "DOUBLE", 0.1),
    ("double precision", "'-Infinity'", "DOUBLE", float("-inf")),
    ("numeric(10, 2)", "12345678.90", "DECIMAL(10,2)", Decimal("12345678.90")),
    ("numeric(3, -2)", "12345", "DECIMAL(5,0)", Decimal("12300")),
    ("numeric(2, 4)", "0.0012", "DECIMAL(4,4)", Decimal("0.0012")),
    ("numeric(50, 10)", "1.5", "DECIMAL(38,10)", Decimal("1.5")),
    ("numeric", "12345.678", "DECIMAL(38,18)", Decimal("12345.678")),
    ("money", "'-1234.5'", "DECIMAL(19,2)", Decimal("-1234.50")),
    ("text", "E'a\\n\"b\",c\\\\d'", "STRING", 'a\n"b",c\\d'),
    ("text", "''", "STRING", ""),
    ("text", "'\\.'", "STRING", "\\."),
    ("text", "'NULL'", "STRING", "NULL"),
    ("varchar(10)", "'grün'", "STRING", "grün"),
    ("char(4)", "'ab'", "STRING", "ab  "),
    ('"char"', "'z'", "STRING", "z"),
    ("name", "'n'", "STRING", "n"),
    ("citext", "'CaSe'", "STRING", "CaSe"),
    ("bytea", "'\\x00ff10'", "BINARY", b"\x00\xff\x10"),
    ("bytea", "''", "BINARY", b""),
    ("date", "'2024-02-29'", "DATE", date(2024, 2, 29)),
    ("timestamp", "'2024-02-29 01:02:03.123456'", "TIMESTAMP_NTZ", datetime(2024, 2, 29, 1, 2, 3, 123456)),
    ("timestamptz", "'2024-02-29 01:02:03+02'", "TIMESTAMP", datetime(2024, 2, 28, 23, 2, 3, tzinfo=UTC)),
    ("time", "'24:00:00'", "STRING", "24:00:00"),
    ("timetz", "'01:02:03+05'", "STRING", "01:02:03+05"),
    (
        "interval",
        "'-1 day 02:03:04.5'",
        "INTERVAL DAY TO SECOND",
        timedelta(days=-1, hours=2, minutes=3, seconds=4.5),
    ),
    ("interval year to month", "'14 months'", "STRING", "P1Y2M"),
    ("json", "'{\"a\":  1}'", "STRING", '{"a":  1}'),
    ("jsonb", "'{\"b\":[1]}'", "STRING", '{"b": [1]}'),
    ("uuid", "'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'", "STRING", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
    ("kinds.mood", "'ok'", "STRING", "ok"),
    ("kinds.amount", "1.25", "DECIMAL(5,2)", Decimal("1.25")),
    ("kinds.amounts", "'{1.25,NULL}'", "ARRAY<DECIMAL(5,2)>", [Decimal("1.25"), None]),
    ("integer[]", "'{1,NULL,3}'", "ARRAY<INT>", [1, None, 3]),
    ("integer[]", "'{}'", "ARRAY<INT>", []),
    (
        "text[]",
        "ARRAY['a,b', NULL, 'NULL', '', 'q\"\\', '{}']",
        "ARRAY<STRING>",
        ["a,b", None, "NULL", "", 'q"\\', "{}"],
    ),
    ("bytea[]", "ARRAY['\\x01'::bytea]", "ARRAY<BINARY>", [b"\x01"]),
    ("timestamptz[]", "'{2024-01-01 00:00:00+00}'", "ARRAY<TIMESTAMP>", [datetime(2024, 1, 1, tzinfo=UTC)]),
    (
        "box[]",
        "ARRAY['(1,1),(0,0)'::box, '(2,2),(1,1)'::box]",
        "ARRAY<STRING>",
        ["(1,1),(0,0)", "(2,2),(1,1)"],
    ),
    ("kinds.point", "ROW(1, 'a \"b\", \\c')", "STRUCT<`x`: INT, `y`: STRING>", {"x": 1, "y": 'a "b", \\c'}),
    ("kinds.point", "ROW(NULL, '')", "STRUCT<`x`: INT, `y`: STRING>", {"x": None, "y": ""}),
    (
        "kinds.point[]",
        "ARRAY[ROW(1, '{\"')::kinds.point]",
        "ARRAY<STRUCT<`x`: INT, `y`: STRING>>",
        [{"x": 1, "y": '{"'}],
    ),
    (
        "hstore",
        '\'a=>1, "b,=>"=>NULL, c=>"NULL"\'',
        "MAP<STRING, STRING>",
        [("a", "1"), ("c", "NULL"), ("b,=>", None)],
    ),
    ("int4range", "'[1,5)'", "STRING", "[1,5)"),
    ("int4multirange", "'{[1,5)}'", "STRING", "{[1,5)}"),
    ("inet", "'10.0.0.1'", "STRING", "10.0.0.1"),
    ("cidr", "'10.0.0.0/8'", "STRING", "10.0.0.0/8"),
    ("macaddr", "'08:00:2b:01:02:03'", "STRING", "08:00:2b:01:02:03"),
    ("bit(3)", "B'101'", "STRING", "101"),
    ("xml", "'<a/>'", "STRING", "<a/>"),
    ("tsvector", "'fat cat'", "STRING", "'cat' 'fat'"),
    ("oid", "4294967295", "BIGINT", 4294967295),
    ("point", "'(1,2)'", "STRING", "(1,2)"),
    ("pg_lsn", "'16/B374D848'", "STRING", "16/B374D848"),
]


@pytest.fixture(scope="module")
def server(servers: Servers) -> Postgres:
    servers.postgresql.execute(SETUP)
    columns = ", ".join(f"c{i} {kind}" for i, (kind, *_) in enumerate(TYPES))
    values = ", ".join(value for _, value, *_ in TYPES)
    servers.postgresql.execute(
        f"CREATE TABLE kinds.all (id int PRIMARY KEY, {columns}); INSERT INTO kinds.all VALUES (1, {values});"
        "INSERT INTO kinds.all (id) VALUES (2)"
    )
    return servers.postgresql


def expected(key: int, *, null: bool = False) -> dict[str, Any]:
    return {"id": key} | {f"c{i}": None if null else value for i, (*_, value) in enumerate(TYPES)}


def test_columns_of_every_type(server: Postgres) -> None:
    read = source(server, "kinds.all")
    assert read.schema().key == ("id",)
    found = {c.name: type_name(c.type) for c in read.schema()}
    assert found == {"id": "INT"} | {f"c{i}": name for i, (_, _, name, _) in enumerate(TYPES)}
    read.close()


@pytest.mark.parametrize("fetched", ["1", "1000"])
def test_values_of_every_type(server: Postgres, fetched: str) -> None:
    assert rows(source(server, "kinds.all", fetch_size=fetched)) == [expected(1), expected(2, null=True)]


def test_values_of_every_type_in_a_query(server: Postgres) -> None:
    found = source(server, query="SELECT * FROM kinds.all WHERE id = ?", query_params="1")
    assert [type_name(c.type) for c in found.schema()][1:] == [name for _, _, name, _ in TYPES]
    assert rows(found) == [expected(1)]


def test_values_of_every_type_in_the_log(server: Postgres) -> None:
    with following(server, "kinds.all") as log:
        start, _ = log.begin()
        log.begun()
        server.execute(
            "BEGIN; DELETE FROM kinds.all WHERE id = 2; UPDATE kinds.all SET id = 3; COMMIT;"
            "INSERT INTO kinds.all (id) VALUES (2); UPDATE kinds.all SET id = 1 WHERE id = 3"
        )
        _, found = next_changes(log, start)
    assert found == [
        ("ended", expected(2, null=True)),
        ("moved", expected(1, null=True)),
        ("put", expected(3)),
        ("put", expected(2, null=True)),
        ("moved", expected(3, null=True)),
        ("put", expected(1)),
    ]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("numeric", "'NaN'"),
        ("numeric(10, 2)", "'NaN'"),
        ("numeric", "1e25"),
        ("numeric(50, 10)", "1e35"),
        ("numeric", "1e-25"),
        ("date", "'infinity'"),
        ("date", "'0044-03-15 BC'"),
        ("timestamp", "'infinity'"),
        ("timestamptz", "'-infinity'"),
        ("interval", "'1 month'"),
        ("integer[]", "'{{1,2},{3,4}}'"),
        ("integer[]", "'[0:1]={1,2}'"),
        ("date[]", "'{infinity}'"),
    ],
)
def test_what_cannot_be_held_is_told(server: Postgres, kind: str, value: str) -> None:
    server.execute(f"DROP TABLE IF EXISTS kinds.odd; CREATE TABLE kinds.odd (good int, bad {kind})")
    server.execute(
        f"INSERT INTO kinds.odd SELECT i, NULL FROM generate_series(1, 9) i; INSERT INTO kinds.odd VALUES (0, {value})"
    )
    with pytest.raises(BadData) as told:
        rows(source(server, "kinds.odd"))
    assert 'column "bad" has the value' in str(told.value) and "declare the column as STRING" in str(
        told.value
    )
    declared = Schema((Column("good", pa.int32()), Column("bad", pa.string())))
    assert rows(source(server, "kinds.odd", declared=declared))[-1]["bad"]


def test_two_names_that_differ_in_case_are_told(server: Postgres) -> None:
    server.execute('DROP TABLE IF EXISTS kinds.twice; CREATE TABLE kinds.twice (a int, "A" int)')
    read = source(server, "kinds.twice")
    with pytest.raises(NotSupported, match='two columns "A"'):
        read.schema()
    read.close()


def test_views_partitions_and_foreign_tables(server: Postgres) -> None:
    server.execute(
        "DROP TABLE IF EXISTS kinds.parts CASCADE;"
        "CREATE TABLE kinds.parts (id int PRIMARY KEY, v text) PARTITION BY RANGE (id);"
        "CREATE TABLE kinds.p1 PARTITION OF kinds.parts FOR VALUES FROM (0) TO (10);"
        "CREATE TABLE kinds.p2 PARTITION OF kinds.parts FOR VALUES FROM (10) TO (20);"
        "INSERT INTO kinds.parts VALUES (1, 'a'), (11, 'b');"
        "CREATE VIEW kinds.seen AS SELECT id * 2 AS twice FROM kinds.parts;"
        "CREATE MATERIALIZED VIEW kinds.made AS SELECT * FROM kinds.parts;"
        "CREATE EXTENSION IF NOT EXISTS postgres_fdw;"
        "CREATE SERVER IF NOT EXISTS me FOREIGN DATA WRAPPER postgres_fdw"
        f" OPTIONS (host '127.0.0.1', port '{server.port}', dbname 'postgres');"
        "CREATE USER MAPPING IF NOT EXISTS FOR millpond SERVER me OPTIONS (user 'millpond');"
        "CREATE FOREIGN TABLE kinds.far (id int, v text) SERVER me OPTIONS (schema_name 'kinds', table_name 'parts')"
    )
    both = [{"id": 1, "v": "a"}, {"id": 11, "v": "b"}]
    assert rows(source(server, "kinds.parts")) == both
    assert rows(source(server, "kinds.made")) == both
    assert rows(source(server, "kinds.far")) == both
    assert rows(source(server, "kinds.seen")) == [{"twice": 2}, {"twice": 22}]


def of(kind: PgType, *texts: str | None) -> Any:
    return from_texts(pa.array(texts, pa.string()), kind, kind.arrow, "c").to_pylist()


def test_texts_that_hold_several_values() -> None:
    array = PgType("array", normal(pa.list_(pa.string())), (TEXT,))
    row = PgType("row", pa.struct([("a", pa.string()), ("b", array.arrow)]), (TEXT, array))
    store = PgType("hstore", PLAIN["hstore"])
    assert of(array) == [] and of(array, None, None) == [None, None]
    assert of(array, "{}", None, '{"",a,NULL,"NULL","\\\\","\\"","{,}"}') == [
        [],
        None,
        ["", "a", None, "NULL", "\\", '"', "{,}"],
    ]
    assert of(row, '("a""b\\\\c","{x,""y z""}")', "(,)", None, '("",{})') == [
        {"a": 'a"b\\c', "b": ["x", "y z"]},
        {"a": None, "b": None},
        None,
        {"a": "", "b": []},
    ]
    assert of(store, "", None, '"a"=>"b", "c, \\"=>"=>NULL') == [[], None, [("a", "b"), ('c, "=>', None)]]


def test_which_type_holds_which() -> None:
    wide, narrow = pa.decimal128(10, 2), pa.decimal128(8, 1)
    assert holds(wide, narrow) and not holds(narrow, wide) and holds(pa.string(), wide)
    assert holds(pa.int64(), pa.int32()) and not holds(pa.int32(), pa.int64())
    assert holds(pa.decimal128(12, 2), pa.int32()) and not holds(wide, pa.int32())
    assert holds(pa.list_(pa.int64()), pa.list_(pa.int32())) and not holds(pa.int32(), pa.date32())
