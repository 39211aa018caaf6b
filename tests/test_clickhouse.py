"""ClickHouse as a source: its engine behind HTTP (tests/chdb_http.py)."""

from __future__ import annotations

import pickle
import threading
import time
import uuid
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from millpond import App, Error, errors
from millpond.connectors.clickhouse.types import Unreadable, wire_of
from millpond.connectors.source import SEQ, Source, find_source
from millpond.types import type_name
from tests.servers import ChdbHttp, Servers

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(servers: Servers) -> ChdbHttp:
    return servers.clickhouse


@pytest.fixture
def uri(server: ChdbHttp) -> str:
    return server.new_database(f"d{uuid.uuid4().hex[:8]}")


def run(server: ChdbHttp, uri: str, sql: str) -> str:
    return server.execute(sql, uri.rpartition("/")[2])


def opened(uri: str, **values: Any) -> Source:
    more = {name.replace("_", "."): value for name, value in values.items()}
    return find_source(uri)(uri, {"retry.timeout": 0.2, **more}, None)


def rows(source: Source) -> list[dict[str, Any]]:
    end = source.latest(None)
    batches = (b for split in source.splits(None, end) for b in source.read(split))
    return [row for batch in batches for row in batch.drop_columns([SEQ]).to_pylist()]


def asked(uri: str, select: str, **values: Any) -> list[dict[str, Any]]:
    return rows(opened(uri, query=select, **values))


VALUES: list[tuple[str, str, Any]] = [
    ("toInt8(-1)", "TINYINT", -1),
    ("toUInt8(200)", "SMALLINT", 200),
    ("toUInt16(65535)", "INT", 65535),
    ("toUInt32(4000000000)", "BIGINT", 4_000_000_000),
    ("18446744073709551615", "DECIMAL(20,0)", Decimal(2**64 - 1)),
    ("toInt128('-99999999999999999999999999999999999999')", "DECIMAL(38,0)", Decimal("-" + "9" * 38)),
    ("toUInt256('99999999999999999999999999999999999999')", "DECIMAL(38,0)", Decimal("9" * 38)),
    ("CAST(NULL AS Nullable(Int256))", "DECIMAL(38,0)", None),
    ("toFloat32(1.5)", "FLOAT", 1.5),
    ("0.1", "DOUBLE", 0.1),
    ("true", "BOOLEAN", True),
    ("toDecimal32('-1.25', 2)", "DECIMAL(9,2)", Decimal("-1.25")),
    ("toDecimal64('1.25', 10)", "DECIMAL(18,10)", Decimal("1.25")),
    ("toDecimal128('1.1', 20)", "DECIMAL(38,20)", Decimal("1.1")),
    ("toDecimal256('1.1', 20)", "DECIMAL(38,20)", Decimal("1.1")),
    ("toDate('2024-05-06')", "DATE", date(2024, 5, 6)),
    ("toDate32('1950-01-02')", "DATE", date(1950, 1, 2)),
    (
        "toDateTime('2024-05-06 07:08:09', 'Asia/Tokyo')",
        "TIMESTAMP",
        datetime(2024, 5, 5, 22, 8, 9, tzinfo=UTC),
    ),
    (
        "toDateTime64('1925-05-06 07:08:09.123', 3, 'UTC')",
        "TIMESTAMP",
        datetime(1925, 5, 6, 7, 8, 9, 123000, UTC),
    ),
    (
        "toDateTime64('2024-05-06 07:08:09.123456', 9, 'UTC')",
        "TIMESTAMP",
        datetime(2024, 5, 6, 7, 8, 9, 123456, UTC),
    ),
    ("INTERVAL 36 HOUR", "INTERVAL DAY TO SECOND", timedelta(hours=36)),
    ("CAST('12:13:14' AS Time)", "STRING", "12:13:14"),
    ("'Grüße %d {a:b}'", "STRING", "Grüße %d {a:b}"),
    ("toFixedString('ab', 4)", "BINARY", b"ab\0\0"),
    (
        "toUUID('61f0c404-5cb3-11e7-907b-a6006ad3dba0')",
        "STRING",
        "61f0c404-5cb3-11e7-907b-a6006ad3dba0",
    ),
    ("CAST('b, (c' AS Enum8('a'' x' = 1, 'b, (c' = 2))", "STRING", "b, (c"),
    ("toIPv4('1.2.3.4')", "STRING", "1.2.3.4"),
    ("toIPv6('::1')", "STRING", "::1"),
    ("CAST('{\"a\": 1}' AS JSON)", "STRING", '{"a":1}'),
    ("CAST('x' AS Variant(UInt64, String))", "STRING", '"x"'),
    ("CAST('x' AS LowCardinality(Nullable(String)))", "STRING", "x"),
    ("[[toUInt64(1)], []]", "ARRAY<ARRAY<DECIMAL(20,0)>>", [[Decimal(1)], []]),
    ("[toLowCardinality('x'), 'y']", "ARRAY<STRING>", ["x", "y"]),
    ("CAST([1, NULL] AS Array(Nullable(Int32)))", "ARRAY<INT>", [1, None]),
    ("map('k', toUInt8(1))", "MAP<STRING, SMALLINT>", [("k", 1)]),
    ("tuple(toInt8(1), 'x')", "STRUCT<`1`: TINYINT, `2`: STRING>", {"1": 1, "2": "x"}),
    (
        "CAST((1, ['x']) AS Tuple(a Int32, `b c` Array(String)))",
        "STRUCT<`a`: INT, `b c`: ARRAY<STRING>>",
        {"a": 1, "b c": ["x"]},
    ),
    (
        "CAST([(1, 'x')] AS Nested(a Int8, b String))",
        "ARRAY<STRUCT<`a`: TINYINT, `b`: STRING>>",
        [{"a": 1, "b": "x"}],
    ),
    ("CAST((1, 2) AS Point)", "STRUCT<`1`: DOUBLE, `2`: DOUBLE>", {"1": 1.0, "2": 2.0}),
    ("NULL", "VOID", None),
]


def test_types(uri: str) -> None:
    select = ", ".join(f"{sql} AS c{n}" for n, (sql, _, _) in enumerate(VALUES))
    source = opened(uri, query=f"SELECT {select}")
    assert [type_name(c.type) for c in source.schema()] == [kind for _, kind, _ in VALUES]
    assert list(rows(source)[0].values()) == [value for _, _, value in VALUES]


@pytest.mark.parametrize(
    ("select", "error", "said"),
    [
        (
            "SELECT toInt256('1' || repeat('0', 38)) AS big",
            errors.BadData,
            'column "big" has a value that is no DECIMAL',
        ),
        ("SELECT toUInt256('1' || repeat('0', 76)) AS big", errors.BadData, "Too many digits"),
        ("SELECT toDateTime64('2024-01-01 00:00:00.0000001', 7) AS ns", errors.BadData, 'column "ns"'),
        ("SELECT unhex('ff') AS raw", errors.BadData, 'column "raw" has a value that is no STRING'),
        (
            "SELECT sumState(1) AS s",
            errors.NotSupported,
            'column "s" is of the type AggregateFunction(sum, UInt8)',
        ),
        (
            "SELECT [INTERVAL 1 MONTH] AS m",
            errors.NotSupported,
            'column "m" is of the type Array(IntervalMonth)',
        ),
        ("SELECT toDecimal256('1', 40) AS d", errors.NotSupported, 'column "d"'),
    ],
)
def test_what_cannot_be_held_is_told(uri: str, select: str, error: type[Error], said: str) -> None:
    with pytest.raises(error) as e:
        asked(uri, select)
    assert said in e.value.message and e.value.hint is not None


def test_states_of_aggregates_and_types_that_nobody_knows() -> None:
    assert wire_of("SimpleAggregateFunction(sum, UInt32)").type == pa.int64()
    for kind in ("AggregateFunction(uniq, String)", "QBit(Float32, 2)", "Array(SomethingNew)"):
        with pytest.raises(Unreadable):
            wire_of(kind)


TABLE = """
    CREATE TABLE orders (
        id UInt64, status Enum8('new' = 1, 'done' = 2), price Decimal(10, 2), at DateTime64(3, 'Europe/Berlin'),
        total SimpleAggregateFunction(sum, UInt64), items Nested(sku LowCardinality(String), qty UInt8),
        twice UInt64 MATERIALIZED id * 2, `a b%` Nullable(String)
    ) ENGINE = MergeTree ORDER BY id
"""
FILLED = """
    INSERT INTO orders (id, status, price, at, total, items.sku, items.qty, `a b%`)
    SELECT number + {0}, if(number % 2 = 0, 'new', 'done'), number / 4, 1700000000.125 + number + {0}, 1, ['x', 'y'],
        [1, 2], if(number = 1, NULL, 'v') FROM numbers({1})
"""


def test_a_table_becomes_one_of_ours(server: ChdbHttp, uri: str) -> None:
    run(server, uri, TABLE)
    run(server, uri, FILLED.format(0, 10))
    with App(f"CREATE TABLE t AS SELECT * FROM '{uri}/orders'") as app:
        assert app.sql("SELECT * FROM t WHERE id = 1").rows() == [
            {
                "id": Decimal(1),
                "status": "done",
                "price": Decimal("0.25"),
                "at": datetime(2023, 11, 14, 22, 13, 21, 125000, UTC),
                "total": Decimal(1),
                "items": [{"sku": "x", "qty": 1}, {"sku": "y", "qty": 2}],
                "a b%": None,
            }
        ]
        assert len(app.table("t")) == 10
    # Rows of one primary key are many there: no key is taken.
    run(server, uri, FILLED.format(0, 10))
    with App(f"CREATE TABLE t AS SELECT * FROM '{uri}/orders'") as app:
        assert len(app.table("t")) == 20


def test_a_query_its_values_and_what_is_pushed_down(server: ChdbHttp, uri: str) -> None:
    run(server, uri, TABLE)
    run(server, uri, FILLED.format(0, 10))
    select = "SELECT id, `a b%` FROM orders WHERE id > ? AND status = ? AND 'it''s' LIKE 'it%' AND price < ?"
    found = asked(uri, select, query_params='[2, "done", "1.5"]')
    assert [r["id"] for r in found] == [3, 5]
    evil = "new' OR 1 = 1 --"
    assert asked(uri, "SELECT id FROM orders WHERE `a b%` = ?", query_params=evil) == []
    assert asked(uri, "SELECT ? AS v", query_params='["\\\\ \\t\\n\'"]') == [{"v": "\\ \t\n'"}]
    with App() as app:
        where = f"FROM '{uri}/orders' WHERE status = 'lost' OR (at >= TIMESTAMP '2023-11-14 22:13:28Z' AND id < 9)"
        assert app.sql(f"SELECT id {where}").rows() == [{"id": Decimal(8)}]
        plan = str(app.sql(f"EXPLAIN SELECT id {where}").rows())
        assert "CAST(`status`" in plan and "`price`" not in plan
    assert [r["id"] for r in rows(opened(f"{uri}?table=orders&where=id > 7"))] == [8, 9]
    database = uri.rpartition("/")[2]
    assert len(rows(opened(uri.replace(database, "default"), table="orders", schema=database, limit=3))) == 3


@pytest.mark.parametrize("column", ["id", "at", "price"])
def test_polling_by_a_column_that_grows(server: ChdbHttp, uri: str, column: str) -> None:
    run(server, uri, TABLE)
    source = opened(f"{uri}/orders", poll_interval=0.05, incremental_column=column)
    start = source.latest(None)
    assert rows(source) == []
    seen = []
    for first in (0, 10):
        run(server, uri, FILLED.format(first, 10).replace("number / 4", f"{first} + number / 4"))
        run(server, uri, FILLED.format(first + 9, 1).replace("number / 4", f"{first} + 9 / 4"))  # a tie
        end = source.latest(start)
        reader = pickle.loads(pickle.dumps(source))
        for split in source.splits(start, end):
            seen += [r["id"] for b in reader.read(split) for r in b.to_pylist()]
        start = end
    assert sorted(seen) == sorted([*range(20), 9, 19])


def test_an_app_follows_it(server: ChdbHttp, uri: str) -> None:
    run(server, uri, TABLE)
    sql = f"CREATE TABLE t AS SELECT * FROM '{uri}/orders' WITH ('poll.interval' = '50ms', 'incremental.column' = 'id')"
    with App(sql) as app:
        for first in (0, 100):
            run(server, uri, FILLED.format(first, 100))
            app.drain()
            assert len(app.table("t")) == first + 100


def test_an_app_goes_on_where_it_was(tmp_path: Path, tmp_state: Path) -> None:
    """After a restart of itself, and of the server."""
    server = ChdbHttp(tmp_path / "server")
    try:
        uri = server.new_database("d")
        run(server, uri, TABLE)
        options = "'poll.interval' = '50ms', 'incremental.column' = 'at', 'retry.timeout' = '100ms'"
        sql = f"CREATE TABLE t AS SELECT * FROM '{uri}/orders' WITH ({options})"
        run(server, uri, FILLED.format(0, 10))
        with App(sql, state=tmp_state) as app:
            assert len(app.table("t")) == 10
        run(server, uri, FILLED.format(10, 10))
        with App(sql, state=tmp_state) as app:
            app.drain()
            assert len(app.table("t")) == 20
            server.stop()
            deadline = time.monotonic() + 30
            while app.table("t").health_check().status != "stale":
                assert time.monotonic() < deadline
                time.sleep(0.05)
            server.start()
            run(server, uri, FILLED.format(20, 10))
            while len(app.table("t")) < 30:
                assert time.monotonic() < deadline
                time.sleep(0.05)
            assert sorted(r["id"] for r in app.sql("SELECT id FROM t").rows()) == list(range(30))
    finally:
        server.stop()


EVIL = "orders` WHERE 1 = 0 UNION ALL SELECT 1; DROP TABLE orders; -- ' \\"


@pytest.mark.parametrize(
    "option", ["table", "schema", "where", "order.by", "query", "query.params", "incremental.column"]
)
def test_no_option_can_do_more_than_read(server: ChdbHttp, uri: str, option: str) -> None:
    run(server, uri, TABLE)
    run(server, uri, FILLED.format(0, 3))
    values: dict[str, Any] = {"table": "orders", option: EVIL, "retry.timeout": 0.2}
    if option == "query":
        del values["table"]
    if option == "query.params":
        values = {"query": "SELECT count() AS n FROM orders WHERE `a b%` = ?", option: EVIL}
        assert rows(find_source(uri)(uri, values, None)) == [{"n": 0}]
    else:
        if option == "incremental.column":
            values["poll.interval"] = 1.0
        with pytest.raises(Error):
            rows(find_source(uri)(uri, values, None))
    assert run(server, uri, "SELECT count() FROM orders") == "3\n"


def test_digits_below_a_microsecond_tell_nothing_of_what_is_new(uri: str) -> None:
    source = opened(uri, query="SELECT now64(9) AS at", poll_interval=1.0, incremental_column="at")
    with pytest.raises(errors.InvalidOption, match="below a microsecond"):
        source.schema()


def refused(uri: str, **values: Any) -> Error:
    with pytest.raises(Error) as e:
        rows(opened(uri, **values))
    return e.value


def test_errors_are_told_apart(server: ChdbHttp, uri: str) -> None:
    run(server, uri, TABLE)
    place = f"clickhouse://{server.address}"
    error = refused(f"{uri}/ordesr")
    assert isinstance(error, errors.TableMissing) and error.hint == 'did you mean "orders"?'
    error = refused(f"{place}/defualt/orders")
    assert isinstance(error, errors.DatabaseMissing) and error.hint == 'did you mean "default"?'
    error = refused(f"clickhouse://millpond:secret@{server.address}/default/orders")
    assert isinstance(error, errors.AuthenticationIssue) and "secret" not in str(error)
    error = refused(f"{place}/system/users")
    assert isinstance(error, errors.PrivilegeMissing) and "GRANT SHOW USERS ON *.*" in (error.hint or "")
    error = refused("clickhouse://127.0.0.1:1/default/orders")
    assert isinstance(error, errors.ConnectionLost) and "refused" in error.message
    error = refused(
        uri, query="SELECT count() FROM numbers(1000000000000) WHERE number % 3 = 1", query_timeout=0.5
    )
    assert isinstance(error, errors.TimedOut) and "query.timeout" in (error.hint or "")
    error = refused(uri, query="SELECT sleep(2)", socket_timeout=0.2)
    assert isinstance(error, errors.TimedOut) and "socket.timeout" in (error.hint or "")
    error = refused(uri, query="SELECT nmae FROM (SELECT 1 AS name)")
    assert isinstance(error, errors.InvalidOption) and "nmae" in error.message
    error = refused(f"{uri}/orders", where="id > nonsense")
    assert isinstance(error, errors.InvalidOption) and 'option "where"' in error.message
    assert rows(opened(f"clickhouse://millpond:pond@{server.address}/default?query=SELECT 1 AS a")) == [
        {"a": 1}
    ]


def test_an_error_in_the_middle_of_rows(uri: str) -> None:
    source = opened(uri, query="SELECT number, throwIf(number = 3000000) AS f FROM numbers(5000000)")
    with pytest.raises(errors.SourceError, match="throwIf"):
        for split in source.splits(None, source.latest(None)):
            for batch in source.read(split):
                assert batch.num_rows


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"cdc": True}, "no change log"),
        ({"parallel_readers": 2}, "keys are not unique"),
        ({"transaction_isolation": "serializable"}, "no transactions"),
        ({"ssl_mode": "prefer"}, "cannot negotiate"),
        ({"ssl_mode": "disable", "ssl_ca": "x.pem"}, "ssl.ca"),
        ({"query": "SELECT 1"}, "name rows too"),
    ],
)
def test_options_that_it_cannot_honour(uri: str, options: dict[str, Any], said: str) -> None:
    with pytest.raises(errors.InvalidOption, match=said):
        opened(f"{uri}/orders", **options).schema()


def test_a_connection_that_is_lost(tmp_path: Path) -> None:
    """Between two looks the server is away; while rows come it ends."""
    server = ChdbHttp(tmp_path / "server")
    try:
        uri = server.new_database("d")
        run(server, uri, "CREATE TABLE n (id UInt32) ENGINE = MergeTree ORDER BY id")
        run(server, uri, "INSERT INTO n SELECT number FROM numbers(10)")
        source = opened(f"{uri}/n", retry_timeout=30.0)
        assert len(rows(source)) == 10
        server.stop()
        threading.Timer(0.5, server.start).start()
        assert len(rows(source)) == 10 and source.issues.retries
        endless = opened(uri, query="SELECT number FROM numbers(1000000000)", prefetch_count=0)
        batches = (b for s in endless.splits(None, endless.latest(None)) for b in endless.read(s))
        assert next(batches).num_rows
        server.stop()
        with pytest.raises(errors.ConnectionLost):
            for _ in batches:
                pass
    finally:
        server.stop()


@pytest.fixture(scope="module")
def secure(
    tmp_path_factory: pytest.TempPathFactory, certificate: tuple[str, Any]
) -> Iterator[tuple[ChdbHttp, str]]:
    ca, _ = certificate
    key = str(Path(ca).with_name("key.pem"))
    server = ChdbHttp(tmp_path_factory.mktemp("secure") / "server", (ca, key))
    yield server, ca
    server.stop()


def test_tls(secure: tuple[ChdbHttp, str]) -> None:
    server, ca = secure
    uri = f"clickhouse://{server.address}/default"
    for values in ({"ssl_mode": "require"}, {"ssl_ca": ca}, {"ssl_mode": "verify-ca", "ssl_ca": ca}):
        assert asked(uri, "SELECT 1 AS a", **values) == [{"a": 1}]
    named = uri.replace("127.0.0.1", "localhost")  # a name that the certificate has not
    assert asked(named, "SELECT 1 AS a", ssl_mode="verify-ca", ssl_ca=ca) == [{"a": 1}]
    for address, values in ((uri, {"ssl_mode": "verify-full"}), (named, {"ssl_ca": ca})):
        error = refused(address, query="SELECT 1 AS a", **values)
        assert type(error) is errors.SourceError and "certificate" in error.message.lower()
