"""The Table API (T2), without an app and without Spark."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from decimal import Decimal, localcontext
from typing import Any

import pyarrow as pa
import pytest

import millpond
from millpond import App, Error, Table
from millpond.errors import (
    InvalidRecord,
    NotSupported,
    QueryFailed,
    SqlSyntaxError,
    TypeMismatch,
    UnknownName,
)

PEOPLE = [
    {"id": 1, "name": "Ann", "tier": "GOLD", "age": 70, "balance": Decimal("10.50")},
    {"id": 2, "name": "Bob", "tier": "SILVER", "age": 30, "balance": Decimal("0.00")},
    {"id": 3, "name": "Cid", "tier": "GOLD", "age": 40, "balance": Decimal("-3.25")},
    {"id": 4, "name": None, "tier": None, "age": None, "balance": None},
]
COLUMNS = {"id": "INT", "name": "STRING", "tier": "STRING", "age": "INT", "balance": "DECIMAL(10,2)"}


@pytest.fixture(params=["keyed", "without a key", "in an app"])
def people(request: pytest.FixtureRequest) -> Any:
    if request.param == "in an app":
        columns = ", ".join(f"{n} {t}" for n, t in COLUMNS.items())
        with App(f"CREATE TABLE people ({columns}, PRIMARY KEY (id))") as app:
            table = app.table("people")
            table.bulk_insert(PEOPLE)
            yield table
        return
    table = Table(COLUMNS, key="id" if request.param == "keyed" else (), name="people")
    table.bulk_insert(PEOPLE)
    yield table


def ids(rows: list[dict[str, Any]]) -> list[int]:
    return sorted(r["id"] for r in rows)


def test_columns_are_a_mapping_or_a_text() -> None:
    one = Table({"id": "INT", "name": "STRING"}, key="ID")
    two = millpond.Table("id INT PRIMARY KEY, name STRING")
    three = Table("id INT, name STRING, PRIMARY KEY (id)")
    assert one.schema == two.schema == three.schema
    assert one.schema.key == ("id",)
    assert Table("a INT, b INT", key=("a", "b")).schema.key == ("a", "b")
    with pytest.raises(UnknownName, match='"idd"'):
        Table({"id": "INT"}, key="idd")
    with pytest.raises(SqlSyntaxError):
        Table("id INT) WITH ('a'='b'")
    with pytest.raises(Error):
        Table({"id": "INTT"})


def test_find_takes_a_text_a_compiled_condition_and_equal_values(people: Table) -> None:
    assert ids(people.find("age > 35 AND tier = 'GOLD'")) == [1, 3]
    assert ids(people.find(people.compile_condition("age < 50"))) == [2, 3]
    assert ids(people.find(tier="GOLD")) == [1, 3]
    assert ids(people.find("age > 50", tier="GOLD")) == [1]
    assert ids(people.find("id = 2")) == [2]
    assert ids(people.find("id = 2 AND tier = 'GOLD'")) == []
    assert ids(people.find("id = 1 AND balance = 10.5")) == [1]
    assert ids(people.find("id = 1 AND id = 2")) == []
    assert ids(people.find("id = 1", id=2)) == []
    assert ids(people.find("tier = 'X' OR tier = 'SILVER'")) == [2]
    assert people.find("id = 1") == [PEOPLE[0]]
    assert ids(people.find()) == [1, 2, 3, 4]


def test_conditions_by_equal_values_take_a_short_cut_that_changes_nothing(people: Table) -> None:
    for text in ("id = 1", " ID=1 ", "id = 1 and tier = 'GOLD'", "tier = 'GOLD' AND name='Ann'"):
        assert people.compile_condition(text).exact
        assert people.find(text) == people.find(f"({text}) OR false") == [PEOPLE[0]]
    for text in (
        "name = 'x AND y'",
        "id = 9223372036854775807",
        "id = -1",
        "tier = ''",
        "id = 1 AND id = 1 AND id = 2",
    ):
        assert people.find(text) == people.find(f"({text}) OR false") == []
    for text in ("balance = 10.505", "balance = 99999999999999", "id = 99999999999999999999999"):
        assert people.find(text) == people.find(f"id > 0 AND {text}") == []
    assert (
        ids(people.find("balance = 10.500"))
        == ids(people.find("balance = -3.25 OR balance = 10.5"))[:1]
        == [1]
    )
    assert ids(people.find("id = '1'")) == [1]
    assert ids(people.find("ID = 1", TIER="GOLD")) == [1] and people.find("ID = 1", Id=2) == []
    with pytest.raises(UnknownName):
        people.find("idd = 1")
    assert people.update("id = 1", {"age": 71}) == 1 and people.delete("id = 1") == 1
    assert people.find(id=1) == []


def test_null_is_found_by_none_and_never_by_an_equality(people: Table) -> None:
    assert ids(people.find(tier=None)) == [4]
    assert people.find("tier = NULL") == []
    assert ids(people.find("tier IS NULL")) == [4]
    assert ids(people.find("tier <> 'GOLD'")) == [2]


def test_contains(people: Table) -> None:
    assert people.contains(tier="GOLD") and not people.contains(tier="IRON")
    assert people.contains("age > 65") and not people.contains("age > 99")
    assert people.contains(people.compile_condition("age = 30"))
    assert people.sql_exists("tier IS NULL") and not people.sql_exists("false")


def test_mistakes_in_conditions_are_told(people: Table) -> None:
    with pytest.raises(UnknownName, match='"agee"') as caught:
        people.find("agee > 3")
    assert caught.value.line == 1 and caught.value.column == 1
    with pytest.raises(SqlSyntaxError):
        people.find("age >")
    with pytest.raises(TypeMismatch):
        people.find("age + 1")
    with pytest.raises(InvalidRecord, match='"agee"'):
        people.find(agee=3)
    with pytest.raises(InvalidRecord, match='"age"'):
        people.find(age="old")
    with pytest.raises(QueryFailed):
        people.find("age / 0 > 1")


@pytest.mark.parametrize("ask", ["find", "contains", "delete", "sql_exists", "compile_condition"])
def test_a_condition_reads_no_other_rows(ask: str) -> None:
    with App("CREATE TABLE t (id INT PRIMARY KEY, v INT); INSERT INTO t VALUES (1, 2)") as app:
        for table in (app.table("t"), Table("id INT, v INT", key="id")):
            with pytest.raises(NotSupported, match="reads no other rows") as failed:
                getattr(table, ask)("v = (SELECT MAX(v) FROM t)")
            assert (failed.value.line, failed.value.column) == (1, 25)
        assert len(app.table("t")) == 1


def test_update_by_condition_key_and_expression(people: Table) -> None:
    assert people.update("tier = 'GOLD'", {"age": 1}) == 2
    assert [r["age"] for r in people.find("tier = 'GOLD'")] == [1, 1]
    assert people.update({"id": 2}, {"tier": "GOLD", "NAME": "Bobby"}) == 1
    assert people.update(id=2, changes="age = age + 1, balance = balance + 0.01") == 1
    assert people.find(id=2) == [
        {"id": 2, "name": "Bobby", "tier": "GOLD", "age": 31, "balance": Decimal("0.01")}
    ]
    double = people.compile_update_set("age = age * 2")
    assert people.update("age IS NOT NULL", double) == 3
    assert people.update("true", double) == 4
    assert people.update("false", double) == 0
    assert sorted((r["id"], r["age"]) for r in people.all_rows()) == [(1, 4), (2, 124), (3, 4), (4, None)]
    assert len(people) == 4


def test_an_update_that_fails_changes_nothing(people: Table) -> None:
    before = people.all_rows()
    with pytest.raises(QueryFailed):
        people.update("true", "age = 100 / (id - 3)")
    with pytest.raises(QueryFailed):
        people.update("true", "balance = balance * 100000000000")
    with pytest.raises(InvalidRecord, match='"age"'):
        people.update("true", {"age": 2**40})
    with pytest.raises(InvalidRecord, match="gae"):
        people.update("true", {"gae": 1})
    with pytest.raises(UnknownName, match="gae"):
        people.update("true", "gae = 1")
    with pytest.raises(TypeMismatch):
        people.update("true", "age = name")
    with pytest.raises(SqlSyntaxError):
        people.update("true", "age = 1 WHERE id = 2")
    with pytest.raises(InvalidRecord):
        people.update("true")
    assert people.all_rows() == before


def test_a_key_may_move_where_no_row_is() -> None:
    table = Table(COLUMNS, key="id")
    table.bulk_insert(PEOPLE)
    assert table.update("id = 4", "id = id + 10") == 1
    assert ids(table.all_rows()) == [1, 2, 3, 14]
    assert table.update("true", "id = id + 1") == 4
    assert ids(table.all_rows()) == [2, 3, 4, 15]
    with pytest.raises(QueryFailed, match="two rows would get one key"):
        table.update("id = 2 OR age IS NULL", "id = 1")
    with pytest.raises(QueryFailed, match="a key that another row has"):
        table.update("id = 2", "id = 3")
    with pytest.raises(InvalidRecord, match="NULL"):
        table.update("id = 2", "id = NULL")
    assert ids(table.all_rows()) == [2, 3, 4, 15]


def test_delete(people: Table) -> None:
    assert people.delete("age > 65") == 1
    assert people.delete(id=2) == 1 and people.delete(id=2) == 0
    assert people.delete(people.compile_condition("tier IS NULL")) == 1
    assert ids(people.all_rows()) == [3]
    with pytest.raises(InvalidRecord):
        people.delete()
    assert people.delete("true") == 1 and len(people) == 0


def test_keys() -> None:
    table = Table("a INT, b STRING, v DOUBLE, PRIMARY KEY (a, b)")
    assert table.bulk_insert([{"a": a, "b": b, "v": a / 2} for a in range(3) for b in "xy"]) == 6
    assert table.get_record((1, "x")) == {"a": 1, "b": "x", "v": 0.5}
    assert table.get_record((9, "x")) is None
    assert table.contains((1, "y")) and table.contains(a=1, b="y") and not table.contains((1, "z"))
    assert table.delete((1, "y")) == 1
    assert table.bulk_delete([(0, "x"), (0, "x"), (7, "x")]) == 1
    assert table.bulk_delete(pa.table({"b": ["y"], "a": [0]})) == 1
    assert len(table) == 3
    with pytest.raises(InvalidRecord, match="2 columns"):
        table.get_record(1)
    with pytest.raises(InvalidRecord, match="no primary key"):
        Table("a INT").get_record(1)


def test_text_is_a_key_where_the_key_is_text() -> None:
    table = Table("symbol STRING PRIMARY KEY, price DOUBLE")
    table.insert({"symbol": "IBM", "price": 1.5})
    assert table.contains("IBM") and not table.contains("SAP")
    assert table.get_record("IBM") == {"symbol": "IBM", "price": 1.5}
    assert table.get_record("SAP") is None
    assert table.contains(table.compile_condition("price > 1"))
    assert table.delete(symbol="IBM") == 1
    times = Table("at TIMESTAMP PRIMARY KEY, v INT")
    times.insert({"at": "2024-05-06 12:00:00", "v": 1})
    assert times.contains("2024-05-06T12:00:00Z") and not times.contains("2024-05-06 12:00:01")
    assert not times.contains(at="2024-05-07") and times.get_record("2024-05-06 12:00:00") is not None


def test_bulk_update_changes_the_named_fields_of_known_keys() -> None:
    table = Table(COLUMNS, key="id")
    table.bulk_insert(PEOPLE)
    assert (
        table.bulk_update([{"id": 1, "age": 5}, {"ID": 2, "tier": None}, {"id": 1, "name": "A"}, {"id": 9}])
        == 2
    )
    assert table.get_record(1) == {**PEOPLE[0], "age": 5, "name": "A"}
    assert table.get_record(2) == {**PEOPLE[1], "tier": None}
    assert len(table) == 4
    with pytest.raises(InvalidRecord, match='key "id" is missing'):
        table.bulk_update([{"id": 1, "age": 6}, {"age": 7}])
    with pytest.raises(InvalidRecord, match='"agee"'):
        table.bulk_update([{"id": 1, "agee": 6}])
    with pytest.raises(InvalidRecord, match='"age"'):
        table.bulk_update([{"id": 2, "age": 6}, {"id": 1, "age": "x"}])
    assert table.get_record(2) == {**PEOPLE[1], "tier": None}


def test_rows_for_a_join(people: Table) -> None:
    assert ids(people.find_rows_for_join("tier", ["GOLD", "IRON", None, "GOLD"])) == [1, 3]
    assert ids(people.find_rows_for_join("id", 2)) == [2]
    assert ids(people.find_rows_for_join(("tier", "age"), [("GOLD", 70), ("SILVER", 70)])) == [1]
    found = people.find_rows_for_join(["id"], pa.table({"k": pa.array([1, 4], pa.int64())}), arrow=True)
    assert sorted(found["id"].to_pylist()) == [1, 4]


def test_clones_and_snapshots_go_their_own_way(people: Table) -> None:
    before, copy = people.snapshot(), people.clone("copy")
    people.delete("id = 1")
    people.update("true", {"tier": "IRON"})
    assert ids(before.find("tier = 'GOLD'")) == [1, 3]
    assert before.sql_scalar("COUNT(*)") == len(before) == 4
    assert ids(copy.all_rows()) == [1, 2, 3, 4] and copy.name == "copy"
    copy.delete("true")
    assert len(people) == 3


def test_pages_are_stable_while_writers_go_on() -> None:
    table = Table({"id": "INT", "v": "INT"}, key="id")
    table.bulk_insert([{"id": i, "v": 0} for i in range(100)])
    seen, offset = [], 0
    while page := table.query_batch(7, offset):
        seen += [r["id"] for r in page]
        offset += 7
        table.delete(f"id = {offset}")
        table.update("id < 50", "v = v + 1")
        table.insert({"id": 1000 + offset, "v": 0})
    assert seen == list(range(100))
    assert len(table.query_batch(1000)) == len(table)
    assert table.query_batch(0) == []
    with pytest.raises(InvalidRecord):
        table.query_batch(-1)


def test_streams_of_records_and_of_batches(people: Table) -> None:
    stream = people.stream_all()
    people.insert({"id": 9})
    assert ids(list(stream)) == ids(list(stream)) == [1, 2, 3, 4]
    assert ids(list(people.stream_filter("age > 35"))) == [1, 3]
    assert ids(list(people.stream_filter(tier="SILVER"))) == [2]
    batches = list(people.stream_all(arrow=True, batch_rows=2))
    assert all(isinstance(b, pa.RecordBatch) and b.num_rows <= 2 for b in batches)
    assert sum(b.num_rows for b in batches) == 5
    assert [b.num_rows for b in people.stream_filter("id = 1", arrow=True)] == [1]

    async def collect() -> list[int]:
        found = [r["id"] async for r in people.stream_all()]
        async for batch in people.stream_filter("id = 9", arrow=True):
            found += batch["id"].to_pylist()
        return sorted(found)

    assert asyncio.run(collect()) == [1, 2, 3, 4, 9, 9]
    assert ids(list(people)) == [1, 2, 3, 4, 9]


def test_sql_methods(people: Table) -> None:
    assert ids(people.sql_filter("name LIKE 'A%' OR name IS NULL")) == [1, 4]
    assert people.sql_column_values("name", "tier = 'GOLD'") == ["Ann", "Cid"]
    assert people.sql_column_values("upper(name)", "id = 2") == ["BOB"]
    assert (
        people.sql_column_values("*", "id = 2") == people.sql_column_values("*", "id < 3 AND id > 1") == [2]
    )
    assert people.sql_scalar("COUNT(*)", "tier = 'GOLD'") == 2
    assert people.sql_scalar("SUM(balance)") == Decimal("7.25")
    assert people.sql_scalar("AVG(age)", "id < 3") == 50.0
    assert people.sql_scalar("MAX(age)", "id > 100") is None
    assert people.sql_scalar("name", "id = 1") == "Ann"
    with pytest.raises(QueryFailed, match="2 values"):
        people.sql_scalar("name", "tier = 'GOLD'")
    with pytest.raises(Error):
        people.sql_scalar("SUM(name)")
    with pytest.raises(UnknownName):
        people.sql_column_values("nmae")


@pytest.mark.parametrize("dtype", ["DECIMAL(4,2)", "DECIMAL(14,3)", "DECIMAL(18,2)", "DECIMAL(25,2)"])
def test_sums_of_decimals_are_exact(dtype: str) -> None:
    table = Table({"id": "INT", "v": dtype}, key="id")
    assert table.sql_scalar("SUM(v)") is None
    largest = Decimal(10) ** (int(dtype[8:].split(",")[0]) - int(dtype[-2])) - Decimal(10) ** -int(dtype[-2])
    values = [largest if i % 3 else -largest / 3 for i in range(70_000)]
    values = [v.quantize(Decimal(10) ** -int(dtype[-2])) for v in values]
    table.bulk_insert([{"id": i, "v": None if i % 7 == 0 else v} for i, v in enumerate(values)])
    table.delete("id % 5 = 0")
    table.insert({"id": -1, "v": None})
    left = [v for i, v in enumerate(values) if i % 7 and i % 5]
    with localcontext(prec=60):
        total = sum(left, Decimal(0))
    assert table.sql_scalar("SUM(v)") == table.sql_scalar("sum( V )", "true") == total
    assert table.delete("v IS NOT NULL") == len(left)
    assert table.sql_scalar("SUM(v)") is None


POSITIONS = {
    "AAPL": {"shares": 150, "price": Decimal("150.25")},
    "MSFT": {"shares": 75, "price": Decimal("330.25")},
    "TSLA": {"shares": 25, "price": Decimal("450.50")},
}
_POSITION = "STRUCT<shares: INT, price: DECIMAL(10,2)>"


def nested(kind: str) -> Table:
    """The record of the cases D1 to D9, in three forms."""
    deep = {"level2": {"level3": {"deep_value": 42}}}
    orders = [{"amount": Decimal("100.50")}, {"amount": Decimal("250.75")}, {"amount": Decimal("75.25")}]
    record: dict[str, Any] = {"id": 1, "positions": POSITIONS, "root": deep, "orders": orders}
    if kind == "json":
        table = Table("id INT PRIMARY KEY, positions STRING, root STRING, orders STRING")
        as_text = {k: json.dumps(v, default=float) for k, v in record.items() if k != "id"}
        record = {"id": 1, **as_text}
    else:
        shape = f"MAP<STRING, {_POSITION}>"
        if kind == "struct":
            shape = "STRUCT<" + ", ".join(f"{name}: {_POSITION}" for name in POSITIONS) + ">"
        table = Table(
            f"id INT PRIMARY KEY, positions {shape}, "
            "root STRUCT<level2: STRUCT<level3: STRUCT<deep_value: INT>>>, "
            "orders ARRAY<STRUCT<amount: DECIMAL(10,2)>>"
        )
    table.insert(record)
    return table


@pytest.mark.parametrize("kind", ["map", "struct", "json"])
def test_wildcard_values(kind: str) -> None:
    values = nested(kind).sql_wildcard_values
    assert values("positions.*.shares > 100") == [150]
    assert values("positions.*.shares < 100") == [75, 25]
    assert values("positions.*.shares") == [150, 75, 25]
    assert values("positions.*.price > 300") == [Decimal("330.25"), Decimal("450.50")]
    assert values("invalid.*.field > 100") == values("positions.*.nothing") == []
    assert values("**.deep_value") == values("root.**.deep_value") == [42]
    assert values("*.*.shares") == [150, 75, 25]
    assert values("orders[*].amount") == [Decimal("100.50"), Decimal("250.75"), Decimal("75.25")]
    assert values("orders[1].amount") == [Decimal("250.75")]
    assert values("orders[9].amount") == []
    assert values("positions.MSFT.shares = 75") == [75]
    assert values("positions['MSFT'].shares") == [75]
    assert values("id") == [1] and values("id = 'x'") == []
    assert sorted(values("positions.**"), key=float)[:2] == [25, 75]
    for wrong in ("positions.*.shares > invalid", "", "positions.", "positions[", "a b", "a > "):
        with pytest.raises(SqlSyntaxError):
            values(wrong)


@pytest.mark.parametrize("kind", ["map", "struct", "json"])
def test_wildcard_aggregates(kind: str) -> None:
    table = nested(kind)
    ask = table.sql_wildcard_aggregate
    assert ask("COUNT(positions.*.shares)") == 3
    assert ask("max(positions.*.shares)") == 150
    assert ask("MIN(positions.*.shares)") == 25
    assert float(ask("AVG(positions.*.shares)")) == pytest.approx(83.3333333)
    assert ask("SUM(positions.*.shares)") == 250
    assert ask("SUM(orders[*].amount)") == Decimal("426.50")
    assert round(ask("AVG(orders[*].amount)"), 6) == Decimal("142.166667")
    assert ask("COUNT(positions.*.shares > 50)") == 2
    assert ask("SUM(nothing.*)") is None and ask("COUNT(nothing.*)") == 0
    assert ask("SUM(positions.*.shares)", "id = 2") is None
    if kind == "json":
        assert ask("SUM(positions.*)") is None  # objects in text are no numbers
    else:
        with pytest.raises(TypeMismatch, match="SUM"):
            ask("SUM(positions.*)")
    for wrong in ("SUM()", "MEDIAN(positions.*.shares)", "positions.*.shares"):
        with pytest.raises(SqlSyntaxError):
            ask(wrong)


def test_statistics_and_health(people: Table) -> None:
    before = people.get_stats()
    people.find("age > 3")
    people.find(tier="GOLD")
    people.contains(id=1)
    after = people.get_stats()
    assert after.rows == after["rows"] == 4 and after.bytes > 0 and after.last_update
    assert after.lookups == before.lookups + 2 and after.queries == before.queries + 1
    assert dict(after)["evictions"] == after.spilled_bytes == 0
    health = people.health_check()
    assert health.status == "healthy" and health.reason
    with pytest.raises(KeyError):
        after["nothing"]


def test_what_only_spark_answers_is_refused_without_an_app() -> None:
    table = Table({"id": "INT"}, key="id")
    table.insert({"id": 1})
    with pytest.raises(NotSupported, match="Spark"):
        table.sql_scalar("xpath_string('<a>b</a>', 'a')")


@pytest.mark.parametrize("make", [lambda: Table("id INT PRIMARY KEY, n INT"), lambda: Table("id INT, n INT")])
def test_updates_of_many_threads_all_count(make: Callable[[], Table]) -> None:
    table = make()
    table.bulk_insert([{"id": i, "n": 0} for i in range(4)])
    add = table.compile_update_set("n = n + 1")

    def work() -> None:
        for i in range(20):
            assert table.update({"id": i % 4}, add) == 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted((r["id"], r["n"]) for r in table.all_rows()) == [(i, 20) for i in range(4)]
