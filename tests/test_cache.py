"""The cache: the least recently used row goes, nothing else; in front of a database it is never stale."""

from __future__ import annotations

import random
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from millpond import App, Error
from millpond.errors import InvalidOption, NotSupported
from millpond.options import read_options, settings_of
from millpond.query.evaluate import Evaluator
from millpond.query.stats import Health
from millpond.query.table import Table
from millpond.query.table_writer import no_spark
from millpond.sql.catalog import Relation
from millpond.sql.filters import parse_columns
from millpond.sql.windowing import WINDOW_OPTIONS
from millpond.tables.cache import CacheTable

pytestmark = pytest.mark.slow


class Home:
    """Changes of a cache without an app."""

    def __init__(self, backend: CacheTable):
        self.commit = backend.apply

    def put(self, *given: Any) -> None:
        return None

    def health(self) -> tuple[str, Health]:
        return "program", Health("healthy", "a test")

    def followed(self) -> dict[str, Any]:
        return {}


def make(columns: str = "id INT PRIMARY KEY, v STRING", **options: str) -> tuple[Table, CacheTable]:
    schema = parse_columns(columns)
    values = read_options("t", CacheTable.options, settings_of(options))
    backend = CacheTable.open("t", schema, values)
    return Table.of(Relation("t", "table", schema), backend, Evaluator(no_spark), Home(backend)), backend


steps = st.lists(
    st.tuples(st.sampled_from(["put", "get", "contains", "find"]), st.integers(0, 7)), max_size=60
)


@given(steps)
@settings(max_examples=100, deadline=None)
def test_the_least_recently_used_row_goes(steps: list[tuple[str, int]]) -> None:
    table, _ = make(max_size="3")
    model: OrderedDict[int, str] = OrderedDict()
    hits = asked = evicted = 0
    for number, (what, key) in enumerate(steps):
        if what == "put":
            table.insert({"id": key, "v": str(number)})
            model.pop(key, None)
            model[key] = str(number)
            while len(model) > 3:
                model.popitem(last=False)
                evicted += 1
            continue
        asked += 1
        hits += key in model
        record = {"id": key, "v": model[key]} if key in model else None
        if what == "get":
            assert table.get_record(key) == record
        elif what == "contains":
            assert table.contains(key) == (record is not None)
        else:
            assert table.find_rows_for_join("id", [key]) == ([record] if record else [])
        if key in model:
            model.move_to_end(key)
    assert {r["id"]: r["v"] for r in table.all_rows()} == model
    about = table.get_stats()
    assert (about["hits"], about["misses"], about.evictions) == (hits, asked - hits, evicted)


COLUMNS = "id INT, part STRING, v STRING, PRIMARY KEY (id, part)"
SQL = """
CREATE TABLE c ({columns}) WITH ('extension' = 'cache', 'max_size' = '4'{over});
CREATE STREAM s (id INT, part STRING);
CREATE TABLE met (id INT, part STRING, v STRING);
INSERT INTO met SELECT s.id, s.part, c.v FROM s JOIN c ON s.id = c.id AND c.part = s.part;
CREATE TABLE checked (id INT, part STRING);
INSERT INTO checked SELECT id, part FROM s WHERE EXISTS (SELECT 1 FROM c WHERE c.id = s.id AND c.part = s.part);
"""
READS: dict[str, Callable[[App, int, str], Any]] = {
    "get_record": lambda app, i, p: [r] if (r := app.table("c").get_record((i, p))) else [],
    "contains": lambda app, i, p: app.table("c").contains((i, p)),
    "contains by name": lambda app, i, p: app.table("c").contains(part=p, id=i),
    "find by name": lambda app, i, p: app.table("c").find(id=i, part=p),
    "find": lambda app, i, p: app.table("c").find(f"id = {i} AND part = '{p}'"),
    "find with more": lambda app, i, p: app.table("c").find(f"id = {i} AND part = '{p}' AND v <> ''"),
    "sql_exists": lambda app, i, p: app.table("c").sql_exists(f"id = {i} AND part = '{p}'"),
    "sql_column_values": lambda app, i, p: app.table("c").sql_column_values(
        "v", f"id = {i} AND part = '{p}'"
    ),
    "join": lambda app, i, p: app.table("c").find_rows_for_join(("id", "part"), [(i, p)]),
    "snapshot": lambda app, i, p: app.table("c").snapshot().find(id=i, part=p),
    "SELECT": lambda app, i, p: app.sql(f"SELECT * FROM c WHERE id = {i} AND part = '{p}'").rows(),
    "SELECT ?": lambda app, i, p: app.sql("SELECT * FROM c WHERE id = ? AND part = ?", [i, p]).rows(),
    "SELECT of an expression": lambda app, i, p: app.sql(
        f"SELECT upper(v) AS v FROM c WHERE part = '{p}' AND id = {i}"
    ).rows(),
    "SELECT of an aggregate": lambda app, i, p: app.sql(
        f"SELECT max(v) AS v FROM c WHERE part = '{p}' AND id = {i} HAVING count(*) > 0"
    ).rows(),
    "transaction": lambda app, i, p: app.begin_transaction().table("c").find(id=i, part=p),
}
SCANS: list[Callable[[App], Any]] = [
    lambda app: app.table("c").all_rows(),
    lambda app: app.table("c").find("v LIKE '%1%'"),
    lambda app: app.table("c").find(part="x"),
    lambda app: app.sql("SELECT COUNT(*) AS n FROM c WHERE id > 1").rows(),
    lambda app: app.sql("SELECT a.v FROM c a JOIN c b ON a.id = b.id AND a.part = b.part").rows(),
]
uses = st.lists(
    st.tuples(
        st.sampled_from(["put", "put", "update", "scan", "stream", *READS]),
        st.integers(0, 3),
        st.sampled_from(["x", "y"]),
    ),
    min_size=1,
    max_size=25,
)


@pytest.mark.parametrize("over", [False, True])
def test_every_read_by_key_is_use(over: bool, tmp_path: Path) -> None:
    """Against a plain model: reads and writes by key move a row to the end of the line, scans do not."""
    numbers = iter(range(1_000_000))

    def check(steps: list[tuple[str, int, str]]) -> None:
        more = f", 'cache.over' = 'sqlite:///{tmp_path}/{next(numbers)}.db', 'table' = 'rows'" if over else ""
        with App(SQL.format(columns=COLUMNS, over=more), _direct=True) as app:
            follow(app, steps, over=over)

    full = [(what, i, "x") for what in ("put", "get_record") for i in range(4)]
    check([*full, *((what, n % 3, "x") for n, what in enumerate(("stream", *READS)))])
    settings(max_examples=12, deadline=None)(given(uses)(check))()


def follow(app: App, steps: list[tuple[str, int, str]], *, over: bool) -> None:
    there: dict[tuple[int, str], str] = {}
    line: OrderedDict[tuple[int, str], None] = OrderedDict()

    def used(key: tuple[int, str]) -> None:
        """In front of another table a read brings the row in, and a change takes it out."""
        if key in there if over else key in line:
            line[key] = None
            line.move_to_end(key)
        while len(line) > 4:
            gone, _ = line.popitem(last=False)
            if not over:
                del there[gone]

    for number, (what, i, part) in enumerate(steps):
        key = (i, part)
        if what == "put" or (what == "update" and key in there):
            if what == "put":
                app.table("c").insert({"id": i, "part": part, "v": f"v{number}"})
            else:
                assert app.sql(f"UPDATE c SET v = 'v{number}' WHERE id = {i} AND part = '{part}'").count == 1
            there[key] = f"v{number}"
            line.pop(key, None)
            if not over:
                line[key] = None
                used(key)
        elif what == "scan":
            SCANS[i % len(SCANS)](app)
        elif what == "stream":
            before = len(app.table("met")), len(app.table("checked"))
            app.send("s", {"id": i, "part": part})
            app.drain()
            grown = len(app.table("met")) - before[0], len(app.table("checked")) - before[1]
            assert grown == (key in there, key in there)
            used(key)
        elif what in READS:
            assert bool(READS[what](app, i, part)) == (key in there), what
            if not (over and what == "transaction"):
                used(key)
        assert held(app) == list(line), what


def held(app: App) -> list[tuple[int, str]]:
    """The keys in the cache, the least recently used first."""
    backend = app._runtime.store.table("c")
    assert isinstance(backend, CacheTable)
    return list(backend.rows._used)  # type: ignore[arg-type]


def test_a_large_insert_keeps_the_last_rows() -> None:
    table, _ = make(max_size="1000")
    table.bulk_insert([{"id": n, "v": str(n)} for n in range(10_000)])
    assert sorted(r["id"] for r in table) == list(range(9000, 10_000))
    assert table.get_stats().evictions == 9000


def test_the_default_is_ten_thousand_rows() -> None:
    table, _ = make()
    table.bulk_insert([{"id": n} for n in range(10_001)])
    assert len(table) == 10_000 and not table.contains(0)


def test_memory_is_bounded() -> None:
    table, backend = make(max_memory="1MB", max_size="1000000")
    for start in range(0, 20_000, 500):
        table.bulk_insert([{"id": n, "v": "x" * 100} for n in range(start, start + 500)])
        assert backend.rows.bytes <= 1 << 20
    assert 2000 < len(table) < 4000 and table.contains(19_999)


def test_rows_without_a_key_go_in_their_order() -> None:
    table, _ = make("v STRING", max_size="2")
    for v in "abc":
        table.insert({"v": v})
    assert [r["v"] for r in table] == ["b", "c"]


def test_ttl_counts_from_the_last_write() -> None:
    table, backend = make(ttl="10s")
    now = [0.0]
    backend.rows.clock = lambda: now[0]
    table.insert({"id": 1, "v": "a"})
    now[0] = 6
    table.insert({"id": 2, "v": "b"})
    assert table.contains(1) and len(table) == 2
    now[0] = 10
    assert not table.contains(1) and table.get_record(1) is None and len(table) == 1
    table.insert({"id": 2, "v": "c"})
    now[0] = 19
    assert table.get_record(2) == {"id": 2, "v": "c"}
    now[0] = 20
    assert table.all_rows() == [] and table.get_stats()["expired"] == 2


def test_in_an_app_it_is_empty_after_a_restart(tmp_state: Path) -> None:
    text = """
        CREATE TABLE c (id INT PRIMARY KEY, v STRING) WITH ('extension' = 'cache', 'max_size' = '2');
        CREATE TABLE m (id INT PRIMARY KEY);
    """
    with App(text, state=tmp_state) as app:
        app.sql("INSERT INTO c VALUES (1, 'a'), (2, 'b'), (3, 'c')")
        app.sql("BEGIN; INSERT INTO m VALUES (1); UPDATE c SET v = 'x' WHERE id = 3; COMMIT")
        assert {r["id"]: r["v"] for r in app.sql("SELECT * FROM c").rows()} == {2: "b", 3: "x"}
        about = {r["property"]: r["value"] for r in app.sql("DESCRIBE EXTENDED c").rows()}
        assert about["evictions"] == "1"
    with App(text, state=tmp_state) as app:
        assert len(app.table("c")) == 0 and len(app.table("m")) == 1


@pytest.fixture
def over(tmp_path: Path, tmp_state: Path) -> Iterator[App]:
    url = f"sqlite:///{tmp_path / 'x.db'}"
    text = f"""
        CREATE TABLE c (id INT PRIMARY KEY, v STRING)
          WITH ('extension' = 'cache', 'max_size' = '3', 'cache.over' = '{url}', 'table' = 'rows');
        CREATE TABLE direct (id INT PRIMARY KEY, v STRING)
          WITH ('extension' = 'sqlite', 'url' = '{url}', 'table' = 'rows');
    """
    with App(text, state=tmp_state) as app:
        yield app


def cached(app: App) -> int:
    return int(app.table("c").get_stats()["cached_rows"])


def test_reads_and_writes_go_through(over: App) -> None:
    over.sql("INSERT INTO c VALUES (1, 'a'), (2, 'b'), (3, 'c'), (4, 'd'), (5, 'e')")
    assert len(over.table("direct")) == len(over.table("c")) == 5 and cached(over) == 0
    table = over.table("c")
    for _ in range(2):
        assert table.get_record(1) == {"id": 1, "v": "a"} and table.get_record(9) is None
    assert cached(over) == 1
    assert (table.get_stats()["hits"], table.get_stats()["misses"]) == (1, 3)
    assert [r["id"] for r in table.find_rows_for_join("id", [1, 2, 3, 4, 9])] == [1, 2, 3, 4]
    assert cached(over) == 3
    over.sql("UPDATE c SET v = upper(v) WHERE id > 2")
    assert [table.get_record(i)["v"] for i in range(1, 6)] == ["a", "b", "C", "D", "E"]
    table.delete(3)
    assert table.get_record(3) is None and not over.table("direct").contains(3)
    assert over.sql("SELECT COUNT(*) AS n FROM c WHERE v > 'A'").rows() == [{"n": 4}]
    with over.begin_transaction() as tx:
        tx.sql("UPDATE c SET v = 'tx' WHERE id = 1")
        assert table.get_record(1)["v"] == "a"
    assert table.get_record(1)["v"] == "tx"


def test_a_change_that_others_make_is_seen_after_the_ttl(over: App) -> None:
    table = over.table("c")
    table.insert({"id": 1, "v": "a"})
    assert table.get_record(1)["v"] == "a"
    over.sql("UPDATE direct SET v = 'b'")
    assert table.get_record(1)["v"] == "a", "a copy is a copy"
    assert table.find("v = 'b'") == [{"id": 1, "v": "b"}], "conditions go to the database"


def test_a_reader_never_puts_back_an_old_row(over: App) -> None:
    """Writers count up, readers must never see a number go down."""
    table = over.table("c")
    table.bulk_insert([{"id": i, "v": "0"} for i in range(4)])
    stop, wrong = threading.Event(), []

    def read(seed: int) -> None:
        chance, seen = random.Random(seed), [0] * 4
        while not stop.is_set():
            key = chance.randrange(4)
            value = int(table.get_record(key)["v"])
            if value < seen[key]:
                wrong.append((key, seen[key], value))
            seen[key] = value

    readers = [threading.Thread(target=read, args=(n,)) for n in range(3)]
    for reader in readers:
        reader.start()
    for number in range(1, 150):
        table.insert({"id": number % 4, "v": str(number)})
        assert table.get_record(number % 4)["v"] == str(number)
    stop.set()
    for reader in readers:
        reader.join()
    assert not wrong


def test_what_a_cache_cannot_be() -> None:
    with App() as app:
        for options, error in (
            ("'max_size' = '0'", InvalidOption),
            ("'cache.over' = 'memory'", InvalidOption),
            ("'cache.over' = 'delta://x'", InvalidOption),
            ("'cache.over' = 'nothing://x'", Error),
        ):
            with pytest.raises(error):
                app.sql(f"CREATE TABLE t (id INT PRIMARY KEY) WITH ('extension' = 'cache', {options})")
        with pytest.raises(NotSupported, match="primary key"):
            app.sql("CREATE TABLE t (id INT) WITH ('extension' = 'cache', 'cache.over' = 'sqlite')")
        assert app.tables() == []


def test_a18_a_cache_of_two_rows() -> None:
    with App(
        "CREATE TABLE c (id STRING PRIMARY KEY, v INT) WITH ('extension' = 'cache', 'max_size' = '2');"
        "INSERT INTO c VALUES ('a', 1), ('b', 2), ('c', 3)"
    ) as app:
        assert app.sql("SELECT id FROM c ORDER BY id").rows() == [{"id": "b"}, {"id": "c"}]


@pytest.mark.parametrize("retention", ["7 days", "1 hour", "30 minutes"])
def test_e6_a_retention_in_words(retention: str) -> None:
    assert read_options("it", WINDOW_OPTIONS, settings_of({"retention": retention}))["retention"]
