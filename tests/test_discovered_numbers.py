"""Numbers whose type nobody declared: they are exact, and what was made of them before they were goes on."""

from __future__ import annotations

import json
from decimal import Decimal, localcontext
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond import App, Error
from millpond.formats import jsontypes, text
from millpond.formats.jsontext import to_json

pytestmark = pytest.mark.slow

DOUBLE = pa.float64()


def write(path: Path, *rows: object) -> None:
    with path.open("a") as file:
        file.writelines((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in rows)


def types(app: App, table: str) -> dict[str, str]:
    return {r["column"]: r["type"] for r in app.sql(f"DESCRIBE {table}").rows()}


SQL = """
CREATE STREAM sold (sku STRING, qty INT);
CREATE TABLE tags (sku STRING PRIMARY KEY, tag STRING);
INSERT INTO tags VALUES ('a', 'x');
CREATE TABLE followed AS SELECT * FROM file://{0}/orders.jsonl;
CREATE TABLE sums AS SELECT sku, SUM(price) AS total FROM file://{0}/prices.csv GROUP BY sku;
CREATE TABLE joined AS SELECT s.sku, s.qty * p.price AS total FROM sold s JOIN file://{0}/prices.csv p ON p.sku = s.sku;
CREATE TABLE beside AS SELECT t.tag, p.price FROM tags t JOIN file://{0}/prices.csv p ON p.sku = t.sku;
CREATE TABLE copied AS SELECT price FROM file://{0}/prices.csv WITH ('refresh' = 'once');
CREATE STREAM dear AS SELECT s.sku, p.price FROM sold s JOIN file://{0}/prices.csv p ON p.sku = s.sku;
"""


def test_what_was_discovered_as_double_stays_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "orders.jsonl", {"id": 1, "price": 10.10, "deep": {"x": [0.5]}})
    write(tmp_path / "prices.csv", "sku,price", "a,10.10", "b,2.50")
    sql = SQL.format(tmp_path)
    with monkeypatch.context() as earlier:
        earlier.setattr(text, "NUMBER", DOUBLE)
        earlier.setattr(jsontypes, "NUMBER", DOUBLE)
        with App(sql, state=tmp_path / "state", _direct=True) as app:
            app.send("sold", [{"sku": "a", "qty": 2}])
            app.drain()
            before = {t: types(app, t) for t in (*app.tables(), "dear")}
            assert before["followed"]["price"] == before["joined"]["total"] == "DOUBLE"
    write(tmp_path / "orders.jsonl", {"id": 2, "price": 0.20, "deep": {"x": [1.5]}})
    write(tmp_path / "prices.csv", "c,7.75")
    with App(sql, state=tmp_path / "state", _direct=True) as app:
        app.send("sold", [{"sku": "c", "qty": 4}])
        app.sql("INSERT INTO tags VALUES ('c', 'z')")
        app.drain()
        assert {t: types(app, t) for t in (*app.tables(), "dear")} == before
        assert [r["price"] for r in app.sql("SELECT price FROM followed ORDER BY id").rows()] == [10.1, 0.2]
        assert sorted(r["total"] for r in app.sql("SELECT total FROM sums").rows()) == [2.5, 7.75, 10.1]
        assert sorted(r["total"] for r in app.sql("SELECT total FROM joined").rows()) == [20.2, 31.0]
        assert sorted(r["price"] for r in app.sql("SELECT price FROM beside").rows()) == [7.75, 10.1]
        assert sorted(r["price"] for r in app.sql("SELECT price FROM copied").rows()) == [2.5, 10.1]
        assert all(q["state"] == "running" for q in app.sql("SHOW QUERIES").rows())
        # What is new is exact.
        write(tmp_path / "later.jsonl", {"price": 10.10}, {"price": 0.20})
        app.sql(f"CREATE TABLE later AS SELECT * FROM file://{tmp_path}/later.jsonl")
        assert app.sql("SELECT SUM(price) AS s FROM later").rows() == [{"s": Decimal("10.30")}]


# exact, whatever the source


NUMBERS = st.decimals(
    min_value=Decimal("-9999999999999999999"), max_value=Decimal("9999999999999999999"), places=2
) | st.decimals(min_value=-1000, max_value=1000, places=19)


def load(app: App, path: Path) -> list[Decimal]:
    app.sql(f"CREATE TABLE t AS SELECT * FROM file://{path} WITH ('watch' = 'false')")
    assert types(app, "t") == {"id": "BIGINT", "x": "DECIMAL(38,19)"}
    return [r["x"] for r in app.sql("SELECT x FROM t ORDER BY id").rows()]


@settings(deadline=None, max_examples=10)
@given(numbers=st.lists(NUMBERS, min_size=1, max_size=8))
def test_numbers_come_and_go_with_their_digits(
    numbers: list[Decimal], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("numbers")
    rows = [(i, f"{n:f}") for i, n in enumerate(numbers)]
    rows.append((len(rows), "0.5"))  # so that one has a fraction
    numbers = [Decimal(n) for _, n in rows]
    objects = [f'{{"id": {i}, "x": {n}}}' for i, n in rows]
    write(folder / "a.csv", "id,x", *(f"{i},{n}" for i, n in rows))
    write(folder / "a.jsonl", *objects)
    write(folder / "a.json", "[" + ",".join(objects) + "]")
    for name in ("a.csv", "a.jsonl", "a.json"):
        with App(_direct=True) as app:
            assert load(app, folder / name) == numbers
            with localcontext(prec=80):
                total = sum(numbers, Decimal(0))
            if abs(total) < 10**19:
                assert app.sql("SELECT SUM(x) AS s FROM t").rows() == [{"s": total}]
            # Written as JSON they are the same numbers again, without zeros that nobody wrote.
            texts = to_json(app.sql("SELECT id, x FROM t ORDER BY id").to_arrow()).to_pylist()
            back = [json.loads(line, parse_float=Decimal, parse_int=Decimal)["x"] for line in texts]
            assert back == numbers
            assert not any(t.rstrip(b"}").endswith(b"0") for t in texts if b"." in t)


def test_later_values_may_have_more_digits_than_the_sample(tmp_path: Path) -> None:
    write(
        tmp_path / "a.csv",
        "x",
        *["1.5"] * 20,
        "1.123456789012345678",
        "1e3",
        "1.5E-3",
        "-0.0",
        "9223372036854775807",
    )
    with App(_direct=True) as app:
        app.sql(f"CREATE TABLE t AS SELECT * FROM file://{tmp_path}/a.csv")
        write(tmp_path / "a.csv", "0.0000000000000000001", "123456.789")
        app.drain()
        found = [r["x"] for r in app.sql("SELECT x FROM t").rows()][20:]
        assert found == [
            Decimal(n)
            for n in "1.123456789012345678 1000 0.0015 0 9223372036854775807 1e-19 123456.789".split()
        ]
        assert app.sql("SELECT COUNT(*) AS n FROM `t$errors`").rows() == [{"n": 0}]


def test_the_example_of_everybody(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", {"a": 10.10, "b": 0.20, "qty": 3, "in": {"x": [0.1, 0.2]}})
    with App(_direct=True) as app:
        app.sql(f"CREATE TABLE t AS SELECT * FROM file://{tmp_path}/a.jsonl")
        row = app.sql(
            "SELECT a + b AS s, a * qty AS p, a / b AS q, AVG(a) OVER () AS m, `in`.x[1] AS x FROM t"
        ).rows()[0]
        assert {k: str(v) for k, v in row.items()} == {
            "s": "10.300000000000000000", "p": "30.300000", "q": "50.500000", "m": "10.1", "x": "0.2",
        }  # fmt: skip
        plan = app.sql("EXPLAIN SELECT a + b, a * qty, a / b FROM t").rows()
        assert any("duckdb" in r["plan"] for r in plan)
        assert app.table("t").find("a > 10")[0]["a"] == Decimal("10.1")
        assert str(app.sql("SELECT a FROM t").rows()[0]["a"]) == "10.1"


@pytest.mark.parametrize(
    ("first", "later", "declaration"),
    [
        ("1", "1.5", "declare x DECIMAL(38,19)"),
        ("1", "99999999999999999999", "declare x DECIMAL(38,0)"),
        ("1.5", "1e300", "declare x DOUBLE"),
        ("1.5", "0.00000000000000000001", "declare x DOUBLE"),
        ("1.5", "NaN", "declare x DOUBLE"),
        ("1.5", "N/A", "declare x STRING"),
    ],
)
@pytest.mark.parametrize("name", ["a.csv", "a.jsonl"])
def test_a_later_value_that_does_not_fit_says_what_to_declare(
    tmp_path: Path, name: str, first: str, later: str, declaration: str
) -> None:
    quoted = f'"{later}"' if later in ("NaN", "N/A") else later
    lines = [f'{{"x": {first}}}', f'{{"x": {quoted}}}'] if name == "a.jsonl" else [f"{first}", f"{later}"]
    write(tmp_path / name, *(["x"] if name == "a.csv" else []), lines[0])
    with App(_direct=True) as app:
        app.sql(f"CREATE TABLE t AS SELECT * FROM file://{tmp_path}/{name}")
        write(tmp_path / name, lines[1])
        app.drain()
        (error,) = app.sql("SELECT reason FROM `t$errors`").rows()
        assert f'"{later}" in column "x" is not a' in error["reason"] and declaration in error["reason"]
        if later == "N/A" and name == "a.csv":
            with pytest.raises(Error) as caught:
                app.sql(
                    f"CREATE TABLE u AS SELECT x * 2 AS x FROM file://{tmp_path}/{name} WITH ('on.error' = 'fail')"
                )
            assert "'null.value' = 'N/A'" in str(caught.value.hint)


def test_files_are_looked_through_for_numbers_of_another_kind(tmp_path: Path) -> None:
    """A file of a few megabytes is; one word among numbers does not make them texts."""
    rows = [
        {"id": i, "v": i if i != 15_000 else 0.5, "w": i / 4 if i != 16_000 else "N/A"} for i in range(20_000)
    ]
    write(tmp_path / "a.jsonl", *rows)
    write(tmp_path / "a.json", json.dumps(rows))
    write(tmp_path / "a.csv", "id,v,w", *(f"{r['id']},{r['v']},{r['w']}" for r in rows))
    with App(_direct=True) as app:
        for number, name in enumerate(("a.jsonl", "a.json", "a.csv")):
            app.sql(f"CREATE TABLE t{number} AS SELECT * FROM file://{tmp_path}/{name}")
            assert types(app, f"t{number}") == {"id": "BIGINT", "v": "DECIMAL(38,19)", "w": "DECIMAL(38,19)"}
            assert app.sql(f"SELECT COUNT(*) AS n, SUM(v) AS s FROM t{number}").rows() == [
                {
                    "n": 19_999,
                    "s": Decimal(sum(i for i in range(20_000) if i not in (15_000, 16_000))) + Decimal("0.5"),
                }
            ]
