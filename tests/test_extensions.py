"""Sources, sinks, tables, formats and functions that come in packages of their own, by entry points."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from millpond import App
from millpond.connectors.sink import NativeSink, find_sink
from millpond.connectors.source import NativeSource, every_source, find_source, sources
from millpond.errors import BadExtension, InvalidOption, NotSupported, Place, UnknownName
from millpond.extensions import offered
from millpond.formats.base import find_format, has_known_suffix
from millpond.formats.messages.base import find_messages
from millpond.http.failures import Refused
from millpond.http.restrictions import Calls
from millpond.options import read_options, settings_of
from millpond.sql.parse import parse
from millpond.sql.userfunctions import _offered_function, offered_function
from millpond.tables import find_backend
from millpond.types import Column, Schema
from tests.installed import install, offer, use
from tests.test_docs import ROOT, blocks

LEDGER = {str(b.file): b.text for b in blocks(ROOT / "docs" / "connectors.md") if b.file}
LOGFMT = {str(b.file): b.text for b in blocks(ROOT / "docs" / "extensions.md") if b.file}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package of the documentation, as pip installs it."""
    return installed(LEDGER, tmp_path_factory)


@pytest.fixture(scope="module")
def logfmt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package of a sink, two formats and two functions."""
    return installed(LOGFMT, tmp_path_factory)


def installed(files: Mapping[str, str], folders: pytest.TempPathFactory) -> Path:
    project, site = folders.mktemp("project"), folders.mktemp("site")
    for name, text in files.items():
        (project / name).write_text(text)
    install(project, site)
    return site


@pytest.fixture
def ledger(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> str:
    """The URI of the documentation's ledger, read by the source that is installed."""
    use(site, monkeypatch, request)
    (tmp_path / "sales.jsonl").write_text(LEDGER["sales.jsonl"])
    return f"ledger://{tmp_path}/sales.jsonl"


def test_a_table_over_it_is_loaded_and_follows(ledger: str, tmp_path: Path) -> None:
    with App(f"CREATE TABLE s (id BIGINT PRIMARY KEY, item STRING) AS SELECT id, item FROM {ledger}") as app:
        app.drain()
        assert app.sql("SELECT * FROM s WHERE id = 2").rows() == [{"id": 2, "item": "rice"}]
        with open(tmp_path / "sales.jsonl", "a") as file:
            file.write('# closed\n{"id": 4, "item": "salt"}\n{"id": 5')
        app.drain()
        assert sorted(r["id"] for r in app.table("s")) == [1, 2, 3, 4]


def test_its_columns_are_discovered_and_its_options_are_checked(ledger: str) -> None:
    with App() as app:
        found = app.sql(f"SELECT item, SUM(amount) AS n FROM {ledger} GROUP BY item ORDER BY item").rows()
        assert found == [{"item": "rice", "n": 7}, {"item": "tea", "n": 7}]
        with pytest.raises(UnknownName, match="coment") as e:
            app.sql(f"SELECT * FROM {ledger} WITH ('coment' = '%')")
        assert "comment" in str(e.value.hint)


@pytest.mark.spark
@pytest.mark.slow
def test_a_running_statement_reads_it_in_the_processes_of_spark(
    ledger: str, site: Path, tmp_path: Path
) -> None:
    """In a process of its own: Spark's workers find the package by the path that they are started with."""
    code = f"""
from millpond import App
with App(state={str(tmp_path / "state")!r}) as app:
    app.sql("CREATE STREAM s (id BIGINT, item STRING) WITH ('connector' = '{ledger}')")
    app.sql("CREATE TABLE totals AS SELECT item, COUNT(*) AS n FROM s GROUP BY item")
    app.drain()
    print(sorted((r["item"], r["n"]) for r in app.table("totals")))
"""
    assert run([site], "-c", code) == "[('rice', 1), ('tea', 2)]"


@pytest.mark.slow
def test_the_suite_that_ships_runs_over_it(site: Path, tmp_path: Path) -> None:
    (tmp_path / "test_ledger.py").write_text(LEDGER["test_ledger.py"])
    said = run_suite(tmp_path, site)
    assert said.splitlines()[-1].startswith("12 passed"), said


@pytest.mark.slow
def test_the_suite_finds_a_source_that_breaks_a_promise(site: Path, tmp_path: Path) -> None:
    broken = LEDGER["millpond_ledger.py"].replace('.rfind(b"\\n") + 1}', '.rfind(b"\\n") - 5}')
    assert broken != LEDGER["millpond_ledger.py"]
    (tmp_path / "millpond_ledger.py").write_text(broken)
    (tmp_path / "test_ledger.py").write_text(LEDGER["test_ledger.py"])
    with pytest.raises(AssertionError, match=r"FAILED .*test_ranges_continue"):
        run_suite(tmp_path, tmp_path, site)


@pytest.mark.slow
def test_the_suites_that_ship_run_over_a_sink_formats_and_functions(logfmt: Path, tmp_path: Path) -> None:
    (tmp_path / "test_logfmt.py").write_text(LOGFMT["test_logfmt.py"])
    said = run_suite(tmp_path, logfmt)
    assert said.splitlines()[-1].startswith("45 passed"), said


BROKEN = {
    "TestSink": (
        "logfmt_sink.py",
        '"a", encoding',
        '"w", encoding',
        "test_rows_are_there_when_write_returns",
    ),
    "TestFiles": (
        "logfmt_files.py",
        "while lines := [line.encode() for line in islice(file, ROWS)]:",
        "for lines in [[line.encode() for line in islice(file, 9)]]:",
        "test_pieces_are_the_whole_in_order",
    ),
    "TestMessages": ("logfmt_messages.py", "name.lower()", "name.upper()", "test_messages_are_decoded"),
    "TestInitials": ("logfmt_functions.py", "None if text is None else ", "", "test_null_is_an_argument"),
}


@pytest.mark.slow
@pytest.mark.parametrize("suite", BROKEN)
def test_the_suites_find_a_broken_promise(logfmt: Path, tmp_path: Path, suite: str) -> None:
    file, right, wrong, failed = BROKEN[suite]
    assert right in LOGFMT[file]
    (tmp_path / file).write_text(LOGFMT[file].replace(right, wrong))
    (tmp_path / "test_logfmt.py").write_text(LOGFMT["test_logfmt.py"])
    with pytest.raises(AssertionError, match=f"FAILED .*{failed}"):
        run_suite(tmp_path, tmp_path, logfmt, only=suite)


def test_a_function_of_another_package(
    logfmt: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    with App() as app, pytest.raises(UnknownName, match="initials"):
        app.sql("SELECT initials('a b') AS v")
    use(logfmt, monkeypatch, request)
    with App("CREATE TABLE t (id INT PRIMARY KEY, s STRING); INSERT INTO t VALUES (1, 'green tea')") as app:
        assert app.sql("SELECT both(INITIALS(s), 'x') AS v FROM t").rows() == [{"v": "gt-x"}]
        with pytest.raises(UnknownName, match="initialz") as e:
            app.sql("SELECT initialz(s) AS v FROM t")
        assert e.value.hint == 'did you mean "initials"?'
        with pytest.raises(Refused, match='"initials" of another package is not for HTTP clients'):
            Calls({}).check(parse("SELECT initials('a') AS v").require(), partial(Place.of, ""))

        @app.function(name="initials")
        def own(text: str) -> str:
            return "own"

        assert app.sql("SELECT initials(s) AS v FROM t").rows() == [{"v": "own"}]  # the app's come first


@pytest.mark.spark
@pytest.mark.slow
def test_a_function_of_another_package_on_spark(logfmt: Path, tmp_path: Path) -> None:
    code = """
from millpond import App
with App("CREATE TABLE t (id INT PRIMARY KEY, s STRING); INSERT INTO t VALUES (1, 'green tea')", _path="spark") as app:
    print(app.sql("SELECT both(initials(s), 'x') AS v FROM t").rows())
"""
    assert run([logfmt], "-c", code) == "[{'v': 'gt-x'}]"


def test_messages_of_another_package(
    logfmt: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    use(logfmt, monkeypatch, request)
    source = find_source("kafka://t")
    values = read_options("t", source.options, settings_of({"format": "LOGFMT"}))
    opened = source("kafka://t", values, Schema((Column("id", pa.int64()), Column("s", pa.string()))))
    raw = pa.table(
        {
            "key": pa.array([None, None], pa.binary()),
            "value": pa.array([b'id=1 s="a b"', b"id=x"], pa.binary()),
            "partition": pa.array([0, 0], pa.int32()),
            "offset": pa.array([0, 1]),
            "timestamp": pa.array([0, 1], pa.timestamp("us", "UTC")),
            "headers": pa.nulls(2, opened.schema().arrow().field("_headers").type),
        }
    )
    assert isinstance(opened, NativeSource)
    found = opened.decode(raw)
    assert [(r["id"], r["s"]) for r in found.rows.to_pylist()] == [(1, "a b")]
    assert found.rejected["reason"].to_pylist() == ['"x" in column "id" is not a BIGINT']
    with pytest.raises(InvalidOption, match="logfnt") as e:
        read_options("t", source.options, settings_of({"format": "logfnt"}))
    assert "'avro', 'csv', 'debezium', 'json', 'raw', 'text', 'logfmt'" in str(e.value.hint)
    sink = find_sink("kafka://t")("kafka://t", {"format": "logfmt"}, Schema((Column("id", pa.int64()),)))
    assert isinstance(sink, NativeSink)
    assert sink.encode(pa.table({"id": [7]}))["value"].to_pylist() == [b"id=7"]
    with pytest.raises(NotSupported, match="logfmt"):
        sink.encoding_sql("v")


def run_suite(folder: Path, *sites: Path, only: str = "Test") -> str:
    (file,) = folder.glob("test_*.py")
    return run(sites, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", only, str(file))


def run(sites: Sequence[Path], *arguments: str) -> str:
    """Runs Python with the packages of some folders, and answers what it writes."""
    path = os.pathsep.join([*map(str, sites), str(ROOT)])
    done = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


def test_a_name_of_ours_asks_no_other_package() -> None:
    """Nor does an app that names none but these."""
    code = """
from millpond import App
from millpond.extensions import offered
with App("CREATE TABLE t (id INT PRIMARY KEY, s STRING)") as app:
    app.sql("INSERT INTO t VALUES (1, 'a')")
    app.sql("SELECT * FROM t")
print(offered.cache_info().misses)
"""
    assert run([], "-c", code) == "0"


def test_a_name_that_nobody_has_lists_what_others_offer(ledger: str) -> None:
    with pytest.raises(NotSupported) as e:
        find_source("leger://x")
    assert 'did you mean "ledger"?' in str(e.value.hint) and "ledger://" in str(e.value.hint)
    kinds = {s.kind for s in every_source()}
    assert kinds == {s.kind for s in sources()} | {"ledger"}


MODULE = """
from millpond.connectors.kafka.sink import KafkaSink
from millpond.connectors.sink import Sink
from millpond.connectors.source import Source
from millpond.formats.csv import Csv
from millpond.formats.messages.csv import CsvMessages
from millpond.tables.memory import MemoryTable

class Pipes(Csv):
    name = "pipes"
    suffixes = (".pipes",)

class Shelf(MemoryTable):
    aliases = ()

class Post(KafkaSink):
    kind = "post"
    schemes = ("post",)

class Exact(Sink):
    kind = "exact"
    schemes = ("exact",)
    exact = True
    guarantee = "exactly once"

    def write(self, rows, position): ...

class Half(Source):
    kind = "half"
    schemes = ("half",)

    def schema(self): ...

class Blind(CsvMessages):
    name = "blind"

def untyped(x): ...

class Misnamed(Half):
    def latest(self, start): ...
    def splits(self, start, end): ...
    def read(self, split): ...

number = 7
"""


@pytest.fixture
def toys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """One thing of each kind, and some that cannot be used."""
    (tmp_path / "toys.py").write_text(MODULE)
    offer(tmp_path, "toys_formats", "formats", pipes="toys:Pipes")
    offer(tmp_path, "toys_messages", "messages", blind="toys:Blind")
    offer(tmp_path, "toys_functions", "functions", untyped="toys:untyped", seven="toys:number")
    offer(tmp_path, "toys_tables", "tables", shelf="toys:Shelf")
    offer(tmp_path, "toys_sinks", "sinks", post="toys:Post", twice="toys:Post", exact="toys:Exact")
    offer(tmp_path, "toys_others", "sinks", twice="toys:Half")
    offer(
        tmp_path, "toys_sources", "sources",
        half="toys:Half", gone="toys_that_are_not_there:X", number="toys:number", other="toys:Misnamed",
        file="toys:Half",
    )  # fmt: skip
    use(tmp_path, monkeypatch, request)


def test_every_kind_is_found(toys: None, tmp_path: Path) -> None:
    assert find_sink("post://x").__name__ == "Post"
    assert find_backend("Shelf").__name__ == "Shelf"
    assert find_format("", "PIPES").__name__ == "Pipes"
    assert find_messages("blind").__name__ == "Blind"
    assert has_known_suffix("a.pipes.gz") and not has_known_suffix("a.tubes")
    (tmp_path / "a.pipes").write_text("id,s\n1,x\n")
    with App("CREATE TABLE t (id INT PRIMARY KEY, s STRING) WITH ('extension' = 'shelf')") as app:
        app.sql(f"INSERT INTO t SELECT id, s FROM file://{tmp_path}/a.pipes")
        assert list(app.table("t")) == [{"id": 1, "s": "x"}]


def test_an_exact_sink_stores_no_other_state(toys: None) -> None:
    with App("CREATE STREAM s (id INT, g STRING); CREATE TABLE t (g STRING PRIMARY KEY, n INT)") as app:
        for query, what in {
            "SELECT g, COUNT(*) AS n FROM s GROUP BY g": "exactly-once delivery of an aggregate",
            "SELECT g, n FROM t": "exactly-once delivery of rows of tables, which are written once",
        }.items():
            with pytest.raises(NotSupported, match=what):
                app.sql(f"INSERT INTO exact://x {query}")
        with pytest.raises(InvalidOption, match=r"'on\.miss' = 'retry' and exactly-once delivery do not go"):
            app.sql(
                "INSERT INTO exact://x SELECT s.id, t.n FROM s JOIN t ON s.g = t.g WITH ('on.miss' = 'retry')"
            )


SHELF = """
import pytest
from millpond.testing.contracts import TableContract, TablePlace

class TestShelf(TableContract):
    @pytest.fixture
    def new_place(self, tmp_path):
        return lambda: TablePlace("shelf", {}, tmp_path)
"""


@pytest.mark.slow
def test_the_suite_of_tables_runs_over_a_table(toys: None, tmp_path: Path) -> None:
    (tmp_path / "test_shelf.py").write_text(SHELF)
    said = run_suite(tmp_path, tmp_path)
    assert re.fullmatch(r"8\d passed in .*", said.splitlines()[-1]), said


def test_what_cannot_be_used_is_told_when_it_is_asked_for(toys: None) -> None:
    for scheme, said in {
        "half": "is not complete: Half lacks latest, read, splits",
        "gone": "cannot be imported: No module named 'toys_that_are_not_there'",
        "number": "is no Source",
        "other": "whose schemes are half",
    }.items():
        with pytest.raises(BadExtension, match=said):
            find_source(f"{scheme}://x")
    for name, said in {"untyped": 'cannot be used: argument "x"', "seven": "is no function"}.items():
        with App() as app, pytest.raises(BadExtension, match=said):
            app.sql(f"SELECT {name}(1) AS v")
    with pytest.raises(BadExtension, match="by several packages: toys_others, toys_sinks"):
        find_sink("twice://x")
    assert find_source("file:///x").kind == "file"  # ours come first
    assert {s.kind for s in every_source()} == {*(s.kind for s in sources()), "half"}


def test_names_that_nobody_has(toys: None) -> None:
    with pytest.raises(UnknownName, match="shelv") as table:
        find_backend("shelv")
    assert 'did you mean "shelf"?' in str(table.value.hint)
    with pytest.raises(UnknownName, match="pipe") as form:
        find_format("", "pipe")
    assert form.value.hint == 'did you mean "pipes"?'
    assert set(offered("source")) == {"half", "gone", "number", "other", "file"}


def test_names_that_no_package_offers_are_not_kept() -> None:
    before = _offered_function.cache_info().currsize
    for number in range(5):
        assert offered_function(f"name_of_a_client_{number}") is None
    assert _offered_function.cache_info().currsize == before
