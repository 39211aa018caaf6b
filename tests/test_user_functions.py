"""Python functions in SQL, in process and on Spark."""

from __future__ import annotations

import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from millpond import App
from millpond.errors import AlreadyExists, InvalidOption, QueryFailed, TypeMismatch, UnknownName


def tier(amount: int | None) -> str | None:
    return None if amount is None else "gold" if amount >= 100 else "plain"


def declared(app: App) -> App:
    app.sql("CREATE TABLE t (id INT PRIMARY KEY, amount INT, price DECIMAL(10,2), at TIMESTAMP)")
    app.sql(
        "INSERT INTO t VALUES (1, 100, 1.10, TIMESTAMP '2024-01-01 10:00:00'), (2, 5, 2.25, NULL), "
        "(3, NULL, NULL, NULL)"
    )
    return app


@pytest.mark.parametrize("path", ["duckdb", pytest.param("spark", marks=pytest.mark.spark)])
def test_on_both_paths(path: Any, request: pytest.FixtureRequest) -> None:
    if path == "spark":
        request.getfixturevalue("spark")
    with declared(App(_path=path)) as app:
        app.function(tier)

        @app.function(arguments=["DECIMAL(10,2)", "INT"], returns="DECIMAL(12,2)")
        def times(price: Any, count: Any) -> Any:
            return None if price is None or count is None else price * count

        @app.function(name="plus_one", arguments=["BIGINT"], returns="BIGINT", vectorized=True)
        def add(column: pa.Array) -> pa.Array:
            return pc.add(column, 1)

        @app.function
        def year_of(at: datetime.datetime) -> int | None:
            return at and at.year

        rows = app.sql(
            "SELECT id, tier(amount) AS tier, times(price, amount) AS sum, plus_one(amount) AS next, year_of(at) AS y "
            "FROM t WHERE TIER(amount) IS NULL OR tier(amount) <> 'x' ORDER BY id"
        ).rows()
        assert [tuple(r.values()) for r in rows] == [
            (1, "gold", Decimal("110.00"), 101, 2024),
            (2, "plain", Decimal("11.25"), 6, None),
            (3, None, None, None, None),
        ]
        assert times(2, 3) == 6  # the decorated function is what it was


def test_in_running_statements_and_live_tables(tmp_path: Path) -> None:
    sql = (
        "CREATE STREAM s (id INT, amount INT); CREATE TABLE t (id INT PRIMARY KEY, tier STRING);"
        "INSERT INTO t SELECT id, tier(amount) FROM s;"
        "CREATE TABLE n AS SELECT tier, COUNT(*) AS n FROM t GROUP BY tier;"
    )
    for first in (0, 10):
        with App(sql, state=tmp_path / "state", functions=[tier], _direct=True) as app:
            app.send("s", [{"id": first + i, "amount": 50 * i} for i in range(4)])
            app.drain()
            assert app.sql("SELECT * FROM n ORDER BY tier").rows() == [
                {"tier": "gold", "n": 2 + first // 5},
                {"tier": "plain", "n": 2 + first // 5},
            ]


def test_rows_that_a_function_fails_on_are_put_aside() -> None:
    def inverse(x: int) -> float:
        return 1 / x

    with App(
        "CREATE STREAM s (x INT); CREATE TABLE t AS SELECT x, inverse(x) AS y FROM s",
        functions=[inverse],
        _direct=True,
    ) as app:
        app.send("s", [{"x": 1}, {"x": 0}, {"x": 2}])
        app.drain()
        assert sorted(r["x"] for r in app.table("t").all_rows()) == [1, 2]
        (record,) = app.sql("SELECT * FROM `t$errors`").rows()
        assert 'function "inverse": ZeroDivisionError' in record["reason"]
        with pytest.raises(QueryFailed, match="ZeroDivisionError"):
            app.sql("SELECT inverse(x - 1) FROM t")


def test_mistakes() -> None:
    with declared(App()) as app:
        app.function(tier)
        with pytest.raises(TypeMismatch, match="takes 1 arguments, not 2") as e:
            app.sql("SELECT tier(amount, 1) FROM t")
        assert e.value.hint == "tier(BIGINT) STRING" and e.value.column == 8
        with pytest.raises(UnknownName, match="tear"):
            app.sql("SELECT tear(amount) FROM t")
        with pytest.raises(AlreadyExists):
            app.function(tier)
        with pytest.raises(AlreadyExists, match="one of SQL"):
            app.function(tier, name="upper")
        with pytest.raises(InvalidOption, match="no type that SQL knows"):
            app.function(lambda x: x, name="f")
        with pytest.raises(InvalidOption, match="NUMBERS"):
            app.function(lambda x: x, name="f", arguments=["NUMBERS"], returns="INT")
        with pytest.raises(InvalidOption, match="does not take 2"):
            app.function(lambda x: x, name="f", arguments=["INT", "INT"], returns="INT")
        with pytest.raises(InvalidOption, match="no arguments"):
            app.function(lambda: 1, name="f", arguments=[], returns="INT")
        with pytest.raises(InvalidOption, match="name"):
            app.function(lambda x: x, arguments=["INT"], returns="INT")
        assert "tier" in [r["name"] for r in app.sql("SHOW FUNCTIONS").rows()]
        app.function(lambda x: "no number", name="wrong", arguments=["INT"], returns="INT")
        with pytest.raises(QueryFailed, match="wrong"):
            app.sql("SELECT wrong(id) FROM t")
