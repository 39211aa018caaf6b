"""Tables, streams and what belongs to them under any name that stands in back-ticks."""

from __future__ import annotations

import gc
import json
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import quote as in_url

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from millpond import App, Error
from millpond.testing.contracts import TablePlace
from millpond.types import quote
from tests.contract.places import EVERY, Places

pytestmark = pytest.mark.slow

NASTY = [
    "with space",
    "a.b",
    'it\'s "quoted"',
    "a/b/",
    "tick`tick",
    "a%2Fb?c=d&e#f",
    "$x$y",
    "1;--/*",
    "größe 日本 😀",
    "rows",
    "x:y\\n\t\nz",
    "n" * 100,
]
ALIAS = "longer_than_any_of_them"
LETTERS = st.characters(codec="utf-8", exclude_characters="\0")
NAMES = (
    st.text(LETTERS | st.sampled_from(" .'\"`/\\$%:;,()[]{}=?*-#&|<>\n\tİßK"), min_size=1, max_size=12)
    .filter(lambda n: n.strip() and "${" not in n and "://" not in n)
    .filter(lambda n: not n.lower().startswith(("table:", "stream:")))
)


def make(app: App, name: str, options: str = "", *, index: bool = True) -> None:
    """Every statement about a table once."""
    table, column = quote(name), quote(f"v {name}")
    sql = app.sql
    sql(f"CREATE TABLE {table} (id INT PRIMARY KEY, {column} STRING) {options}")
    assert sql(f"INSERT INTO {table} (id, {column}) VALUES (1, 'a'), (2, 'b'), (3, 'c')").count == 3
    assert sql(f"UPDATE {table} SET {column} = concat({table}.{column}, '!') WHERE {table}.id = 1").count == 1
    assert sql(f"UPDATE {table} SET {column} = ? WHERE id = 3", ["d"]).count == 1
    assert sql(f"DELETE FROM {table} WHERE {column} = 'b'").count == 1
    sql(
        f"MERGE INTO {table} USING (SELECT 5 AS id, 'm' AS v) {ALIAS} ON {table}.id = {ALIAS}.id"
        f" WHEN MATCHED THEN UPDATE SET {column} = {ALIAS}.v"
        f" WHEN NOT MATCHED THEN INSERT VALUES ({ALIAS}.id, {ALIAS}.v)"
    )
    if index:
        sql(f"CREATE INDEX {quote('i ' + name)} ON {table} ({column})")
    sql(f"CREATE VIEW {quote('view ' + name)} AS SELECT {table}.*, upper({column}) AS u FROM {table}")


def check(app: App, name: str) -> None:
    table, column = quote(name), quote(f"v {name}")
    expected = [(1, "a!"), (3, "d"), (5, "m")]
    found = app.sql(f"SELECT {table}.id, {table}.{column} FROM {table} ORDER BY {table}.id").to_arrow()
    assert [tuple(r.values()) for r in found.to_pylist()] == expected
    assert found.column_names == ["id", f"v {name}"]
    viewed = app.sql(
        f"SELECT {ALIAS}.u FROM {quote('view ' + name)} {ALIAS} JOIN {table} ON {ALIAS}.id = {table}.id ORDER BY 1"
    )
    assert [r["u"] for r in viewed.rows()] == ["A!", "D", "M"]
    assert name in app.tables() and name in [r["name"] for r in app.sql("SHOW TABLES").rows()]
    assert [r["column"] for r in app.sql(f"DESCRIBE {table}").rows()] == ["id", f"v {name}"]
    assert app.sql(f"DESCRIBE EXTENDED {table}").rows() and app.sql(f"EXPLAIN SELECT * FROM {table}").rows()
    assert app.table(name).get_record(1) == {"id": 1, f"v {name}": "a!"}
    assert app.table(name).find(f"{column} = 'd'") == [{"id": 3, f"v {name}": "d"}]
    with app.begin_transaction() as tx:
        tx.sql(f"DELETE FROM {table}")
        assert len(tx.table(name)) == 0
        tx.rollback()


def with_options(place: TablePlace) -> str:
    values = {"extension": place.backend, **place.settings}
    return "WITH (" + ", ".join(f"'{k}' = '{v}'" for k, v in values.items()) + ")"


def declared_again(app: App, name: str) -> str:
    return str(next(iter(app.sql(f"SHOW CREATE TABLE {quote(name)}").rows()[0].values())))


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(names=st.lists(NAMES, min_size=1, max_size=3, unique_by=str.lower))
def test_any_name(names: list[str], tmp_path_factory: pytest.TempPathFactory) -> None:
    names = [n for n in names if not any(n.lower() == f"view {m}".lower() for m in names)]
    state = tmp_path_factory.mktemp("state")
    with App(state=state) as app:
        for name in names:
            make(app, name)
        for name in names:
            check(app, name)
    with App(state=state) as app, App() as other:
        for name in names:
            check(app, name)
            other.sql(declared_again(app, name))
            assert other.table(name).schema == app.table(name).schema
        for name in names:
            app.sql(f"DROP VIEW {quote('view ' + name)}; DROP TABLE {quote(name)}")
        assert app.tables() == []


@pytest.mark.parametrize("kind", [kind for kind in EVERY if kind not in ("delta", "flushed")])
def test_every_backend(kind: str, places: Places) -> None:
    """Under each of the names, side by side: none takes the rows of another. Delta has no such names of columns."""
    options = with_options(places.new(kind))
    names = [*NASTY, "row:1", "row", "x" * 70 + "1", "x" * 70 + "2"]
    with App() as app:
        for name in names:
            make(app, name, options, index=kind not in ("redis", "cache"))
        for name in names:
            check(app, name)
        for name in names:
            app.sql(f"DROP TABLE {quote(name)} CASCADE")


@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", ["postgresql", "mysql"])
def test_a_drop_does_not_wait_for_what_was_forgotten(kind: str, places: Places) -> None:
    """A transaction that has ended, and is part of a cycle, holds a snapshot of the database until it is collected."""
    with App() as app:
        make(app, "t", with_options(places.new(kind)), index=True)
        gc.collect()
        gc.disable()
        try:
            check(app, "t")
            app.sql("DROP TABLE t CASCADE")
        finally:
            gc.enable()


def test_what_belongs_to_a_table(spark: Any, tmp_path: Path) -> None:
    """Live tables, streams, aggregates, error tables and queries, and after a restart."""

    def begin(app: App, name: str) -> None:
        table, stream, column = quote(name), quote(f"s {name}"), quote(name)
        make(app, name)
        sql = app.sql
        sql(f"CREATE MATERIALIZED VIEW {quote('mv ' + name)} AS SELECT COUNT(*) AS n FROM {table}")
        sql(f"CREATE STREAM {stream} (id INT, {column} STRING)")
        sql(f"CREATE STREAM {quote('d ' + name)} AS SELECT {stream}.id, {column} FROM {stream}")
        derived = quote(f"d {name}")
        sql(
            f"CREATE TABLE {quote('agg ' + name)} AS SELECT {column}, COUNT(*) AS n FROM {derived} GROUP BY {column}"
        )
        sql(f"CREATE TABLE {quote('ints ' + name)} (id INT PRIMARY KEY, x INT, v STRING)")
        sql(
            f"INSERT INTO {quote('ints ' + name)} SELECT {stream}.id, CAST({stream}.{column} AS INT),"
            f" {table}.{quote('v ' + name)} FROM {stream} LEFT JOIN {table} ON {table}.id = {stream}.id"
        )

    def end(app: App, name: str, times: int) -> None:
        check(app, name)
        assert app.table(f"mv {name}").all_rows() == [{"n": 3}]
        found = app.table(f"agg {name}").all_rows()
        assert sorted((r[name], r["n"]) for r in found) == [("7", times), ("no", times)]
        assert app.table(f"ints {name}").all_rows() == [{"id": 1, "x": 7, "v": "a!"}]
        queries = [r["name"] for r in app.sql("SHOW QUERIES").rows()]
        query = next(q for q in queries if q.startswith(f"insert_ints {name}"))
        assert len(app.sql(f"SELECT * FROM {quote(query + '$errors')}").rows()) == times
        app.sql(f"PAUSE QUERY {quote(query)}; RESUME QUERY {quote(query)}")

    names = ["it's `a.b`/c:d größe $1 %"]
    rows = [(1, "7"), (2, "no")]
    with App(state=tmp_path / "state") as app:
        for name in names:
            begin(app, name)
            app.send(f"s {name}", [{"id": i, name: v} for i, v in rows])
        app.drain()
        for name in names:
            end(app, name, 1)
    with App(state=tmp_path / "state") as app:
        for name in names:
            app.send(f"s {name}", [{"id": i, name: v} for i, v in rows])
        app.drain()
        for name in names:
            end(app, name, 2)
            with pytest.raises(Error) as caught:
                app.sql(f"DROP TABLE {quote(name)}")
            app.sql(str(caught.value.hint).split(" drops")[0])  # DROP TABLE `…` CASCADE
            assert name not in app.tables()


@pytest.mark.parametrize("name", NASTY)
def test_over_http(name: str) -> None:
    with App() as app, app.serve(port=0) as server:
        make(app, name)
        app.sql(f"CREATE STREAM {quote('s ' + name)} (id INT)")

        def ask(path: str, body: Any = None) -> Any:
            data = None if body is None else json.dumps(body).encode()
            request = urllib.request.Request(server.url + path, data, {"Content-Type": "application/json"})
            with urllib.request.urlopen(request) as answer:
                return json.loads(answer.read() or b"null")

        path = f"/tables/{in_url(name, safe='')}"
        assert ask(path)["name"] == name
        assert ask(f"{path}/rows/1") == {"id": 1, f"v {name}": "a!"}
        assert [r["id"] for r in ask(f"{path}/rows?limit=2")["rows"]] == [1, 3]
        assert [r["id"] for r in ask(f"{path}/rows?limit=2&after=3")["rows"]] == [5]
        ask(f"/streams/{in_url('s ' + name, safe='')}", [{"id": 1}, {"id": 2}])
        streams = ask("/streams")
        assert name in [t["name"] for t in ask("/tables")["tables"]], streams
        assert f"table:{name}".lower() in [n["id"].lower() for n in ask("/graph")["nodes"]]
        with urllib.request.urlopen(server.url + "/metrics") as answer:
            text = answer.read().decode()
        from prometheus_client.parser import text_string_to_metric_families

        labels = {
            v
            for family in text_string_to_metric_families(text)
            for s in family.samples
            for v in s.labels.values()
        }
        assert name in labels


def test_names_that_are_kept_for_the_app(tmp_path: Path) -> None:
    with App() as app:
        app.sql("CREATE STREAM `a$b` (id INT); CREATE TABLE `a$state of affairs` (id INT)")
        for name in ("t$errors", "T$Waiting", "q$values12", "x$1", "table:t", "Stream:s"):
            for kind in ("TABLE {} (id INT)", "STREAM {} (id INT)", "VIEW {} AS SELECT 1 AS x"):
                with pytest.raises(Error, match="cannot be the name") as caught:
                    app.sql("CREATE " + kind.format(quote(name)))
                assert caught.value.column == len("CREATE ") + kind.index("{") + 1
        for text, message in (
            ("CREATE TABLE `kafka://x` (id INT)", "cannot be the name"),
            ("CREATE TABLE `  ` (id INT)", "cannot be empty"),
            ("CREATE TABLE `a\0b` (id INT)", "cannot be the name"),
            ("CREATE TABLE 1a (id INT)", "cannot be the name"),
        ):
            with pytest.raises(Error, match=message):
                app.sql(text)
        assert app.tables() == ["a$state of affairs"]


def test_other_apps_read_it_by_its_uri() -> None:
    with App() as app, App() as other:
        make(app, "/a b?%/")
        other.sql("CREATE TABLE copy AS SELECT id FROM memory://%2Fa%20b%3F%25%2F WITH ('refresh' = 'once')")
        assert len(other.table("copy")) == 3
