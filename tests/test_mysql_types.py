"""Types of MySQL: the same values by a SELECT and from the log, and what cannot be read is told by name."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from millpond.errors import BadData, NotSupported
from millpond.types import Column, Schema, type_name
from tests.mysql_tables import following, source, table_of
from tests.servers import MariaDb, Servers


@pytest.fixture(scope="module")
def server(servers: Servers) -> MariaDb:
    return servers.mariadb


@pytest.fixture
def home(server: MariaDb) -> Iterator[str]:
    name = f"d{uuid.uuid4().hex[:8]}"
    server.new_database(name)
    yield name
    server.execute(f"DROP DATABASE {name}")


def d(text: str) -> Decimal:
    return Decimal(text)


def day(*parts: int) -> datetime:
    return datetime(*parts)  # type: ignore[arg-type]


def utc(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)  # type: ignore[arg-type,misc]


VALUES: list[tuple[str, str, list[tuple[str, Any]]]] = [
    ("tinyint", "TINYINT", [("-128", -128), ("127", 127)]),
    ("tinyint unsigned", "SMALLINT", [("255", 255)]),
    ("boolean", "TINYINT", [("true", 1), ("5", 5)]),
    ("year", "SMALLINT", [("1901", 1901), ("2155", 2155), ("0000", 0)]),
    ("smallint", "SMALLINT", [("-32768", -32768)]),
    ("smallint unsigned", "INT", [("65535", 65535)]),
    ("mediumint", "INT", [("-8388608", -8388608), ("8388607", 8388607)]),
    ("mediumint unsigned", "INT", [("16777215", 16777215)]),
    ("int", "INT", [("-2147483648", -2147483648)]),
    ("int(5) unsigned zerofill", "BIGINT", [("4294967295", 4294967295), ("7", 7)]),
    ("bigint", "BIGINT", [("-9223372036854775808", -(2**63))]),
    ("bigint unsigned", "DECIMAL(20,0)", [("18446744073709551615", d("18446744073709551615"))]),
    ("decimal(10,2)", "DECIMAL(10,2)", [("-12345678.90", d("-12345678.90")), ("0", d("0.00"))]),
    ("decimal(5,5)", "DECIMAL(5,5)", [("-0.00001", d("-0.00001"))]),
    ("decimal(18,0) unsigned", "DECIMAL(18,0)", [("999999999999999999", d("999999999999999999"))]),
    (
        "decimal(38,18)",
        "DECIMAL(38,18)",
        [("-12345678901234567890.123456789012345678", d("-12345678901234567890.123456789012345678"))],
    ),
    ("decimal(65,30)", "DECIMAL(38,30)", [("-1234.5", d("-1234.5"))]),
    ("float", "FLOAT", [("16777215", 16777215.0), ("3.1415927", 3.1415927410125732)]),
    ("double", "DOUBLE", [("2.718281828459045", 2.718281828459045), ("-1e300", -1e300)]),
    ("bit(1)", "BOOLEAN", [("b'1'", True), ("b'0'", False)]),
    ("bit(12)", "BIGINT", [("3000", 3000)]),
    ("bit(64)", "DECIMAL(20,0)", [("18446744073709551615", d("18446744073709551615"))]),
    ("date", "DATE", [("'2024-02-29'", date(2024, 2, 29)), ("'0000-00-00'", None), ("'2024-02-31'", None)]),
    ("datetime", "TIMESTAMP_NTZ", [("'1000-01-01 01:02:03'", day(1000, 1, 1, 1, 2, 3))]),
    ("datetime(3)", "TIMESTAMP_NTZ", [("'2024-01-01 00:00:00.123'", day(2024, 1, 1, 0, 0, 0, 123000))]),
    (
        "datetime(6)",
        "TIMESTAMP_NTZ",
        [
            ("'9999-12-31 23:59:59.999999'", day(9999, 12, 31, 23, 59, 59, 999999)),
            ("'0000-00-00'", None),
            ("'1969-12-31 23:59:59.5'", day(1969, 12, 31, 23, 59, 59, 500000)),
        ],
    ),
    (
        "timestamp null",
        "TIMESTAMP",
        [("'2024-03-31 01:30:00'", utc(2024, 3, 31, 1, 30)), ("'0000-00-00'", None)],
    ),
    (
        "timestamp(6) null",
        "TIMESTAMP",
        [("'2038-01-19 03:14:07.999999'", utc(2038, 1, 19, 3, 14, 7, 999999))],
    ),
    (
        "time",
        "INTERVAL DAY TO SECOND",
        [
            ("'-838:59:59'", -timedelta(hours=838, minutes=59, seconds=59)),
            ("'10:20:30'", timedelta(0, 37230)),
        ],
    ),
    ("time(3)", "INTERVAL DAY TO SECOND", [("'-00:00:00.001'", -timedelta(milliseconds=1))]),
    ("time(6)", "INTERVAL DAY TO SECOND", [("'-100:00:00.000001'", -timedelta(hours=100, microseconds=1))]),
    ("enum('a', 'bé')", "STRING", [("'bé'", "bé"), ("''", "")]),
    ("enum('ä', 'ö') character set latin1", "STRING", [("'ö'", "ö")]),
    ("set('x', 'yö', 'z')", "STRING", [("'z,x'", "x,z"), ("''", "")]),
    ("json", "STRING", [("'{\"a\": [1, 2.5, null]}'", '{"a": [1, 2.5, null]}')]),
    ("char(10)", "STRING", [("'abc  '", "abc")]),
    ("char(255)", "STRING", [("REPEAT('€', 200)", "€" * 200)]),
    ("varchar(300)", "STRING", [("REPEAT('x', 290)", "x" * 290), ("'it''s 🐟'", "it's 🐟")]),
    ("varchar(20) character set latin1", "STRING", [("'naïve €'", "naïve €")]),
    ("varchar(20) character set greek", "STRING", [("'αβγ'", "αβγ")]),
    ("varchar(20) character set koi8r", "STRING", [("'вода'", "вода")]),
    ("varchar(20) character set dec8", "STRING", [("'aß'", "aß")]),
    ("varchar(20) character set utf16", "STRING", [("'🐟水'", "🐟水")]),
    ("varchar(20) character set sjis", "STRING", [("'日本'", "日本")]),
    ("varchar(20) character set utf8mb3 collate utf8mb3_bin", "STRING", [("'e€e'", "e€e")]),
    ("varchar(20) collate uca1400_ai_ci", "STRING", [("'é'", "é")]),
    ("tinytext", "STRING", [("'tëxt'", "tëxt")]),
    ("longtext", "STRING", [("REPEAT('long ', 20000)", "long " * 20000)]),
    ("binary(4)", "BINARY", [("x'0100'", b"\x01\0\0\0")]),
    ("binary(16)", "BINARY", [("x'01'", b"\x01" + bytes(15))]),
    ("varbinary(10)", "BINARY", [("x'00ff00'", b"\0\xff\0"), ("''", b"")]),
    ("blob", "BINARY", [("x'deadbeef'", b"\xde\xad\xbe\xef")]),
    ("uuid", "STRING", [("'123e4567-e89b-12d3-a456-426655440000'", "123e4567-e89b-12d3-a456-426655440000")]),
    ("inet6", "STRING", [("'2001:db8::1:0'", "2001:db8::1:0"), ("'::ffff:1.2.3.4'", "::ffff:1.2.3.4")]),
    ("inet4", "STRING", [("'10.0.0.1'", "10.0.0.1")]),
]


def test_every_type_is_the_same_by_a_select_and_from_the_log(server: MariaDb, home: str) -> None:
    columns = ", ".join(f"c{i} {kind}" for i, (kind, _, _) in enumerate(VALUES))
    server.execute(f"CREATE TABLE t (id int PRIMARY KEY, {columns}, v int AS (c8 + 1) VIRTUAL)", home)
    count = max(len(values) for _, _, values in VALUES)
    given = [[v[n] if n < len(v) else ("NULL", None) for _, _, v in VALUES] for n in range(count)]
    given.append([("NULL", None)] * len(VALUES))
    with following(server, home) as log:
        start, _ = log.begin()
        log.begun()
        names = ", ".join(f"c{i}" for i in range(len(VALUES)))
        with server.connect(home) as connection, connection.cursor() as cursor:
            cursor.execute("SET time_zone = '+00:00', sql_mode = 'ALLOW_INVALID_DATES', NAMES utf8mb4")
            for key, row in enumerate(given):
                texts = ", ".join(text for text, _ in row)
                cursor.execute(f"INSERT INTO t (id, {names}) VALUES ({key}, {texts})")
        selected = table_of(source(server, home, "t", order_by="id"))
        end = log.latest(start, 1_000_000)
        assert not len(log.fresh(start, end))
        logged = pa.Table.from_batches(log.read(start, end)).select(selected.column_names)
    found = {c.name: type_name(c.type) for c in Schema.of(selected.schema)}
    assert found == {"id": "INT", **{f"c{i}": name for i, (_, name, _) in enumerate(VALUES)}, "v": "INT"}
    for i, (kind, _, _) in enumerate(VALUES):
        wanted = [row[i][1] for row in given]
        assert selected.column(f"c{i}").to_pylist() == wanted, kind
        assert logged.column(f"c{i}").to_pylist() == wanted, kind
    assert selected.equals(logged)


def test_types_that_cannot_be_read_are_told_by_name(server: MariaDb, home: str) -> None:
    server.execute("CREATE TABLE g (id int PRIMARY KEY, place point)", home)
    with pytest.raises(NotSupported, match='column "place" is of the type GEOMETRY') as refused:
        source(server, home, "g").schema()
    assert "cast it in a query" in str(refused.value.hint)
    server.execute("INSERT INTO g VALUES (1, POINT(1, 2))", home)
    read = source(server, home, query="SELECT id, ST_AsText(place) AS place FROM g")
    assert table_of(read).to_pylist() == [{"id": 1, "place": "POINT(1 2)"}]


def test_decimals_that_do_not_fit_are_told_by_name(server: MariaDb, home: str) -> None:
    server.execute("CREATE TABLE t (id int PRIMARY KEY, n decimal(65, 0))", home)
    with following(server, home) as log:
        start, _ = log.begin()
        log.begun()
        server.execute(f"INSERT INTO t VALUES (1, {'9' * 60})", home)
        with pytest.raises(BadData, match='column "n" has'):
            table_of(source(server, home, "t"))
        with pytest.raises(BadData, match='column "n" has'):
            list(log.read(start, log.latest(start, 10)))


def test_columns_of_queries_have_their_types(server: MariaDb, home: str) -> None:
    read = source(
        server,
        home,
        query="SELECT 1 AS i, 1.50 AS d, 'a' AS s, SUM(x) AS total, NOW() AS t, x'00' AS b"
        " FROM (SELECT CAST(9 AS UNSIGNED) AS x) AS q",
    )
    kinds = [type_name(c.type) for c in read.schema()]
    assert kinds == ["INT", "DECIMAL(3,2)", "STRING", "DECIMAL(32,0)", "TIMESTAMP_NTZ", "BINARY"]
    (row,) = table_of(read).to_pylist()
    assert (row["i"], row["d"], row["s"], row["total"], row["b"]) == (
        1, d("1.50"), "a", 9, b"\0",
    )  # fmt: skip


def test_declared_columns_are_cast(server: MariaDb, home: str) -> None:
    server.execute("CREATE TABLE t (id int PRIMARY KEY, flag boolean, n decimal(10, 2))", home)
    server.execute("INSERT INTO t VALUES (1, true, 2.5), (2, NULL, 0)", home)
    declared = Schema((Column("id", pa.int64()), Column("flag", pa.bool_()), Column("n", pa.string())))
    rows = table_of(source(server, home, "t", declared=declared, order_by="id")).to_pylist()
    assert rows == [{"id": 1, "flag": True, "n": "2.50"}, {"id": 2, "flag": None, "n": "0.00"}]
