"""The Python API, as far as it is not said by a case in ``tests/sql``."""

from __future__ import annotations

import datetime as dt
import inspect
import threading
import time
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from millpond import App, Error, Table
from millpond.errors import (
    AlreadyExists,
    Closed,
    FileMissing,
    InUse,
    InvalidRecord,
    NotSupported,
    QueryFailed,
    SqlError,
    StateForeign,
    StateLocked,
    TimedOut,
    UnknownName,
)
from millpond.testing.crash import crash

ALL_TYPES = """
    id INT PRIMARY KEY, b BOOLEAN, tiny TINYINT, big BIGINT, f FLOAT, d DOUBLE, dec DECIMAL(10,2), s STRING,
    bin BINARY, day DATE, at TIMESTAMP, naive TIMESTAMP_NTZ, tags ARRAY<STRING>, m MAP<STRING, INT>,
    st STRUCT<a: INT, b: STRING>
"""
PLUS_TWO = dt.timezone(dt.timedelta(hours=2))

ACCEPTED = [
    ("b", True, True),
    ("tiny", -128, -128),
    ("big", 2**63 - 1, 2**63 - 1),
    ("f", 1, 1.0),
    ("f", 0.5, 0.5),
    ("d", 3, 3.0),
    ("d", 0.1, 0.1),
    ("dec", 7, Decimal("7.00")),
    ("dec", Decimal("1.5"), Decimal("1.50")),
    ("dec", "12345678.90", Decimal("12345678.90")),
    ("s", "text", "text"),
    ("s", "", ""),
    ("bin", b"\x00\xff", b"\x00\xff"),
    ("day", dt.date(2024, 2, 29), dt.date(2024, 2, 29)),
    ("day", "2024-02-29", dt.date(2024, 2, 29)),
    ("at", dt.datetime(2024, 3, 1, 10, tzinfo=PLUS_TWO), dt.datetime(2024, 3, 1, 8, tzinfo=dt.UTC)),
    ("at", "2024-03-01T10:00:00+02:00", dt.datetime(2024, 3, 1, 8, tzinfo=dt.UTC)),
    ("at", "2024-03-01T10:00:00Z", dt.datetime(2024, 3, 1, 10, tzinfo=dt.UTC)),
    ("at", dt.datetime(2024, 3, 1, 10), dt.datetime(2024, 3, 1, 10, tzinfo=dt.UTC)),
    ("naive", dt.datetime(2024, 3, 1, 10, 0, 0, 123456), dt.datetime(2024, 3, 1, 10, 0, 0, 123456)),
    ("naive", "2024-03-01 10:00:00", dt.datetime(2024, 3, 1, 10)),
    ("tags", ["a", None], ["a", None]),
    ("tags", [], []),
    ("m", {"x": 1, "y": None}, {"x": 1, "y": None}),
    ("st", {"a": 1, "b": "x"}, {"a": 1, "b": "x"}),
    ("st", {"A": 1}, {"a": 1, "b": None}),
    ("s", None, None),
]
REFUSED = [
    ("b", "true"),
    ("b", 1),
    ("tiny", 128),
    ("tiny", 1.5),
    ("big", 2**63),
    ("big", "12"),
    ("big", True),
    ("d", "1.5"),
    ("d", True),
    ("dec", 1.5),
    ("dec", "1.234"),
    ("dec", Decimal("123456789.00")),
    ("dec", "abc"),
    ("s", 5),
    ("s", b"x"),
    ("day", "2024-02-30"),
    ("day", 20240229),
    ("day", dt.datetime(2024, 2, 29, 12)),
    ("at", "yesterday"),
    ("at", 1709287200),
    ("naive", dt.datetime(2024, 3, 1, 10, tzinfo=PLUS_TWO)),
    ("tags", "a"),
    ("tags", [1]),
    ("m", {"x": "1"}),
    ("st", {"a": 1, "c": 2}),
    ("st", [1, "x"]),
    ("unknown", 1),
]


@pytest.fixture(scope="module")
def typed() -> Iterator[App]:
    with App(
        f"CREATE TABLE t ({ALL_TYPES}); CREATE STREAM s ({ALL_TYPES.replace('PRIMARY KEY', '')})"
    ) as app:
        yield app


@pytest.mark.parametrize(("field", "given", "kept"), ACCEPTED)
def test_a_value_that_is_accepted(typed: App, field: str, given: Any, kept: Any) -> None:
    table = typed.table("t")
    table.insert({"id": 1, field.upper(): given})
    record = table.get_record(1)
    assert record is not None
    assert record[field] == kept
    assert type(record[field]) is type(kept)
    assert {v for k, v in record.items() if k not in ("id", field)} == {None}
    assert typed.send("s", {"id": 1, field: given}) == 1


@pytest.mark.parametrize(("field", "given"), REFUSED)
def test_a_value_that_is_refused_names_row_and_field_and_nothing_is_kept(
    typed: App, field: str, given: Any
) -> None:
    table = typed.table("t")
    before, end = table.all_rows(), typed._runtime.journal.stream_end("s")
    records = [{"id": 77}, {"id": 78, field: given}]
    for call in (lambda: table.bulk_insert(records), lambda: typed.send("s", records)):
        with pytest.raises(InvalidRecord) as caught:
            call()
        assert caught.value.row == 1
        assert caught.value.field is not None and caught.value.field.startswith(field)
        assert f'"{caught.value.field}"' in caught.value.message
    assert table.all_rows() == before
    assert typed._runtime.journal.stream_end("s") == end


def test_rows_that_are_not_records(typed: App) -> None:
    with pytest.raises(InvalidRecord, match="row 0"):
        typed.send("s", [("a", 1)])  # type: ignore[list-item]
    with pytest.raises(InvalidRecord, match="twice"):
        typed.send("s", {"id": 1, "ID": 2})
    with pytest.raises(InvalidRecord, match='"id"'):
        typed.table("t").insert({"s": "no key"})
    assert typed.send("s", []) == 0
    assert typed.table("t").bulk_insert([]) == 0


def test_arrow_goes_in_and_comes_out() -> None:
    with App("CREATE TABLE t (id BIGINT PRIMARY KEY, x DECIMAL(5,1)); CREATE STREAM s (id BIGINT)") as app:
        rows = pa.table({"X": pa.array([Decimal("1.5"), None]), "id": pa.array([1, 2], pa.int32())})
        assert app.table("t").bulk_insert(rows) == 2
        assert app.table("t").to_arrow().sort_by("id").to_pylist() == [
            {"id": 1, "x": Decimal("1.5")},
            {"id": 2, "x": None},
        ]
        assert app.send("s", pa.table({"id": [1, 2, 3]})) == 3
        with pytest.raises(InvalidRecord, match='"y"'):
            app.send("s", pa.table({"y": [1]}))


def test_send_needs_a_stream_that_takes_rows(tmp_path: Path) -> None:
    (tmp_path / "f.csv").write_text("id\n1\n")
    with App("CREATE TABLE t (id INT); CREATE STREAM trades (id INT)") as app:
        with pytest.raises(UnknownName, match='"trade"') as caught:
            app.send("trade", {"id": 1})
        assert caught.value.hint == 'did you mean "trades"?'
        with pytest.raises(UnknownName, match='"t"'):
            app.send("t", {"id": 1})
        with pytest.raises(UnknownName, match='"trades"'):
            app.table("trades")


# parameters


@pytest.fixture(scope="module")
def numbers() -> Iterator[App]:
    with App("CREATE TABLE t (id INT PRIMARY KEY, name STRING, x DECIMAL(10,2), at TIMESTAMP)") as app:
        app.table("t").bulk_insert(
            [
                {"id": 1, "name": "one", "x": "1.50", "at": "2024-03-01T00:00:00Z"},
                {"id": 2, "name": "o'two", "x": "2.00", "at": "2024-03-02T00:00:00Z"},
                {"id": 3},
            ]
        )
        yield app


@pytest.mark.parametrize(
    ("condition", "params", "ids"),
    [
        ("id = ?", [2], [2]),
        ("id IN (?, ?)", [1, 3], [1, 3]),
        ("id > :low AND id < :high", {"low": 1, "high": 3}, [2]),
        ("id = :n OR id = :N + 1", {"n": 1}, [1, 2]),
        ("name = ?", ["o'two"], [2]),
        ("name = ?", ["' OR 1 = 1 --"], []),
        ("x = ?", [Decimal("1.5")], [1]),
        ("x > ?", [1.75], [2]),
        ("at >= ?", [dt.datetime(2024, 3, 2, 1, tzinfo=PLUS_TWO)], [2]),
        ("CAST(at AS DATE) = ?", [dt.date(2024, 3, 1)], [1]),
        ("name IS NULL AND ?", [True], [3]),
        ("coalesce(name, ?) = 'x'", ["x"], [3]),
        ("x = ?", [None], []),
        ("id = ? - 1", [3], [2]),
        ("id > ?", [-1], [1, 2, 3]),
        ("id < ?", [2**40], [1, 2, 3]),
        ("name = '?' OR name = ':x' OR id = 1 -- ?", None, [1]),
    ],
)
def test_parameters(numbers: App, condition: str, params: Any, ids: list[int]) -> None:
    found = numbers.sql(f"SELECT id FROM t WHERE {condition}\nORDER BY id", params).rows()
    assert [r["id"] for r in found] == ids


@pytest.mark.parametrize(
    ("text", "params", "message"),
    [
        ("SELECT ?", [], "more"),
        ("SELECT ?", [1, 2], "2 values"),
        ("SELECT :a AS a", {"b": 1}, ":a"),
        ("SELECT :a AS a", {"a": 1, "b": 2}, '"b"'),
        ("SELECT 1 AS a", [1], "1 values"),
    ],
)
def test_parameters_that_do_not_fit(numbers: App, text: str, params: Any, message: str) -> None:
    with pytest.raises(SqlError, match=message):
        numbers.sql(text, params)


def test_a_parameter_of_a_type_without_a_literal(numbers: App) -> None:
    with pytest.raises(InvalidRecord, match="object"):
        numbers.sql("SELECT ? AS x", [object()])


def test_parameters_over_several_statements() -> None:
    with App("CREATE TABLE t (id INT, name STRING)") as app:
        app.sql("INSERT INTO t VALUES (?, ?); INSERT INTO t VALUES (?, ?)", [1, "a", 2, "b"])
        assert app.sql("SELECT * FROM t ORDER BY id").rows() == [
            {"id": 1, "name": "a"},
            {"id": 2, "name": "b"},
        ]


# results


def test_results_as_rows_arrow_and_pandas(numbers: App) -> None:
    result = numbers.sql("SELECT id, x, at FROM t WHERE id < 3 ORDER BY id")
    assert result.columns == ["id", "x", "at"]
    assert len(result) == 2
    assert list(result) == result.rows()
    assert result.rows()[0] == {"id": 1, "x": Decimal("1.50"), "at": dt.datetime(2024, 3, 1, tzinfo=dt.UTC)}
    schema = result.to_arrow().schema
    assert schema.types == [pa.int32(), pa.decimal128(10, 2), pa.timestamp("us", "UTC")]
    frame = result.to_pandas()
    assert list(frame["id"]) == [1, 2]
    assert result._repr_html_().count("<tr>") == 3
    assert numbers.table("t")._repr_html_().count("<tr>") == len(numbers.table("t")) + 1
    assert numbers.sql("EXPLAIN SELECT 1 < 2")._repr_html_().startswith("<pre>SELECT: answered once\n")
    assert numbers.sql("EXPLAIN FORMAT SVG SELECT 1")._repr_html_().startswith("<svg ")


def test_equal_column_names_keep_their_place(numbers: App) -> None:
    result = numbers.sql(
        "SELECT a.id, b.id, 5 AS id, a.name FROM t a JOIN t b ON b.id = a.id + 1 WHERE a.id = 1"
    )
    assert result.to_arrow().column_names == ["id", "id", "id", "name"]
    assert result.rows() == [{"id": 1, "id_1": 2, "id_2": 5, "name": "one"}]


def test_the_answer_is_the_last_statements(numbers: App) -> None:
    assert numbers.sql("SELECT 1 AS a; SELECT 2 AS b").rows() == [{"b": 2}]
    assert numbers.sql("").rows() == []


def test_a_table_as_an_object(numbers: App) -> None:
    table = numbers.table("T")
    assert (table.name, len(table)) == ("t", 3)
    assert table.get_record(1) == {
        "id": 1,
        "name": "one",
        "x": Decimal("1.50"),
        "at": dt.datetime(2024, 3, 1, tzinfo=dt.UTC),
    }
    assert table.get_record(99) is None
    assert table.contains(1) and not table.contains(99)
    assert table.contains(name="one") and not table.contains(name="nine")
    assert [r["id"] for r in table.find("x > 1.6 OR name IS NULL")] == [2, 3]
    assert [r["id"] for r in table.find(name="one")] == [1]
    with pytest.raises(Error, match='"nme"') as caught:
        table.find("nme = 'x'")
    assert caught.value.hint == 'did you mean "name"?'


def test_a_key_of_two_columns() -> None:
    with App("CREATE TABLE t (a INT, b STRING, x INT, PRIMARY KEY (a, b))") as app:
        table = app.table("t")
        table.bulk_insert(
            [{"a": 1, "b": "x", "x": 1}, {"a": 1, "b": "y", "x": 2}, {"a": 1, "b": "x", "x": 3}]
        )
        assert table.get_record((1, "x")) == {"a": 1, "b": "x", "x": 3}
        assert len(table) == 2
        with pytest.raises(InvalidRecord, match="1 values"):
            table.get_record(1)


# statements and their errors


def test_all_statements_are_checked_before_the_first_runs() -> None:
    with App() as app:
        with pytest.raises(UnknownName) as caught:
            app.sql("CREATE TABLE t (id INT);\nSELECT nope FROM t")
        assert (caught.value.code, caught.value.line, caught.value.column) == ("unknown_name", 2, 8)
        assert app.tables() == []
        app.sql("CREATE TABLE t (id INT)")
        assert app.tables() == ["t"]


def test_a_path_a_text_and_a_missing_file(tmp_path: Path) -> None:
    file = tmp_path / "app.sql"
    file.write_text("CREATE TABLE t (id INT)")
    for source in (file, str(file), "CREATE TABLE t (id INT)"):
        with App(source) as app:
            assert app.tables() == ["t"]
    with pytest.raises(FileMissing, match=r"nowhere\.sql"):
        App(tmp_path / "nowhere.sql")


def test_a_failed_start_leaves_the_state_unlocked(tmp_state: Path) -> None:
    with pytest.raises(UnknownName):
        App("SELECT * FROM nothing", state=tmp_state)
    App("CREATE TABLE t (id INT)", state=tmp_state).close()


def test_use_after_close() -> None:
    app = App("CREATE TABLE t (id INT); CREATE STREAM s (id INT)")
    table = app.table("t")
    app.close()
    app.close()
    for call in (
        lambda: app.sql("SELECT 1 AS a"),
        lambda: app.send("s", {"id": 1}),
        lambda: app.drain(),
        lambda: app.table("t"),
        lambda: table.insert({"id": 1}),
    ):
        with pytest.raises(Closed):
            call()
    assert not app.ready()
    assert "closed" in repr(app)


def test_a_query_that_runs_does_not_keep_an_app_open(tmp_state: Path) -> None:
    """It ends by itself; the app is closed, with its journal, and its directory is free."""
    begun, over = threading.Event(), threading.Event()
    with App("CREATE TABLE t (id BIGINT)", state=tmp_state) as app:

        @app.function
        def held(x: int) -> int:
            begun.set()
            over.wait(60)
            return x

        app.sql("INSERT INTO t VALUES (7)")
        thread = threading.Thread(target=lambda: app.sql("SELECT held(id) AS x FROM t").rows())
        thread.start()
        assert begun.wait(60)
    with App(state=tmp_state) as app:
        assert len(app.table("t")) == 1
    over.set()
    thread.join()


@pytest.mark.slow
def test_three_hundred_apps_one_after_another() -> None:
    before = threading.active_count()
    for i in range(300):
        with App("CREATE TABLE t (id INT PRIMARY KEY)") as app:
            app.table("t").insert({"id": i})
            assert len(app.table("t")) == 1
    assert threading.active_count() <= before + 5


def test_two_apps_share_nothing() -> None:
    with App("CREATE TABLE t (id INT)") as one, App("CREATE TABLE t (name STRING)") as two:
        one.sql("INSERT INTO t VALUES (1)")
        assert two.sql("SELECT * FROM t").rows() == []


def test_threads_share_an_app() -> None:
    with App("CREATE TABLE t (id INT PRIMARY KEY, x INT)") as app:

        def work(start: int) -> None:
            for i in range(start, start + 50):
                app.sql("INSERT INTO t VALUES (?, ?)", [i, 1])
                app.sql("SELECT SUM(x) AS s FROM t").rows()

        threads = [threading.Thread(target=work, args=(n * 50,)) for n in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert app.sql("SELECT COUNT(*) AS n, SUM(x) AS s FROM t").rows() == [{"n": 200, "s": 200}]


# the state directory


def test_two_apps_on_one_state(tmp_state: Path) -> None:
    with App("CREATE TABLE t (id INT)", state=tmp_state):
        with pytest.raises(StateLocked, match="process") as caught:
            App("CREATE TABLE t (id INT)", state=tmp_state)
        assert caught.value.hint
    App(state=tmp_state).close()


FILE = """
CREATE TABLE t (id INT);
CREATE TABLE keyed (id INT PRIMARY KEY, x DECIMAL(10,2));
CREATE STREAM s (id INT);
INSERT INTO t VALUES (1);
INSERT INTO t VALUES (1);
INSERT INTO keyed SELECT id, 1.5 FROM t;
"""


@pytest.mark.parametrize("end", [App.close, crash])
def test_a_restart_with_the_same_file(tmp_state: Path, end: Callable[[App], None]) -> None:
    for again in range(3):
        app = App(FILE, state=tmp_state)
        assert app.sql("SELECT COUNT(*) AS n FROM t").rows() == [{"n": 2 + again}]
        assert app.sql("SELECT * FROM keyed").rows()[0] == {"id": 1, "x": Decimal("1.50")}
        assert app._runtime.journal.stream_end("s") == again
        app.sql("INSERT INTO t VALUES (7)")
        app.send("s", {"id": 7})
        app.table("keyed").insert({"id": again + 10, "x": 0})
        end(app)
    with App(state=tmp_state) as app:
        assert sorted(app.tables()) == ["keyed", "t"]
        assert len(app.table("t")) == 5
        assert len(app.table("keyed")) == 4


def test_laid_out_otherwise_it_is_the_same_file(tmp_state: Path) -> None:
    App(FILE, state=tmp_state).close()
    with App(
        "-- new comment\n" + FILE.replace(", ", " ,\n  ").replace("INSERT", "insert"), state=tmp_state
    ) as app:
        assert len(app.table("t")) == 2


def test_a_changed_definition(tmp_state: Path) -> None:
    with App("CREATE TABLE t (id INT); CREATE TABLE u (id INT)", state=tmp_state) as app:
        app.sql("INSERT INTO t VALUES (1)")
    with pytest.raises(StateForeign, match='"t"') as caught:
        App("CREATE TABLE t (id DATE); CREATE TABLE u (id INT)", state=tmp_state)
    assert "wider" in (caught.value.hint or "")
    with App(
        "CREATE TABLE t (id INT); CREATE TABLE u (id INT); CREATE TABLE new (x INT)", state=tmp_state
    ) as app:
        assert len(app.tables()) == 3


def test_the_state_of_another_app(tmp_path: Path) -> None:
    state = tmp_path / "state"
    App("CREATE TABLE t (id INT)", state=state).close()
    with pytest.raises(StateForeign, match="another app"):
        App("CREATE TABLE other (id INT)", state=state)
    with App("CREATE TABLE t (id INT)", state=state) as app:
        assert app.tables() == ["t"]
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("hello")
    with pytest.raises(StateForeign, match="not empty"):
        App("CREATE TABLE t (id INT)", state=tmp_path / "mine")
    assert (tmp_path / "mine" / "letter.txt").read_text() == "hello"


def test_dropped_tables_stay_dropped(tmp_state: Path) -> None:
    with App("CREATE TABLE t (id INT); INSERT INTO t VALUES (1)", state=tmp_state) as app:
        app.sql("CREATE TABLE u (id INT); INSERT INTO u VALUES (1)")
        app.sql("DROP TABLE u; CREATE TABLE u (name STRING)")
        assert app.sql("SELECT * FROM u").rows() == []
        app.sql("DROP TABLE u")
    with App(state=tmp_state) as app:
        assert app.tables() == ["t"]
        assert app.sql("SELECT * FROM t").rows() == [{"id": 1}]


def test_a_name_that_is_taken() -> None:
    with App("CREATE TABLE t (id INT)") as app:
        with pytest.raises(AlreadyExists, match='Table "t" already exists'):
            app.sql("CREATE STREAM t (id INT)")
        assert app.sql("CREATE TABLE IF NOT EXISTS t (other INT)").count == 0


# with Spark


@pytest.mark.spark
def test_what_was_sent_before_and_after_the_query_began(spark: object) -> None:
    with App(f"CREATE STREAM s ({ALL_TYPES.replace('PRIMARY KEY', '')})") as app:
        for field, given, _ in ACCEPTED:
            app.send("s", {"id": 1, field: given})
        result = app.sql("SELECT * FROM s")
        app.drain()
        rows = result.rows()
        assert [r[field] for r, (field, _, _) in zip(rows, ACCEPTED, strict=True)] == [
            k for _, _, k in ACCEPTED
        ]
        app.send("s", [{"id": i} for i in range(100)])
        app.drain()
        assert [r["id"] for r in result.rows()[len(ACCEPTED) :]] == list(range(100))


@pytest.mark.spark
def test_drain_raises_the_error_of_a_failed_query_at_once(spark: object) -> None:
    with App(
        "CREATE STREAM s (x INT, y INT); CREATE TABLE good (x INT); INSERT INTO good SELECT x FROM s"
    ) as app:
        bad = app.sql("SELECT x / y AS q FROM s WITH ('on.error' = 'fail')")
        app.send("s", {"x": 4, "y": 2})
        app.drain()
        assert bad.rows() == [{"q": 2.0}]
        app.send("s", {"x": 1, "y": 0})
        began = time.monotonic()
        with pytest.raises(QueryFailed, match="ivision by zero"):
            app.drain(timeout=500)
        assert time.monotonic() - began < 500
        assert not app.ready()
        with pytest.raises(QueryFailed):
            app.drain()
        deadline = time.monotonic() + 60
        while len(app.table("good")) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert len(app.table("good")) == 2, "the other query goes on"


@pytest.mark.spark
def test_drain_that_runs_out_of_time_names_what_is_behind(spark: object) -> None:
    with App("CREATE STREAM s (x INT); CREATE TABLE t (x INT)") as app:
        app.sql("INSERT INTO t SELECT x FROM s")
        app.send("s", {"x": 1})
        with pytest.raises(TimedOut, match='"insert_t_') as caught:
            app.drain(timeout=0.0)
        assert caught.value.retryable
        app.drain()
        assert len(app.table("t")) == 1


@pytest.mark.spark
def test_dropping_what_runs(spark: object) -> None:
    with App("CREATE STREAM s (x INT); CREATE TABLE t (x INT); INSERT INTO t SELECT x FROM s") as app:
        for text in ("DROP STREAM s", "DROP TABLE t"):
            with pytest.raises(InUse, match="insert_t_"):
                app.sql(text)
        app.send("s", {"x": 1})
        app.drain()
        app.sql("DROP STREAM s CASCADE")
        assert app.sql("SHOW QUERIES").rows() == []
        assert len(app.table("t")) == 1
        app.sql("DROP TABLE t")


@pytest.mark.spark
def test_a_query_that_left_the_file_is_dropped(spark: object, tmp_state: Path) -> None:
    sql = "CREATE STREAM s (x INT); CREATE TABLE t (x INT);"
    with App(sql + "INSERT INTO t SELECT x FROM s", state=tmp_state) as app:
        app.send("s", {"x": 1})
        app.drain()
    with App(sql, state=tmp_state, upgrade=True) as app:
        app.send("s", {"x": 2})
        app.drain()
        assert app.sql("SELECT x FROM t").rows() == [{"x": 1}]


@pytest.mark.spark
@pytest.mark.parametrize("path", ["auto", "spark"])
def test_a_large_table_is_looked_up_and_seen_as_it_is(spark: object, path: Any) -> None:
    """More rows than are registered whole: a batch fetches those it needs, also after changes."""
    sql = """
        CREATE STREAM s (id BIGINT, g INT);
        CREATE TABLE big (id INT PRIMARY KEY, g INT, name STRING);
        CREATE TABLE groups (g INT PRIMARY KEY, label STRING);
        SELECT s.id, b.name FROM s LEFT JOIN big b ON s.id = b.id;
        SELECT s.id, b.name, x.label FROM s JOIN big b ON b.id = s.id JOIN groups x ON x.g = b.g;
        SELECT s.id FROM s WHERE EXISTS (SELECT 1 FROM big WHERE big.id = s.id AND big.g = s.g);
        SELECT s.id, (SELECT COUNT(*) FROM big WHERE big.g = s.g) AS n FROM s;
    """
    with App(sql, _path=path) as app:
        size = 50_000
        ids = pa.array(range(size), pa.int32())
        names = pa.array([f"n{i}" for i in range(size)])
        groups = pa.array([i % 1000 for i in range(size)], pa.int32())
        app.table("big").bulk_insert(pa.table({"id": ids, "g": groups, "name": names}))
        app.table("groups").bulk_insert([{"g": g, "label": f"g{g}"} for g in range(1000)])
        left, inner, exists, count = app._runtime.emitted.results.values()

        def ask(*rows: tuple[int, int]) -> list[list[dict[str, Any]]]:
            before = [len(r) for r in (left, inner, exists, count)]
            app.send("s", [{"id": i, "g": g} for i, g in rows])
            app.drain()
            return [r.rows()[n:] for r, n in zip((left, inner, exists, count), before, strict=True)]

        first = ask((7, 7), (49_999, 1), (50_000, 0), (7, 8))
        assert first[0] == [
            {"id": 7, "name": "n7"},
            {"id": 49_999, "name": "n49999"},
            {"id": 50_000, "name": None},
            {"id": 7, "name": "n7"},
        ]
        assert first[1] == [
            {"id": 7, "name": "n7", "label": "g7"},
            {"id": 49_999, "name": "n49999", "label": "g999"},
            {"id": 7, "name": "n7", "label": "g7"},
        ]
        assert first[2] == [{"id": 7}]
        assert [r["n"] for r in first[3]] == [50, 50, 50, 50]

        app.table("big").bulk_insert(
            [{"id": 7, "g": 8, "name": "new"}, {"id": 50_000, "g": 0, "name": "last"}]
        )
        app.table("groups").insert({"g": 8, "label": "eight"})
        second = ask((7, 7), (50_000, 0), (7, 8))
        assert second[0] == [
            {"id": 7, "name": "new"},
            {"id": 50_000, "name": "last"},
            {"id": 7, "name": "new"},
        ]
        assert [r["label"] for r in second[1]] == ["eight", "g0", "eight"]
        assert second[2] == [{"id": 50_000}, {"id": 7}]
        assert [r["n"] for r in second[3]] == [49, 51, 51]


def test_a_table_of_a_program_becomes_one_of_the_app(tmp_path: Path) -> None:
    users = Table({"id": "INT", "name": "STRING"}, key="id", options={"on.conflict": "error"})
    users.insert({"id": 1, "name": "Ann"})
    with App("CREATE TABLE log (line STRING)", state=tmp_path / "state") as app:
        app.attach("users", users)
        app.sql("CREATE TABLE names AS SELECT name FROM users")
        users.insert({"id": 2, "name": "Bo"})
        app.sql("UPDATE users SET name = 'Ada' WHERE id = 1")
        app.drain()
        assert users.get_record(1) == {"id": 1, "name": "Ada"} and len(app.table("users")) == 2
        assert {r["name"] for r in app.table("names")} == {"Ada", "Bo"}
        assert app.tables() == ["log", "users", "names"]
        with pytest.raises(Error, match=r"taken|exists|already"):
            users.insert({"id": 2, "name": "again"})
        with pytest.raises(NotSupported, match="one of an app already"):
            app.attach("others", users)
        with pytest.raises(AlreadyExists, match="with other columns"):
            app.attach("log", Table({"id": "INT"}))
        with pytest.raises(Error, match="name"):
            app.attach(" ", Table({"id": "INT"}))
    # The rows are there after a restart; a table that is attached anew puts its own in their place.
    with App("CREATE TABLE log (line STRING)", state=tmp_path / "state") as app:
        assert len(app.table("users")) == 2
        fresh = Table({"id": "INT", "name": "STRING"}, key="id", options={"on.conflict": "error"})
        fresh.insert({"id": 3, "name": "Cy"})
        app.attach("users", fresh)
        app.drain()
        assert [r["name"] for r in app.table("names")] == ["Cy"]


def test_help_shows_what_is_for_programs() -> None:
    assert list(inspect.signature(App).parameters) == [
        "path_or_sql",
        "state",
        "master",
        "spark",
        "store",
        "engine",
        "functions",
        "compact_after",
        "upgrade",
        "shadow",
    ]
    for name in ("sql", "table", "attach", "send", "drain", "ready", "tables", "serve", "function", "close"):
        assert inspect.getdoc(getattr(App, name)), name


@pytest.mark.parametrize(
    ("query", "message", "hint"),
    [
        ("url_decode('%')", "cannot be decoded", "values"),
        ("parse_url('%', 'HOST')", "url is invalid: %", "TRY_PARSE_URL"),
        ("make_timestamp(2020, 13, 1, 1, 1, 1)", "(valid values 1 - 12): 13.", "values"),
        ("bit_get(1, 100)", "got 100", "values"),
        ("format_string('%d', 'a')", "a value is not one that the function takes", "values"),
        ("sequence(1, 5, 0)", "Illegal sequence boundaries: 1 to 5 by 0", "values"),
        ("to_date('a', 'yyyy-MM')", "'a' could not be parsed", "TRY_TO_DATE"),
    ],
)
def test_values_that_a_function_of_spark_does_not_take(
    spark: object, query: str, message: str, hint: str
) -> None:
    """Spark's words for a value, without those about its plans, classes and configuration."""
    with App() as app, pytest.raises(QueryFailed) as raised:
        app.sql(f"SELECT {query} AS x").rows()
    said = str(raised.value)
    assert message in said and hint in (raised.value.hint or "")
    assert not any(word in said for word in ("no plan", "SQLSTATE", "spark.sql", "org.apache", "requirement"))
