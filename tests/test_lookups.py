"""Lookups past the parser: the same answers as the long way, plans that are shared, and when they are forgotten."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond import App, Error, Table
from millpond.errors import Closed, UnknownName
from millpond.query.plans import Asked, Plan, Plans, Way
from millpond.query.result import LookupResult
from millpond.sql.template import template_of

TABLE = """
CREATE TABLE t (id INT, big BIGINT, name STRING, price DECIMAL(10,2), wide DECIMAL(38,4), ratio DOUBLE, small FLOAT,
                day DATE, at TIMESTAMP, local TIMESTAMP_NTZ, active BOOLEAN, tags ARRAY<STRING>{key})
"""
TEXTS = ["", "a", "A", "it's", "'", "''", "ä", "a b", "--", "5", "2024-01-31", "x" * 30]
DAYS = [date(1969, 12, 31), date(2024, 1, 31), date(2024, 2, 1)]
TIMES = [datetime(2024, 1, 31, 12, tzinfo=UTC), datetime(1969, 12, 31, 23, 59, 59, 1, tzinfo=UTC)]


def rows() -> list[dict[str, Any]]:
    """Rows in which every value meets every other now and then, with NULLs in every column but id."""
    found = []
    for i in range(120):
        row = {
            "id": i,
            "big": (None, 1, 5, 2**62, -3)[i % 5],
            "name": (None, *TEXTS)[i % 13],
            "price": (None, Decimal("1.50"), Decimal("-2.25"), Decimal("5"), Decimal("0.01"))[i % 5],
            "wide": (None, Decimal("5"), Decimal("1.5"), Decimal(10) ** 30)[i % 4],
            "ratio": (None, 0.5, -0.0, float("nan"), 5.0, 1e300)[i % 6],
            "small": (None, 0.5, 5.0, 0.10000000149011612)[i % 4],
            "day": (None, *DAYS)[i % 4],
            "at": (None, *TIMES)[i % 3],
            "local": None if i % 4 == 0 else TIMES[i % 2].replace(tzinfo=None),
            "active": (None, True, False)[i % 3],
            "tags": (None, ["a"], [])[i % 3],
        }
        found.append(row)
    return found


@pytest.fixture(scope="module", params=["", ", PRIMARY KEY (id)", ", PRIMARY KEY (name, id)"])
def apps(request: pytest.FixtureRequest) -> Iterator[tuple[App, App]]:
    """The same rows, some of them changed and deleted, behind the lookup path and behind DuckDB."""
    sql = TABLE.format(key=request.param)
    with App(sql) as quick, App(sql, _path="duckdb") as slow:
        for app in (quick, slow):
            kept = [r for r in rows() if "name" not in request.param or r["name"] is not None]
            app.table("t").bulk_insert(kept)
            app.sql("DELETE FROM t WHERE id % 10 = 7")
            app.sql("UPDATE t SET price = price + 1 WHERE id % 10 = 3")
        yield quick, slow


def literal(value: Any) -> str:
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, date) and not isinstance(value, datetime):
        return f"'{value}'"
    return f"{value:f}" if isinstance(value, Decimal) else str(value)


NUMBERS = st.sampled_from(
    [0, 1, 3, 5, -3, 5000000000, 2**62, Decimal("1.50"), Decimal("-1.25"), Decimal("5.0")]
)
TEXT = st.sampled_from(TEXTS)
DAY = st.sampled_from(DAYS)
COLUMNS: dict[str, st.SearchStrategy[Any]] = {
    "id": st.one_of(st.integers(-1, 60), NUMBERS),
    "BIG": NUMBERS,
    "Name": TEXT,
    "price": NUMBERS,
    "wide": NUMBERS,
    "ratio": st.one_of(NUMBERS, st.just(Decimal("0.5"))),
    "small": st.one_of(NUMBERS, st.sampled_from([Decimal("0.5"), Decimal("0.1")])),
    "day": DAY,
}
TYPED: dict[str, st.SearchStrategy[Any]] = {
    **COLUMNS,
    "ratio": st.sampled_from([0.5, 5, 0.0, -0.0]),
    "at": st.sampled_from(TIMES),
    "local": st.sampled_from([t.replace(tzinfo=None) for t in TIMES]),
}


@st.composite
def equality(draw: st.DrawFn, columns: dict[str, st.SearchStrategy[Any]] = COLUMNS) -> tuple[str, list[Any]]:
    column = draw(st.sampled_from(sorted(columns)))
    return f"{column} = ?", [draw(columns[column])]


@st.composite
def among(draw: st.DrawFn, columns: dict[str, st.SearchStrategy[Any]] = COLUMNS) -> tuple[str, list[Any]]:
    column = draw(st.sampled_from(sorted(columns)))
    values = draw(st.lists(columns[column], min_size=1, max_size=4))
    if draw(st.booleans()):
        return f"{column} IN ({', '.join('?' * len(values))})", values
    return f"({' OR '.join(f'{column} = ?' for _ in values)})", values


@st.composite
def simple(draw: st.DrawFn, columns: dict[str, st.SearchStrategy[Any]] = COLUMNS) -> tuple[str, list[Any]]:
    column = draw(st.sampled_from(sorted(columns)))
    values = columns[column]
    form = draw(st.sampled_from(["compare", "turned", "between", "in", "null", "flag"]))
    word = draw(st.sampled_from(["", "NOT "]))
    if form == "null":
        return f"{column} IS {word}NULL", []
    if form == "flag":
        return (
            f"{word}{draw(st.sampled_from(['active', 'ACTIVE = true', 'active <> TRUE', '(active = FALSE)']))}",
            [],
        )
    if form == "between":
        return f"{column} {word}BETWEEN ? AND ?", [draw(values), draw(values)]
    if form == "in":
        listed = draw(st.lists(values, min_size=1, max_size=3))
        return f"{column} {word}IN ({', '.join('?' * len(listed))})", listed
    operator = draw(st.sampled_from(["=", "<>", "!=", "<", "<=", ">", ">="]))
    if form == "turned":
        return f"{word}(? {operator} {column})", [draw(values)]
    return f"{word}{column} {operator} ?", [draw(values)]


@st.composite
def condition(draw: st.DrawFn, columns: dict[str, st.SearchStrategy[Any]] = COLUMNS) -> tuple[str, list[Any]]:
    text, values = draw(st.one_of(equality(columns), among(columns)))
    for more, given_ in draw(st.lists(simple(columns), max_size=2)):
        text, values = f"{text} {draw(st.sampled_from(['AND', 'and']))} {more}", values + given_
    if draw(st.booleans()):
        (a, one), (b, two) = draw(simple(columns)), draw(simple(columns))
        text, values = f"{text} AND ({a} OR {b})", values + one + two
    return text, values


OUTPUTS = st.sampled_from(
    [
        "*",
        "id, Name, id",
        "price AS p, tags, at, local",
        "COUNT(*)",
        "count(name), SUM(id), MIN(name), MAX(day), AVG(id)",
        "SUM(price) AS s, AVG(price), MAX(wide), MIN(at), SUM(wide), MIN(price)",
        "sum(ratio), max(small), avg(small)",
        "COUNT(*), COUNT(active)",
        "id + 1 AS a, -big AS b, big * 3 AS c, price AS d",
        "price * 2 AS a, price - wide AS b, wide + id AS c, -price AS d",
        "ratio * 2 AS a, ratio - price AS b, -ratio AS c, ratio + big AS d",
        "Name || '!' AS a, 'x' AS b, 7 AS c, NULL AS d, true AS e, 1.5 AS f, day AS g",
        "id + 1 AS a, id + 1 AS A",
        "5000000000 AS a, id + 5000000000 AS b",
        "id * 1.25 AS a, price * 0.5 AS b",
    ]
)


def same(apps: tuple[App, App], text: str, params: list[Any] | None) -> None:
    answers: list[Any] = []
    for app in apps:
        try:
            result = app.sql(text, params)
        except Error as error:
            answers.append(error.code)
            continue
        table = result.to_arrow()
        again = sorted(map(repr, result.rows()))
        answers.append((table.schema, again, sorted(map(repr, table.to_pylist()))))
    assert answers[0] == answers[1], text


def check_literals(apps: tuple[App, App], outputs: str, asked: tuple[str, list[Any]]) -> None:
    where, values = asked
    for value in values:
        where = where.replace("?", literal(value), 1)
    same(apps, f"SELECT {outputs} FROM t WHERE {where}", None)


def check_parameters(apps: tuple[App, App], outputs: str, asked: tuple[str, list[Any]]) -> None:
    where, values = asked
    same(apps, f"SELECT {outputs} FROM t x WHERE {where}", values)


LITERALS = given(outputs=OUTPUTS, asked=condition())
PARAMETERS = given(outputs=OUTPUTS, asked=condition(TYPED))
test_literals = settings(max_examples=25, deadline=None)(LITERALS(check_literals))
test_parameters = settings(max_examples=25, deadline=None)(PARAMETERS(check_parameters))
test_many_literals = pytest.mark.chaos(settings(max_examples=2000, deadline=None)(LITERALS(check_literals)))
test_many_parameters = pytest.mark.chaos(
    settings(max_examples=2000, deadline=None)(PARAMETERS(check_parameters))
)


@pytest.mark.parametrize(
    "where",
    [
        "name = 'it''s'",
        "name = 'it\\'s'",
        'name = "it\'s"',
        "name = 'a' -- and 'b'",
        "name = 'a' /* 'b' */",
        "`name` = 'a'",
        "T.NAME='a'",
        "name = 'a' AND name = 'b'",
        "name = NULL",
        "id = '5'",
        "name = 5",
        "id = 5L",
        "id = 5.0",
        "id = 05",
        "id = -(-5)",
        "id = 5e0",
        "id = 99999999999999999999",
        "big = 4611686018427387904",
        "day = DATE '2024-01-31'",
        "day = '2024-1-31'",
        "day = 'no day'",
        "at = '2024-01-31 12:00:00'",
        "at = TIMESTAMP '2024-01-31 12:00:00'",
        "name = 'a' OR id = 5",
        "id = 5 AND missing = 6",
        "id = 5 AND tags[0] = 'a'",
        "name = lower('A')",
        "id = 5 AND price * 2 > 3",
        "id = 5 LIMIT 1",
        "id = 5 LIMIT 0",
        "name = 'a' LIMIT 0",
        "name = 'a' LIMIT 200",
        "name = 'a' ORDER BY id LIMIT 2",
        "id IN (5, 6, 5) LIMIT 7",
        "id = 5 ORDER BY id, name DESC LIMIT 3",
        "id = 5 ORDER BY 1",
        "id = 5 ORDER BY missing",
        "id IN (5, NULL)",
        "id IN (5, '6')",
        "id = 5 OR id = 6 OR id IN (8, 9)",
        "id = 5 OR big = 1",
        "NOT (id = 5 OR id = 6)",
        "id = 5 ORDER BY id",
        "id = 5 GROUP BY id",
        "id = 5;",
        "id = 5 AND",
        "id = 5 AND name LIKE 'a%'",
        "id = (SELECT MAX(id) FROM t)",
        "wide = 1000000000000000000000000000000",
        "wide = 5",
        "small = 0.1",
        "ratio = 16777217 AND small < 16777217",
    ],
)
@pytest.mark.parametrize("apps", [", PRIMARY KEY (id)"], indirect=True)
def test_forms(apps: tuple[App, App], where: str) -> None:
    for _ in range(2):
        same(apps, f"SELECT id FROM t WHERE {where}", None)


@pytest.mark.parametrize(
    "value", [None, True, "5", 5, 5.0, Decimal(5), 2**70, float("nan"), date(2024, 1, 31)]
)
@pytest.mark.parametrize("column", ["id", "name", "price", "ratio", "active", "day"])
def test_types_of_parameters(apps: tuple[App, App], column: str, value: Any) -> None:
    for _ in range(2):
        same(apps, f"SELECT id FROM t WHERE {column} = ?", [value])
        same(apps, f"SELECT id FROM t WHERE id = 5 AND {column} = ?", [value])


def test_statements_that_differ_in_literals_share_a_plan() -> None:
    with App("CREATE TABLE u (id INT PRIMARY KEY, name STRING, tier STRING)") as app:
        users = app.table("u")
        users.bulk_insert([{"id": i, "name": f"n{i}", "tier": "AB"[i % 2]} for i in range(100)])
        for i in range(50):
            assert app.sql(f"SELECT name FROM u WHERE id = {i}").rows() == [{"name": f"n{i}"}]
            assert app.sql("SELECT name FROM u WHERE id = ?", [i]).rows() == [{"name": f"n{i}"}]
            assert app.sql("SELECT name FROM u WHERE id = :id", {"ID": i}).rows() == [{"name": f"n{i}"}]
            assert app.sql(f"SELECT COUNT(*) AS n FROM u WHERE tier = 'A' AND id < {i}").rows() == [
                {"n": (i + 1) // 2}
            ]
            assert app.sql(f"SELECT id FROM u WHERE tier = 'A' AND name = 'n{i}'").rows() == [{"id": i}] * (
                1 - i % 2
            )
        stats = users.get_stats()
        assert (stats.query_cache_misses, stats.query_cache_hits) == (3, 250)
        assert stats.lookups == 250
        assert isinstance(app.sql("SELECT name FROM u WHERE id = 7"), LookupResult)


def test_the_statistics_of_a_table() -> None:
    with App("CREATE TABLE u (id INT PRIMARY KEY, name STRING)") as app:
        app.sql("INSERT INTO u VALUES (1, 'one'), (2, 'two')")
        for text in (
            "SELECT * FROM u WHERE id = 1",
            "SELECT * FROM u WHERE id = 2",
            "SELECT * FROM u WHERE id > 1",
        ):
            app.sql(text)
        stats = app.table("u").get_stats()
        assert (stats.lookups, stats.queries, stats.query_cache_hits, stats.query_cache_misses) == (
            2,
            1,
            2,
            1,
        )
        about = {r["property"]: r["value"] for r in app.sql("DESCRIBE EXTENDED u").rows()}
        assert (about["lookups"], about["query_cache_hits"], about["query_cache_misses"]) == ("2", "2", "1")


def test_the_methods_of_a_table_use_plans() -> None:
    table = Table({"id": "INT", "name": "STRING", "price": "DECIMAL(10,2)"}, key="id")
    table.bulk_insert([{"id": i, "name": f"n{i % 10}", "price": i} for i in range(100)])
    for i in range(10):
        assert len(table.find(f"name = 'n{i}' AND id >= 50")) == 5
        assert len(table.sql_filter(f"name = 'n{i}'")) == 10
        assert table.sql_exists(f"id = {i + 95}") == (i < 5)
        assert table.contains(f"id = {i + 95}") == (i < 5)
        assert table.sql_scalar("SUM(price)", f"name = 'n{i}'") == sum(range(i, 100, 10))
        assert table.sql_scalar("name", f"id = {i}") == f"n{i}"
        assert table.sql_scalar("name", f"id = {i + 100}") is None
        assert table.sql_column_values("id", f"name = 'n{i}' AND id < 20") == [i, i + 10]
    stats = table.get_stats()
    assert (stats.query_cache_misses, stats.query_cache_hits) == (6, 80)
    with pytest.raises(Error, match="2 values, and one is expected"):
        table.sql_scalar("name", "name = 'n1' AND id < 20")
    with pytest.raises(UnknownName):
        table.find("nam = 'x'")


def test_many_rows_of_a_key() -> None:
    table = Table({"id": "INT", "tier": "STRING", "price": "INT"}, key="id")
    table.bulk_insert([{"id": i, "tier": "AB"[i % 2], "price": i} for i in range(4000)])
    table.delete("id < 100")
    assert table.sql_scalar("COUNT(*)", "tier = 'A'") == 1950
    assert table.sql_scalar("SUM(price)", "tier = 'A'") == sum(range(100, 4000, 2))
    assert len(table.find("tier = 'B'")) == 1950
    assert len(table.find("tier = 'B' AND price > 3000")) == 500
    table.bulk_insert([{"id": i, "tier": "A"} for i in range(5000, 5010)])
    assert table.sql_scalar("COUNT(*)", "tier = 'A'") == 1960


def test_rows_that_come_one_by_one() -> None:
    """The index takes recent rows cell by cell, of any type."""
    with (
        App(TABLE.format(key=", PRIMARY KEY (id)")) as quick,
        App(TABLE.format(key=""), _path="duckdb") as slow,
    ):
        for row in rows():
            for app in (quick, slow):
                app.table("t").insert(row)
            for column in ("big", "name", "price", "wide", "ratio", "day", "at", "local"):
                value = row[column]
                if value is not None and value == value:
                    asked = f"SELECT COUNT(*) AS n FROM t WHERE {column} = ?"
                    found = quick.sql(asked, [value])
                    assert isinstance(found, LookupResult) or column == "wide"
                    if row["id"] % 20 == 0:
                        assert found.rows() == slow.sql(asked, [value]).rows()
            assert quick.table("t").contains(name=row["name"], day=row["day"])


def test_a_result_stays_as_it_was_found() -> None:
    with App("CREATE TABLE u (id INT PRIMARY KEY, name STRING)") as app:
        users = app.table("u")
        users.insert({"id": 1, "name": "before"})
        found = app.sql("SELECT name FROM u WHERE id = 1")
        users.update({"id": 1}, {"name": None})
        for _ in range(3):
            users.bulk_insert([{"id": i, "name": "x"} for i in range(2, 30_000)])
        assert found.rows() == found.to_arrow().to_pylist() == [{"name": "before"}]
        assert app.sql("SELECT name FROM u WHERE id = 1").rows() == [{"name": None}]


def test_a_change_of_the_catalog_forgets_the_plans() -> None:
    with App("CREATE TABLE u (id INT PRIMARY KEY, name STRING)") as app:
        app.sql("INSERT INTO u VALUES (1, 'one')")
        text = "SELECT * FROM u WHERE id = 1"
        assert app.sql(text).rows() == [{"id": 1, "name": "one"}]
        app.sql("DROP TABLE u")
        with pytest.raises(UnknownName):
            app.sql(text)
        app.sql("CREATE TABLE u (id STRING, n INT); INSERT INTO u VALUES ('1', 5)")
        assert app.sql("SELECT * FROM u WHERE id = '1'").rows() == [{"id": "1", "n": 5}]
        app.sql("DROP TABLE u; CREATE VIEW u AS SELECT '1' AS id")
        assert app.sql("SELECT * FROM u WHERE id = '1'").rows() == [{"id": "1"}]
    with pytest.raises(Closed):
        app.sql(text)


def test_transactions_see_their_own_changes() -> None:
    with App("CREATE TABLE u (id INT PRIMARY KEY, name STRING)") as app:
        app.sql("INSERT INTO u VALUES (1, 'one')")
        text = "SELECT name FROM u WHERE id = 1"
        assert app.sql(text).rows() == [{"name": "one"}]
        with app.begin_transaction() as tx:
            tx.sql("UPDATE u SET name = 'two' WHERE id = 1")
            assert tx.sql(text).rows() == [{"name": "two"}]
            assert tx.table("u").find("id = 1") == [{"id": 1, "name": "two"}]
            assert app.sql(text).rows() == [{"name": "one"}]
        assert app.sql(text).rows() == [{"name": "two"}]
        app.sql("BEGIN; UPDATE u SET name = 'three' WHERE id = 1; ROLLBACK")
        assert app.sql(text).rows() == [{"name": "two"}]


def test_explain_tells_a_lookup() -> None:
    with App("CREATE TABLE u (id INT PRIMARY KEY, name STRING, tier STRING)") as app:
        for text, who in (
            ("SELECT name FROM u WHERE tier = 'GOLD' AND id = 5", "lookup (table u by id)"),
            ("SELECT COUNT(*) FROM u WHERE tier = 'GOLD' AND name = 'x'", "lookup (table u by name, tier)"),
            ("SELECT name FROM u WHERE id > 5", "duckdb (in process)"),
        ):
            assert f"evaluated by: {who}" in app.sql(f"EXPLAIN {text}").to_arrow()["plan"].to_pylist()


def test_plans_are_limited_and_the_used_ones_stay() -> None:
    made: list[str] = []

    def compile(asked: Asked) -> Plan:
        text = asked.template.text
        made.append(text)
        return Plan(lambda *given: LookupResult(None, text, given), Way("lookup", "t"))  # type: ignore[arg-type]

    plans: Plans[LookupResult] = Plans(compile, size=10)
    for i in range(40):
        for text in ("SELECT a WHERE k = 5", f"SELECT a{i} WHERE k = 5"):
            assert plans.find(text) is not None
        assert len(plans) <= 10
    assert made.count("SELECT a WHERE k = :__v0") == 1
    assert len(made) == 41
    plans.find("SELECT a1 WHERE k = 5")
    assert len(made) == 42


def test_readers_and_a_writer() -> None:
    with App("CREATE TABLE u (id INT PRIMARY KEY, tier STRING, n INT)") as app:
        users = app.table("u")
        users.bulk_insert([{"id": i, "tier": "AB"[i % 2], "n": 1} for i in range(200)])
        wrong: list[Any] = []
        done = threading.Event()

        def read() -> None:
            while not done.is_set():
                total = sum(
                    app.sql(f"SELECT COUNT(*) AS c, SUM(n) AS s FROM u WHERE tier = '{t}'").rows()[0]["c"]
                    for t in "C"
                )
                both = app.sql("SELECT COUNT(*) AS c, SUM(n) AS s FROM u WHERE tier = 'A'").rows()[0]
                if total or both != {"c": 100, "s": 100}:
                    wrong.append((total, both))

        threads = [threading.Thread(target=read) for _ in range(3)]
        for thread in threads:
            thread.start()
        for turn in range(60):
            users.bulk_insert([{"id": i, "tier": "AB"[(i + turn) % 2], "n": 1} for i in range(200)])
        done.set()
        for thread in threads:
            thread.join()
        assert not wrong


@pytest.mark.parametrize(
    ("text", "template", "holes"),
    [
        ("a = 'x' AND b = 5", "a = :__v0 AND b = :__v1", ("x", 5)),
        ("a1 = -1.50 OR `b5` = 't''s'", "a1 = -:__v0 OR `b5` = :__v1", (Decimal("1.50"), "t's")),
        ("a = 1e5 AND b = 5L AND c = .5 AND d = t1.x", "a = 1e5 AND b = 5L AND c = .5 AND d = t1.x", ()),
        ("a = 5 -- it's 6\n AND b = 7", "a = :__v0 -- it's 6\n AND b = :__v1", (5, 7)),
    ],
)
def test_templates(text: str, template: str, holes: tuple[Any, ...]) -> None:
    found = template_of(text)
    assert found is not None
    assert (found.text, found.holes) == (template, holes)


@pytest.mark.parametrize(
    "text", ['a = "x"', "a = 'x\\'y'", "a = '${X}'", "a = r'x'", "a = 'x", "/* ' */ a = 5"]
)
def test_texts_without_a_template(text: str) -> None:
    assert template_of(text) is None


def test_keys_in_any_order() -> None:
    with App("CREATE TABLE t (id INT PRIMARY KEY, tags ARRAY<INT>)") as app:
        app.table("t").bulk_insert([{"id": 1, "tags": [1]}, {"id": 2, "tags": [2, 2]}])
        for keys in ("1, 2", "2, 1"):
            found = app.sql(f"SELECT id, tags FROM t WHERE id IN ({keys})")
            assert found.to_arrow().to_pylist() == found.rows() == app.table("t").all_rows()
