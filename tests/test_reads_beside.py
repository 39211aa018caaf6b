"""Queries take a version of the catalog and a snapshot, and no lock: a slow one delays nobody, and sees one state."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from millpond import App, Error
from millpond.errors import UnknownName
from millpond.sql.catalog import Catalog, Index, Relation
from millpond.types import Schema
from tests.webserver import Asked, Reply, WebServer

LONG = 20.0
"""Seconds after which something that must not wait has waited."""


class SlowServer:
    """Answers with one row, when it is let: ``asked`` is set when somebody waits for it."""

    def __init__(self) -> None:
        self.asked, self.open = threading.Event(), threading.Event()
        self._web = WebServer()
        self._web.routes["/rows"] = self._rows
        self.url = f"{self._web.url}/rows"

    def _rows(self, asked: Asked) -> Reply:
        self.asked.set()
        self.open.wait()
        return 200, {"Content-Type": "application/json"}, json.dumps([{"id": 1, "name": "slow"}]).encode()

    def close(self) -> None:
        self.open.set()
        self._web.close()


@pytest.fixture
def slow() -> Iterator[SlowServer]:
    server = SlowServer()
    yield server
    server.close()


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor() as pool:
        yield pool


@pytest.fixture
def app() -> Iterator[App]:
    with App("CREATE TABLE t (id INT PRIMARY KEY, name STRING); INSERT INTO t VALUES (1, 'a')") as app:
        yield app


STATEMENTS = {
    "lookup": "SELECT name FROM t WHERE id = 1",
    "aggregate": "SELECT COUNT(*) FROM t",
    "several": "SELECT 1; SELECT name FROM t",
    "explain": "EXPLAIN SELECT COUNT(*) FROM t",
    "show": "SHOW TABLES",
    "insert": "INSERT INTO t VALUES (2, 'b')",
    "insert from": "INSERT INTO t SELECT id + 10, name FROM t",
    "update": "UPDATE t SET name = 'c' WHERE id = 1",
    "transaction": "BEGIN; UPDATE t SET name = 'd'; COMMIT",
    "create": "CREATE TABLE u AS SELECT * FROM t",
    "drop": "DROP TABLE IF EXISTS v",
}


@pytest.mark.parametrize("form", ["{url}", "t JOIN {url} AS s ON s.id = t.id", "w"])
def test_a_query_on_a_slow_source_delays_nobody(
    app: App, slow: SlowServer, threads: ThreadPoolExecutor, form: str
) -> None:
    app.sql("CREATE TABLE v (id INT)")
    if form == "w":
        slow.open.set()
        app.sql(f"CREATE VIEW w AS SELECT * FROM {slow.url}")
        slow.open.clear()
        slow.asked.clear()
    found = threads.submit(app.sql, f"SELECT * FROM {form.format(url=slow.url)}")
    assert slow.asked.wait(LONG)
    for name, text in STATEMENTS.items():
        assert threads.submit(app.sql, text).result(LONG) is not None, name
    assert not found.done()
    slow.open.set()
    assert found.result(LONG).to_arrow().num_rows == 1


def test_a_statement_that_holds_the_lock_delays_no_query(
    app: App, slow: SlowServer, threads: ThreadPoolExecutor
) -> None:
    made = threads.submit(app.sql, f"CREATE TABLE u AS SELECT * FROM {slow.url}")
    assert slow.asked.wait(LONG)
    for name in ("lookup", "aggregate", "several", "explain"):
        assert threads.submit(app.sql, STATEMENTS[name]).result(LONG) is not None
    slow.open.set()
    made.result(LONG)
    assert app.sql("SELECT name FROM u").rows() == [{"name": "slow"}]


def test_a_query_on_a_table_that_is_being_filled_waits(app: App, threads: ThreadPoolExecutor) -> None:
    """Neither the plan cache nor the way without a plan shows a part of it."""
    began, go_on = threading.Event(), threading.Event()

    def held(id: int) -> int:
        began.set()
        go_on.wait()
        return id

    app.function(held)
    made = threads.submit(app.sql, "CREATE TABLE u AS SELECT held(id) AS id FROM t")
    assert began.wait(LONG)
    texts = ["SELECT COUNT(*) AS n FROM u", "SELECT 1; SELECT COUNT(*) AS n FROM u"]
    found = [threads.submit(app.sql, text) for text in texts]
    waiting: list[Future[Any]] = [f for f in found if not _ends_within(f, 0.3)]
    go_on.set()
    made.result(LONG)
    assert [f.result(LONG).rows() for f in found] == [[{"n": 1}], [{"n": 1}]]
    assert waiting == found


def _ends_within(future: Future[Any], seconds: float) -> bool:
    try:
        future.result(seconds)
    except TimeoutError:
        return False
    except Error:
        return True
    return True


def test_what_a_query_opens_is_its_own(app: App, tmp_path: Path, threads: ThreadPoolExecutor) -> None:
    """Queries that read one address with other options at the same time each see their own."""
    path = tmp_path / "a.csv"
    path.write_text("id;x\n1;2\n")
    texts = {
        f"SELECT * FROM file://{path} WITH ('delimiter' = ';')": [{"id": 1, "x": 2}],
        f"SELECT * FROM file://{path} WITH ('delimiter' = ',')": [{"id;x": "1;2"}],
    }

    def ask(text: str) -> None:
        for _ in range(20):
            assert app.sql(text).rows() == texts[text]

    for done in [threads.submit(ask, text) for text in (*texts, *texts)]:
        done.result(LONG)
    assert not app._runtime.connectors.opened()
    assert not [uri for uri in app._runtime.sources.values if str(path) in uri]


def test_a_version_of_the_catalog_never_changes() -> None:
    catalog = Catalog()
    catalog.add(Relation("T", "table", Schema(())))
    catalog.add_index(Index("i", "t", ("a",)))
    version, copy = catalog.version, catalog.copy()
    changes: list[Callable[[], None]] = [
        lambda: catalog.add(Relation("u", "table", Schema(()))),
        lambda: catalog.remove("t"),
        lambda: copy.remove_index("i"),
    ]
    for change in changes:
        change()
        assert [r.name for r in version] == ["T"] and version.index("I") == Index("i", "t", ("a",))
    assert catalog.names() == ["u"] and not catalog.indexes()
    assert copy.names() == ["T"] and not copy.indexes()
    with pytest.raises(TypeError):
        version.relations["u"] = Relation("u", "table", Schema(()))  # type: ignore[index]


def test_changes_of_the_catalog_at_once_are_all_there(threads: ThreadPoolExecutor) -> None:
    catalog = Catalog()

    def add(part: int) -> None:
        for number in range(200):
            catalog.add(Relation(f"t{part}_{number}", "table", Schema(())))
            if number % 2:
                catalog.remove(f"t{part}_{number}")

    for done in [threads.submit(add, part) for part in range(4)]:
        done.result(LONG)
    assert len(catalog.names()) == 400


def test_queries_beside_declarations_see_one_state(app: App) -> None:
    """A table that is dropped and made again with other columns is one or the other, or not there."""
    end, errors = threading.Event(), []
    forms = ["id INT, a INT", "id INT, a STRING, b STRING", "a DOUBLE"]

    def declare() -> None:
        chance = random.Random(1)
        try:
            for _ in range(40):
                app.sql(f"CREATE TABLE x ({chance.choice(forms)}); INSERT INTO x (a) VALUES (1)")
                app.sql("DROP TABLE x")
        except BaseException as error:
            errors.append(error)
        end.set()

    def ask(text: str) -> None:
        try:
            while not end.is_set():
                try:
                    found = app.sql(text).rows()
                    assert len(found) < 2 and all(str(r["a"]) in ("1", "1.0") for r in found)
                except UnknownName:
                    pass
        except BaseException as error:
            errors.append(error)

    texts = ["SELECT * FROM x", "SELECT 1; SELECT x.* FROM x JOIN t ON TRUE", "SELECT a FROM x WHERE a = 1"]
    threads = [threading.Thread(target=declare)]
    threads += [threading.Thread(target=ask, args=(text,)) for text in texts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


def test_a_table_that_could_not_be_filled_is_gone_before_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.csv").write_text("x\n1\nno\n")
    with App(state=tmp_path / "state") as app:
        runtime, there = app._runtime, []
        end = runtime.loader.end_loading

        def ended(name: str) -> None:
            there.append(runtime.catalog.find(name) is not None)
            end(name)

        monkeypatch.setattr(runtime.loader, "end_loading", ended)
        with pytest.raises(Error):
            app.sql(
                f"CREATE TABLE t AS SELECT CAST(x AS INT) AS x FROM file://{tmp_path}/a.csv WITH ('on.error' = 'fail')"
            )
        assert there == [False]
        app.sql("CREATE TABLE u AS SELECT 1 AS x")
        assert there == [False, True]
