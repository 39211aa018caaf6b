"""Plans of repeated statements: one that runs by the plan of another, which differs from it in its literals, answers,
changes and fails as it does alone."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Iterator
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from millpond import App, Error
from millpond.query.result import Result
from millpond.sql.template import template_of
from millpond.testing import modes_of, read_cases, run_case

FILES = sorted((Path(__file__).parent / "sql").glob("*.test"))
TABLES = """
CREATE TABLE t (a INT PRIMARY KEY, b BIGINT, s STRING, price DECIMAL(10,2), x DOUBLE, day DATE);
CREATE TABLE u (id INT PRIMARY KEY, w STRING, n INT)
"""
ROWS = [
    {
        "a": i,
        "b": (i * 7) % 5 if i % 4 else None,
        "s": ("a", "b", "it's", "", None, "5", "a%")[i % 7],
        "price": Decimal(i) / 4,
        "x": i / 2 - 3,
        "day": dt.date(2024, 1, 1 + i),
    }
    for i in range(14)
]
OTHERS = [{"id": i, "w": "abc"[i % 3], "n": i} for i in range(6)]
NUMBERS = (
    "0 1 2 3 5 7 10 99 100 007 2147483647 2147483648 3000000000 999999999999999999 9223372036854775807 "
    "0.5 1.5 1.50 2.25 10.0 99999.99 0.001 123456789.12"
).split()
TEXTS = [
    "a",
    "b",
    "it's",
    "",
    "a%",
    "5",
    "2024-01-05",
    "2024-13-45",
    "ä",
    "\ue9070\ue908",
    "٥",
    "s",
    "id",
    "x" * 40,
]
STATEMENTS = """
SELECT a, b FROM t WHERE a < {n} AND s = {s}
SELECT a, price FROM t WHERE price > {n} OR b = {n}
SELECT a + {n} AS y, s FROM t WHERE x >= {n}
SELECT a + {n}, {s} FROM t
SELECT {s} AS q, {n} AS r FROM t WHERE a <> {n}
SELECT price * {n} AS p, price + {n} AS q, x - {n} AS r FROM t
SELECT s, COUNT(*) AS c FROM t WHERE a BETWEEN {n} AND {n} GROUP BY s HAVING COUNT(*) > {n} ORDER BY 1 LIMIT {i}
SELECT a + {n} AS k, COUNT(*) AS c FROM t GROUP BY a + {n}
SELECT DISTINCT b * {i} AS k FROM t WHERE b IS NOT NULL
SELECT t.a, u.w FROM t JOIN u ON t.a = u.id AND u.w <> {s} WHERE t.b IN ({n}, {n})
SELECT t.a, u.w FROM t LEFT JOIN u ON t.a = u.id AND u.n > {n} WHERE u.w = {s} OR t.a > {n}
SELECT a FROM t WHERE s LIKE {s} AND a > {n}
SELECT CASE WHEN a > {n} THEN {s} ELSE s END AS y FROM t
SELECT a FROM t WHERE day > {s}
SELECT a FROM t WHERE a = {s} OR x < {n}
SELECT substring(s, {i}, {i}) AS y FROM t WHERE s > {s}
SELECT a FROM t WHERE (SELECT MAX(id) FROM u WHERE w = {s}) > {n}
SELECT z FROM (SELECT a + {i} AS z, s FROM t WHERE s <> {s}) AS q WHERE z > {n}
SELECT a FROM t ORDER BY a + {i} DESC, {i}
SELECT a / {n} AS y FROM t WHERE b = -{n}
SELECT a FROM t WHERE NOT (a = {n} AND s = {s}) AND EXISTS (SELECT 1 FROM u WHERE u.id = t.a AND u.n < {n})
SELECT col1 FROM VALUES ({n}, {s}), ({n}, {s}) WHERE col1 > {n}
SELECT a FROM t WHERE day + {i} > DATE {s}
UPDATE t SET b = {n}, s = {s} WHERE a > {n}
UPDATE t SET price = price + {n} WHERE s = {s}
UPDATE t SET price = {n}, s = {n} WHERE a = {n} OR x < {n}
UPDATE t SET x = x * {n}, a = a + {i} WHERE b > {n}
UPDATE t SET b = b - {n} WHERE a = {i}
UPDATE t SET s = (SELECT MAX(w) FROM u WHERE n < {n}) WHERE a < {n}
DELETE FROM t WHERE a < {n} AND price = {n}
DELETE FROM t WHERE s = {s}
INSERT INTO t (a, b, s) VALUES ({n}, {n}, {s}), ({n}, {n}, {s})
INSERT INTO t (a, price, x) VALUES ({i}, {n}, {n})
INSERT INTO t (a, day) VALUES ({i}, {s}), (50, {s})
INSERT INTO t (a, b) SELECT id + {n}, {n} FROM u WHERE w <> {s}
MERGE INTO t USING u ON t.a = u.id AND u.w = {s} WHEN MATCHED AND t.b > {n} THEN UPDATE SET b = {n}, s = {s} WHEN NOT MATCHED THEN INSERT (a, s) VALUES (u.id + {n}, {s})
""".strip().splitlines()  # noqa: E501
QUICK = settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
MANY = settings(max_examples=1000, deadline=None, suppress_health_check=list(HealthCheck))


@some.composite
def statements(draw: some.DrawFn) -> list[tuple[str, list[Any] | None]]:
    """Statements one after the other, each with two or three sets of literals; some of them are parameters."""
    found: list[tuple[str, list[Any] | None]] = []
    for form in draw(some.lists(some.sampled_from(STATEMENTS), min_size=1, max_size=4)):
        for _ in range(draw(some.integers(2, 3))):
            found.append(filled(draw, form))
    return found


def filled(draw: some.DrawFn, form: str) -> tuple[str, list[Any] | None]:
    params: list[Any] = []
    text, bound = "", draw(some.booleans()) and "LIMIT" not in form and "DATE {" not in form
    for part in form.split("{"):
        kind, _, rest = part.rpartition("}")
        if not kind:
            text += part
            continue
        if kind == "s":
            value = draw(some.sampled_from(TEXTS))
            written, given = "'" + value.replace("'", "''") + "'", value
        else:
            written = draw(some.sampled_from(NUMBERS if kind == "n" else ["0", "1", "2", "3", "12"]))
            given = Decimal(written) if "." in written else int(written)
        if bound and draw(some.booleans()):
            params.append(given)
            written = "?"
        text += written + rest
    return text, params if bound and params else None


@pytest.fixture(scope="module")
def apps() -> Iterator[tuple[App, App]]:
    """One that keeps plans, and one that keeps none."""
    with App(TABLES) as warm, App(TABLES) as cold:
        cold._runtime.plans.find = lambda *_: None  # type: ignore[method-assign]
        yield warm, cold


def came_of(app: App, text: str, params: list[Any] | None) -> object:
    try:
        result = app.sql(text, params)
        return result.count if result.count is not None else told(result)
    except Error as error:
        return type(error), error.message, error.hint, error.place


def told(result: Result) -> object:
    rows = result.to_arrow()
    return rows.schema, sorted(map(repr, rows.to_pylist()))


def start(app: App) -> None:
    for name, rows in (("t", ROWS), ("u", OTHERS)):
        app.table(name).delete("true")
        app.table(name).bulk_insert(rows)


def check(apps: tuple[App, App], asked: list[tuple[str, list[Any] | None]]) -> None:
    for app in apps:
        start(app)
    for text, params in asked:
        mine, wanted = (came_of(app, text, params) for app in apps)
        assert mine == wanted, (text, params)
        if not text.startswith("SELECT"):
            mine, wanted = (sorted(map(repr, app.table("t").stream_all())) for app in apps)
            assert mine == wanted, (text, params)


SAME = given(asked=statements())
test_other_literals = QUICK(SAME(check))
test_many_other_literals = pytest.mark.chaos(MANY(SAME(check)))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_cases_after_the_same_with_other_literals(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each query of the files is asked with other literals before."""
    real = App.sql

    def sql(app: App, text: str, params: Any = None) -> Result:
        other = with_other_literals(text)
        if other is not None and params is None:
            with suppress(Error):
                real(app, other)
        return real(app, text, params)

    monkeypatch.setattr(App, "sql", sql)
    for number, case in enumerate(read_cases(path)):
        if "plain" in modes_of(case) and not case.has_stream:
            run_case(case, "plain", tmp_path / str(number))


def with_other_literals(text: str) -> str | None:
    """The query with another value in place of each literal, of the same form; None for what is no query."""
    template = template_of(text) if text.lstrip().upper().startswith(("SELECT", "WITH")) else None
    if template is None or not template.holes:
        return None
    made, end = "", 0
    for (start, stop), hole in zip(template.places, template.holes, strict=True):
        old = text[start:stop]
        new = f"'{hole}q'" if isinstance(hole, str) else old[:-1] + str((int(old[-1]) + 3) % 10)
        made += text[end:start] + new.replace("''", "'''" if "'" in str(hole) else "''")
        end = stop
    return made + text[end:]


def test_a_change_of_the_catalog_is_another_plan() -> None:
    with App(TABLES) as app:
        start(app)
        text = "SELECT w, n + {} AS m FROM u WHERE n >= {} ORDER BY w, n"
        assert [len(app.sql(text.format(1, n))) for n in (0, 3)] == [6, 3]
        app.sql("DROP TABLE u; CREATE TABLE u (w INT, n DECIMAL(5,1)); INSERT INTO u VALUES (1, 2.5)")
        assert app.sql(text.format(2, 1)).rows() == [{"w": 1, "m": Decimal("4.5")}]
        app.sql("DROP TABLE u; CREATE VIEW u AS SELECT s AS w, a AS n FROM t")
        assert len(app.sql(text.format(1, 10))) == 4
        app.sql("DROP VIEW u")
        with pytest.raises(Error, match="u"):
            app.sql(text.format(1, 1))


def test_a_name_made_of_what_is_written() -> None:
    with App(TABLES) as app:
        asked = [("SELECT a + 0.5 FROM t", None), ("SELECT a + ? FROM t", [Decimal("0.5")])]
        alone = []
        for text, params in asked:
            app._runtime.plans.clear()
            alone.append(app.sql(text, params).columns)
        for order in (asked, asked[::-1]):
            app._runtime.plans.clear()
            assert [app.sql(*one).columns for one in order * 2] == (
                alone if order is asked else alone[::-1]
            ) * 2


def test_an_error_of_a_plan_points_into_its_own_text() -> None:
    with App("CREATE TABLE t (a INT PRIMARY KEY, b TINYINT, s STRING NOT NULL)") as app:
        app.sql("INSERT INTO t VALUES (1, 1, 'x'), (2, 2, 'y')")
        assert app.sql("UPDATE t SET b = b + 1 WHERE a > 0").count == 2
        with pytest.raises(Error) as caught:
            app.sql("\n\nUPDATE   t SET b = b + 200\n WHERE a > 0")
        assert caught.value.place is not None and caught.value.place.line == 3
        with pytest.raises(Error) as caught:
            app.sql("INSERT INTO t (a, s) VALUES (3, 'z'),\n (4, NULL)")
        assert caught.value.place is not None
        assert len(app.table("t")) == 2


AFTER = [
    ("SELECT a FROM t WHERE b < ? AND x > 0", [2**40], [2**70]),
    ("SELECT a FROM t WHERE b > ? AND x > 0", [-(2**40)], [-(2**70)]),
    ("SELECT a FROM t WHERE price < ? AND x > 0", [Decimal("3.5")], [Decimal("NaN")]),
    ("SELECT a FROM t WHERE a > :n LIMIT:n", {"n": 1}, {"n": 2}),
    ("SELECT a FROM t WHERE a > :n OR:n = 9", {"n": 1}, {"n": 9}),
    (
        "SELECT a FROM t WHERE day > ? AND day > DATE '1907-06-01'",
        [dt.date(1907, 6, 1)],
        [dt.date(2024, 1, 9)],
    ),
    ("SELECT a, 007 FROM t WHERE a > 3", None, "SELECT a, 7 FROM t WHERE a > 3"),
    ("SELECT a, 00.10 FROM t WHERE a > 3", None, "SELECT a, 0.10 FROM t WHERE a > 3"),
    ("SELECT a FROM t WHERE s > ? AND x > 0", ["a"], ["a" * 5000]),
]


@pytest.mark.parametrize(("text", "first", "then"), AFTER)
def test_what_a_plan_does_not_hold_for(text: str, first: Any, then: Any) -> None:
    """A statement behind one that is almost the same answers as it does alone."""
    said = []
    for warm in (False, True):
        with App(TABLES) as app:
            start(app)
            if warm:
                app.sql(text, first)
            try:
                result = app.sql(then) if isinstance(then, str) else app.sql(text, then)
                said.append((result.columns, result.rows()))
            except Error as error:
                said.append((type(error), error.message, error.hint))
    assert said[0] == said[1]


def test_rows_that_are_read_and_inserted_by_several_at_once() -> None:
    """No update is lost: what was read is still so when it is written."""
    with App("CREATE TABLE c (id INT PRIMARY KEY, n INT)") as app:
        app.sql("INSERT INTO c VALUES (1, 0)")

        def work() -> None:
            for _ in range(25):
                app.sql("INSERT INTO c SELECT id, n + 1 FROM c WHERE id > 0")
                app.sql("UPDATE c SET n = n + 1 WHERE id > 0")

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert app.sql("SELECT n FROM c").rows() == [{"n": 150}]


@pytest.mark.parametrize(
    ("text", "little", "much"),
    [
        ("SELECT ? AS q, a FROM t", "x", "x" * 900_000),
        ("SELECT repeat(q, 20) AS r FROM (SELECT ? AS q FROM t) z", "x", "x" * 900_000),
        ("SELECT upper(?) AS u, a FROM t", "x", "x" * 900_000),
    ],
)
def test_clients_get_no_more_by_a_plan(text: str, little: str, much: str) -> None:
    """What a client's statement may make is measured with its own values."""
    import httpx

    with App(TABLES) as app, app.serve(port=0) as server, httpx.Client(base_url=server.url) as client:
        start(app)
        for _ in range(2):
            assert client.post("/sql", json={"sql": text, "params": [little]}).status_code == 200
        assert client.post("/sql", json={"sql": text, "params": [much]}).status_code == 422
        assert sum(len(str(key)) for key in app._runtime.plans._kept.plans) < 10_000
