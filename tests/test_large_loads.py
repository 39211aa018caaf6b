"""Large files are loaded by executors: the same rows, types and error records as in process, whoever evaluates."""

from __future__ import annotations

import csv
import decimal
import io
import json
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as hs
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import InheritableThread

from millpond import App, Error, allowance
from millpond.allowance import Allowance
from millpond.app.check import check_text
from millpond.connectors.source import Split
from millpond.engine.failures import explain
from millpond.engine.load_stage import LoadStage
from millpond.engine_rule import Engine
from millpond.errors import (
    InvalidOption,
    NotSupported,
    PackageMissing,
    ResultTooLarge,
    SourceChanged,
    TimedOut,
)
from millpond.loading import chunks, large_reads
from millpond.loading.chunks import Groups, grouped
from millpond.plan.connectors import Connectors
from millpond.testing.faults import failing
from tests.spark_jobs import Jobs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def statements(jobs: Jobs) -> set[str]:
    """The statements that Spark has worked for."""
    return {s.statement for s in jobs.stages if s.statement is not None}


WORDS = ["", "a", "Ä ö", 'q"uote', "comma, here", "line\nbreak", "tab\t", "null", "1e5", "🙂"]


# random files


def a_row(chance: random.Random, i: int) -> dict[str, Any]:
    def maybe(value: Any) -> Any:
        return None if chance.random() < 0.1 else value

    return {
        "id": i,
        "k": chance.randint(0, 20),
        "n": maybe(chance.randint(-(2**40), 2**40)),
        "x": maybe(chance.choice([0.1, -1.5e300, 3.0, chance.random()])),
        "s": maybe(chance.choice(WORDS)),
        "b": maybe(chance.random() < 0.5),
        "d": maybe(
            "soon" if chance.random() < 0.01 else str(date(2020, 1, 1) + timedelta(chance.randint(0, 900)))
        ),
    }


def write_jsonl(path: Path, chance: random.Random, rows: list[dict[str, Any]]) -> None:
    with path.open("w") as file:
        for row in rows:
            bad = chance.random() < 0.01
            wrong = chance.choice(["{bad", "[1]", '"x"', "{}}"])
            file.write((wrong if bad else json.dumps({**row, "in": {"a": row["k"], "l": [row["n"]]}})) + "\n")


def write_csv(path: Path, chance: random.Random, rows: list[dict[str, Any]]) -> None:
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(rows[0])
    for row in rows:
        values = list(row.values())
        if chance.random() < 0.01:
            values = chance.choice([values[:2], [*values, 1]])
        writer.writerow(values)
    path.write_text(out.getvalue())


def write_parquet(path: Path, chance: random.Random, rows: list[dict[str, Any]]) -> None:
    shape = random.Random(path.parent.name)  # the same for all files of a folder
    at = [datetime(2020, 1, 1, 1, 2, 3, 456789) + timedelta(seconds=r["k"] * 777) for r in rows]
    columns: dict[str, Any] = {name: [r[name] for r in rows] for name in rows[0] if name != "d"} | {
        "d": pa.array([t.date() for t in at], pa.date32())
    }
    columns |= {
        "K2": pa.array(
            [r["k"] for r in rows], shape.choice([pa.uint8(), pa.int8(), pa.uint32(), pa.uint64()])
        ),
        "dec": pa.array([decimal.Decimal(r["k"]).scaleb(-2) for r in rows], pa.decimal128(12, 2)),
        "big": pa.array([decimal.Decimal(r["id"] * 10**20) for r in rows], pa.decimal128(38, 0)),
        "day": pa.array([t.date() for t in at], pa.date32()),
        "local": pa.array(at, pa.timestamp(shape.choice(["s", "ms", "us", "ns"])), safe=False)
        if shape.random() < 0.7
        else pa.array(at, pa.timestamp("us")),
        "inst": pa.array([t.replace(tzinfo=UTC) for t in at], pa.timestamp("us", "Europe/Berlin")),
        "raw": pa.array([(r["s"] or "x").encode() for r in rows], pa.binary()),
        "f": pa.array([r["x"] and min(r["x"], 1e30) for r in rows], pa.float64()).cast(
            pa.float32(), safe=False
        ),
        "st": pa.array([{"a": r["k"], "b": [r["s"], None]} for r in rows]),
        "m": pa.array([[(str(r["k"]), r["n"])] for r in rows], pa.map_(pa.string(), pa.int64())),
    }
    names = list(columns)
    if path.stem != "0" and chance.random() < 0.5:
        names.remove("x")
    table = pa.table({n.upper() if chance.random() < 0.1 else n: columns[n] for n in names})
    pq.write_table(
        table,
        path,
        row_group_size=chance.choice([97, 1000, 100_000]),
        use_deprecated_int96_timestamps=shape.random() < 0.3,
    )


WRITERS = {"jsonl": write_jsonl, "csv": write_csv, "parquet": write_parquet}


def write_files(folder: Path, kind: str, seed: int, rows: int) -> None:
    chance = random.Random(seed)
    folder.mkdir(exist_ok=True)
    at = 0
    for number in range(chance.randint(1, 4)):
        count = chance.randint(1, rows)
        made = [a_row(chance, i) for i in range(at, at + count)]
        WRITERS[kind](folder / f"{number}.{kind}", chance, made)
        at += count


LOADS = """
CREATE TABLE copied AS SELECT * FROM file://{0};
CREATE TABLE typed (id BIGINT, d DATE) AS SELECT id, d FROM file://{0};
CREATE TABLE last (PRIMARY KEY (k)) AS SELECT k, id, s FROM file://{0};
CREATE TABLE made AS SELECT id, upper(s) AS s, k * 2 AS k2, x IS NULL AS u FROM file://{0} WHERE k > 3;
CREATE TABLE groups AS SELECT k, COUNT(*) AS n, SUM(n) AS t, MAX(s) AS s FROM file://{0} GROUP BY k;
CREATE TABLE pairs AS SELECT a.id, b.k FROM file://{0} a JOIN file://{0} b ON a.id = b.id + 1;
CREATE TABLE first AS SELECT id FROM file://{0} LIMIT 5;
CREATE TABLE added (id BIGINT, s STRING);
INSERT INTO added SELECT g.k, f.s FROM file://{0}/0.parquet f JOIN groups g ON g.k = f.k;
"""


def contents(text: str, **options: Any) -> dict[str, tuple[list[str], list[str]]]:
    """The columns and the rows of every table; those of tables without a key in their order."""
    with App(text, **options) as app:
        app.drain()
        found = {}
        tables = [r["name"] for r in app.sql("SHOW TABLES").rows()]
        for table in [*tables, *(f"{name}$errors" for name in tables if name != "added")]:
            rows = app.sql(f"SELECT * FROM `{table}`").to_arrow()
            if table.endswith("$errors"):
                rows = rows.drop_columns(["time"])
            shown = [repr(r) for r in rows.to_pylist()]
            if table not in ("copied", "made", "first"):
                shown = sorted(shown)
            found[table] = ([f"{f.name} {f.type}" for f in rows.schema], shown)
        return found


@pytest.mark.parametrize(
    ("kind", "seed"),
    [
        pytest.param(kind, seed, marks=[] if number == seed else pytest.mark.chaos)
        for number, kind in enumerate(WRITERS)
        for seed in range(3)
    ],
)
def test_the_same_from_executors_as_in_process(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, seed: int
) -> None:
    monkeypatch.setattr(large_reads, "GROUP_ROWS", [1_000_000, 3000, 500][seed])
    write_files(tmp_path / f"files{seed}", kind, seed, 3000)
    text = LOADS.format(tmp_path / f"files{seed}")
    if kind != "parquet":
        text = "\n".join(text.splitlines()[:-1])  # an INSERT has no table for error records
    jobs = Jobs(spark)
    here = contents(text, engine="process")
    assert not {said for said in statements(jobs) if said.startswith(("table:", "insert:"))}
    there = contents(text, engine="spark")
    made = statements(jobs)
    assert {"table:copied", "table:last", "table:made", "table:groups", "table:pairs"} <= made
    assert ("insert:added" in made) == (kind == "parquet")
    assert here.keys() == there.keys()
    for name in here:
        if name == "first":
            assert len(here[name][1]) == len(there[name][1])  # any five rows
        else:
            assert there[name] == here[name], name
    assert bool(here["copied$errors"][1]) == (kind != "parquet") and here["copied"][1]


# the rule


def test_large_files_are_loaded_by_spark_and_small_ones_are_not(spark: SparkSession, tmp_path: Path) -> None:
    large, small = tmp_path / "large.parquet", tmp_path / "small.parquet"
    pq.write_table(pa.table({"id": range(10_001)}), large)
    pq.write_table(pa.table({"id": range(10_000)}), small)
    text = """
    CREATE TABLE a AS SELECT * FROM file://{0};
    CREATE TABLE b AS SELECT COUNT(*) AS n FROM file://{0};
    CREATE TABLE c (id BIGINT);
    INSERT INTO c SELECT id FROM file://{0};
    """
    names = {"table:a", "table:b", "insert:c"}
    jobs = Jobs(spark)
    with App(text.format(small)) as app:
        assert len(app.table("a")) == len(app.table("c")) == 10_000
    assert not names & statements(jobs)
    with App(text.format(large)) as app:
        app.drain()
        assert len(app.table("a")) == len(app.table("c")) == 10_001
        assert app.sql("SELECT n FROM b").rows() == [{"n": 10_001}]
    assert names <= statements(jobs)


def test_the_engine_of_a_statement(spark: SparkSession, tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": range(20)}), tmp_path / "a.parquet")
    uri = f"file://{tmp_path}/a.parquet"
    jobs = Jobs(spark)
    with App(f"CREATE TABLE one WITH ('engine' = 'spark') AS SELECT * FROM {uri}", engine="process") as app:
        app.drain()
        app.sql("CREATE TABLE two (id BIGINT)")
        app.sql(f"INSERT INTO two SELECT id FROM {uri} WITH ('process.max.rows' = '10', 'engine' = 'auto')")
        app.sql(f"CREATE TABLE three WITH ('engine' = 'process') AS SELECT * FROM {uri}")
        assert [len(app.table(t)) for t in ("one", "two", "three")] == [20, 20, 20]
        with pytest.raises(NotSupported, match="only Spark can evaluate"):
            app.sql(f"CREATE TABLE four AS SELECT xpath_int('<a>1</a>', 'a') AS i FROM {uri}")
        with (
            App("CREATE TABLE beside (id BIGINT); INSERT INTO beside VALUES (3)"),
            pytest.raises(NotSupported, match="only Spark can evaluate"),
        ):
            odd = "xpath_int('<a>1</a>', 'a')"
            app.sql(f"INSERT INTO two SELECT {odd} FROM {uri} f JOIN memory://beside b ON b.id = f.id")
    made = statements(jobs)
    assert {"table:one", "insert:two"} <= made and "table:three" not in made


def test_the_engine_of_every_insert(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of one that reads its own target, and of one into a topic."""
    pq.write_table(pa.table({"id": range(20)}), tmp_path / "a.parquet")
    uri = f"file://{tmp_path}/a.parquet"
    jobs = Jobs(spark)
    with App("CREATE TABLE own (id BIGINT); INSERT INTO own VALUES (5), (7)") as app:
        insert = f"INSERT INTO own SELECT f.id + 100 FROM {uri} f WHERE f.id IN (SELECT id FROM own) WITH ('engine' = "
        app.sql(f"{insert}'process')")
        assert not jobs.of("insert:own")
        app.sql(f"{insert}'spark')")
        assert sorted(r["id"] for r in app.sql("SELECT id FROM own").rows()) == [5, 7, 105, 105, 107, 107]
        assert sum(s.read for s in jobs.of("insert:own")) == 20
    topic = "kafka://localhost:1/t?value.format=json"
    monkeypatch.setattr(Connectors, "stands_in", lambda *given: True)
    with App("", engine="process") as app:
        insert = f"INSERT INTO {topic} SELECT id FROM {uri} WITH ('engine' = 'spark')"
        assert app.sql(insert).count == 20
    assert any(s.statement is not None and s.statement.startswith("insert:kafka:") for s in jobs.stages)


def test_an_engine_that_cannot_evaluate_a_load_is_refused_at_check(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": range(20)}), tmp_path / "a.parquet")
    uri, odd = f"file://{tmp_path}/a.parquet", "xpath_int('<a>1</a>', 'a')"
    text = f"""
    CREATE TABLE c (i INT);
    CREATE TABLE a WITH ('engine' = 'process') AS SELECT {odd} AS i FROM {uri};
    INSERT INTO c SELECT {odd} FROM {uri} WITH ('engine' = 'process');
    CREATE TABLE b WITH ('engine' = 'spark') AS SELECT f.id FROM {uri} f JOIN c ON c.i = f.id;
    CREATE TABLE d WITH ('engine' = 'process') AS SELECT id FROM {uri};
    """
    found = check_text(text).errors
    assert [type(error) for error in found] == [NotSupported, NotSupported, InvalidOption]
    assert all("only Spark can evaluate" in error.message for error in found[:2])
    assert (
        found[2].message
        == 'option "engine" has no effect here: what follows tables is evaluated in the process'
    )


def test_explain_says_who_reads(tmp_path: Path, spark: SparkSession) -> None:
    pq.write_table(pa.table({"id": range(20_000)}), tmp_path / "a.parquet")

    def lines(app: App, query: str, with_: str = "") -> list[str]:
        text = f"CREATE TABLE t {with_} AS {query.format(f'file://{tmp_path}/a.parquet')}"
        return [str(r["plan"]) for r in app.sql(f"EXPLAIN {text}").rows()]

    with App("") as app:
        said = "read and evaluated: in process up to 10,000 rows and 16 MB, else by Spark"
        assert said in lines(app, "SELECT id FROM {}")
        assert said in lines(app, "SELECT COUNT(*) AS n FROM {}")
        ordered = "read: in process, as the result depends on the order of the rows"
        assert ordered in lines(app, "SELECT first(id) AS n FROM {}")
        by_spark = f"Spark reads file://{tmp_path}/a.parquet by Spark's own reader"
        assert by_spark in lines(app, "SELECT COUNT(*) AS n FROM {}")
        (tmp_path / "b.csv").write_text("id\n1\n")
        told = app.sql(f"EXPLAIN CREATE TABLE t AS SELECT * FROM file://{tmp_path}/b.csv")
        assert f"Spark reads file://{tmp_path}/b.csv by our reader, in Python (it is csv)" in [
            str(r["plan"]) for r in told.rows()
        ]
        assert by_spark not in lines(app, "SELECT id FROM {}", "WITH ('engine' = 'process')")
        said = "read and evaluated: in process (engine = process)"
        assert said in lines(app, "SELECT id FROM {}", "WITH ('engine' = 'process')")
        insert = f"EXPLAIN INSERT INTO c SELECT id FROM file://{tmp_path}/a.parquet WITH ('engine' = 'spark')"
        app.sql("CREATE TABLE c (id BIGINT)")
        assert (
            "read and evaluated: by Spark (engine = spark)" in app.sql(insert).to_arrow()["plan"].to_pylist()
        )
        costs = app.sql(f"EXPLAIN ANALYZE CREATE TABLE t AS SELECT id FROM file://{tmp_path}/a.parquet")
        assert "read and evaluate by Spark" in str(costs.rows())
        assert len(app.table("t")) == 20_000


def test_small_files_do_not_start_spark(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id\n1\n")
    pq.write_table(pa.table({"id": range(20_000)}), tmp_path / "b.parquet")
    program = f"""
from millpond import App
from millpond.engine.session import started
with App("CREATE TABLE a AS SELECT * FROM file://{tmp_path}/a.csv") as app:
    assert len(app.table("a")) == 1
with App("CREATE TABLE b AS SELECT * FROM file://{tmp_path}/b.parquet", engine="process") as app:
    app.drain()
    assert len(app.table("b")) == 20_000
assert not started()
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


def test_a_split_that_is_too_large_for_a_chunk_is_read_here(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pq.write_table(pa.table({"id": range(20_000)}), tmp_path / "a.parquet")
    monkeypatch.setattr(large_reads, "GROUP_ROWS", 1000)
    jobs = Jobs(spark)
    with App(f"CREATE TABLE whole AS SELECT * FROM file://{tmp_path}/a.parquet") as app:
        app.drain()
        assert len(app.table("whole")) == 20_000
    assert "table:whole" not in statements(jobs)


@pytest.mark.parametrize("engines", [("spark", "process"), ("process", "spark"), ("spark", "spark")])
def test_only_what_is_too_large_is_read_here(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engines: tuple[Engine, Engine]
) -> None:
    """Other files of the load are read by executors; a load that is begun goes on at the same row."""
    monkeypatch.setattr(large_reads, "GROUP_ROWS", 1000)
    monkeypatch.setattr(chunks, "CHUNK", 1100)
    at = 0
    for number, rows in enumerate((900, 600, 9000, 700, 5000, 800)):
        made = pa.table({"id": range(at, at + rows)})
        pq.write_table(made, tmp_path / f"{number}.parquet", row_group_size=1000)
        at += rows
    uri, jobs = f"file://{tmp_path}/*.parquet", Jobs(spark)
    with App(f"CREATE TABLE mixed AS SELECT id + 0 AS id FROM {uri}", engine=engines[0]) as app:
        app.drain()
        assert app.sql("SELECT id FROM mixed").to_arrow()["id"].to_pylist() == list(range(at))
    read = sum(s.read for s in jobs.of("table:mixed"))
    assert read == (3000 if engines[0] == "spark" else 0)
    for visit in (1, 4, 8):
        text, state = f"CREATE TABLE t AS SELECT id + 0 AS id FROM {uri}", tmp_path / f"state{visit}"
        with pytest.raises(Exception), failing("load: chunk committed", visit=visit):  # noqa: B017
            App(text, state=state, engine=engines[0]).drain()
        with App(text, state=state, engine=engines[1]) as app:
            app.drain()
            assert sorted(app.sql("SELECT id FROM t").to_arrow()["id"].to_pylist()) == list(range(at))


# what goes wrong


def test_what_executors_do_not_see_is_read_here(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def unseen(*given: Any) -> None:
        raise SourceChanged("file was removed while it was being read")

    write_files(tmp_path / "files", "jsonl", 5, 2000)
    text = LOADS.format(tmp_path / "files").rpartition("INSERT")[0]
    here = contents(text, engine="process")
    monkeypatch.setattr(LoadStage, "chunk", unseen)
    monkeypatch.setattr(LoadStage, "rows", unseen)
    monkeypatch.setattr(LoadStage, "whole", unseen)
    assert contents(text, engine="spark") == here
    assert (
        'table "copied" is loaded by the process of the app, not by executors: file was removed'
        in caplog.text
    )


def test_what_the_driver_cannot_take_at_once_is_read_here(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The error is Spark's own; later steps are executors' again."""
    many = (
        "Job aborted: Total size of serialized results is bigger than spark.driver.maxResultSize 1024.0 MiB"
    )
    failed = Py4JError(
        f"An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.\n{many}"
    )
    assert isinstance(explain(failed), ResultTooLarge)

    def too_large(*given: Any) -> None:
        raise explain(failed)

    pq.write_table(pa.table({"id": range(20_000)}), tmp_path / "a.parquet")
    with monkeypatch.context() as patch:
        patch.setattr(LoadStage, "rows", too_large)
        with App(f"CREATE TABLE t AS SELECT * FROM file://{tmp_path}/a.parquet") as app:
            app.drain()
            assert len(app.table("t")) == 20_000
    assert "larger than executors may pass to the driver" in caplog.text


def test_executors_that_lack_something_are_not_asked_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked = []

    def lacking(*given: Any) -> None:
        asked.append(given)
        raise PackageMissing("s3fs is not installed")

    monkeypatch.setattr(LoadStage, "rows", lacking)
    monkeypatch.setattr(LoadStage, "chunk", lacking)
    pq.write_table(pa.table({"id": range(20_000)}), tmp_path / "a.parquet")
    with App(f"CREATE TABLE t AS SELECT * FROM file://{tmp_path}/*.parquet") as app:
        app.drain()
        pq.write_table(pa.table({"id": range(20_000)}), tmp_path / "b.parquet")
        app.drain()
        assert len(app.table("t")) == 40_000
        assert len(asked) == 1 and caplog.text.count("s3fs is not installed") == 1
        with pytest.raises(PackageMissing):
            app.sql(f"INSERT INTO t SELECT * FROM file://{tmp_path}/a.parquet WITH ('engine' = 'spark')")


def test_the_last_row_of_a_key_of_joined_files(spark: SparkSession, tmp_path: Path) -> None:
    """Which match comes last depends on the order, so the process evaluates; groups have one row of a key."""
    rows = pa.table({"id": [i % 5_000 for i in range(20_000)], "v": range(20_000)})
    pq.write_table(rows, tmp_path / "a.parquet")
    pq.write_table(pa.table({"id": range(5_000)}), tmp_path / "b.parquet")
    a, b = (f"file://{tmp_path}/{name}.parquet" for name in "ab")
    jobs = Jobs(spark)
    last = f"CREATE TABLE t (PRIMARY KEY (id)) AS SELECT b.id, a.v FROM {a} a JOIN {b} b ON a.id = b.id"
    with App("") as app:
        told = [r["plan"] for r in app.sql(f"EXPLAIN {last}").rows()]
        assert any(
            "read: in process, as the result depends on the order of the rows" in line for line in told
        )
        app.sql(last)
        app.sql(
            "CREATE TABLE u (PRIMARY KEY (id)) AS"
            f" SELECT b.id, MAX(a.v) AS v FROM {a} a JOIN {b} b ON a.id = b.id GROUP BY b.id"
        )
        app.drain()
        assert app.sql("SELECT * FROM t EXCEPT SELECT * FROM u").rows() == []
        assert len(app.table("t")) == len(app.table("u")) == 5_000
    assert statements(jobs) == {"table:u"}


def test_an_insert_sees_one_snapshot(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(large_reads, "GROUP_ROWS", 5_000)
    chunk = LoadStage.chunk

    def changing(self: LoadStage, *given: Any) -> Any:
        app.table("rates").insert({"id": 0, "rate": 2})
        return chunk(self, *given)

    monkeypatch.setattr(LoadStage, "chunk", changing)
    pq.write_table(pa.table({"id": [0] * 20_000}), tmp_path / "a.parquet", row_group_size=5_000)
    with App("CREATE TABLE rates (id BIGINT PRIMARY KEY, rate INT); CREATE TABLE t (rate INT)") as app:
        app.table("rates").insert({"id": 0, "rate": 1})
        app.sql(f"INSERT INTO t SELECT r.rate FROM file://{tmp_path}/a.parquet a JOIN rates r ON a.id = r.id")
        assert app.sql("SELECT DISTINCT rate FROM t").rows() == [{"rate": 1}]


def test_a_record_that_stops_a_load_is_told_as_in_process(spark: SparkSession, tmp_path: Path) -> None:
    lines = [json.dumps({"id": i}) for i in range(20_000)]
    lines[15_000] = '{"id": "x"}'
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    told = []
    for engine in ("process", "spark"):
        with App("", engine=engine) as app:
            for statement in (
                "CREATE TABLE t WITH ('on.error' = 'fail') AS SELECT id FROM file://{}",
                "CREATE TABLE t WITH ('on.error' = 'fail') AS SELECT COUNT(*) AS n FROM file://{}",
            ):
                with pytest.raises(Error) as raised:
                    app.sql(statement.format(tmp_path / "a.jsonl"))
                told.append((type(raised.value), raised.value.message, raised.value.hint))
                assert "line 15001" in raised.value.message
    assert told[:2] == told[2:]


def test_a_failing_expression_is_told(spark: SparkSession, tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": range(20_000)}), tmp_path / "a.parquet")
    with App("") as app, pytest.raises(Error, match="division by zero"):
        app.sql(f"CREATE TABLE t AS SELECT 1 DIV (id - 7) AS x FROM file://{tmp_path}/a.parquet")


# what changes, and what is resumed


def test_files_that_are_added_changed_and_removed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(large_reads, "GROUP_ROWS", 1500)
    files = tmp_path / "files"
    write_files(files, "jsonl", 7, 2000)
    text = "\n".join(
        t for t in LOADS.format(files).splitlines() if t.startswith(("CREATE TABLE made", "CREATE TABLE g"))
    )
    with App(text, engine="spark", _direct=True) as followed:
        followed.drain()
        chance = random.Random(1)
        write_jsonl(files / "9.jsonl", chance, [a_row(chance, 90_000 + i) for i in range(2000)])
        followed.drain()
        write_jsonl(files / "0.jsonl", chance, [a_row(chance, 80_000 + i) for i in range(1700)])
        followed.drain()
        (files / "9.jsonl").unlink()
        followed.drain()
        found = {t: sorted(map(repr, followed.sql(f"SELECT * FROM {t}").rows())) for t in ("made", "groups")}
    again = contents(text, engine="process")
    kept = {r for r in found["made"] if any(f"'id': {9 * 10_000 + i}," in r for i in range(2000))}
    assert kept and [r for r in found["made"] if r not in kept] == sorted(again["made"][1])
    assert found["groups"] == again["groups"][1]


@pytest.mark.parametrize("engines", [("spark", "process"), ("process", "spark"), ("spark", "spark")])
def test_a_load_is_resumed_as_it_was_begun(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engines: tuple[Engine, Engine]
) -> None:
    monkeypatch.setattr(large_reads, "GROUP_ROWS", 1500)
    monkeypatch.setattr(chunks, "CHUNK", 700)
    for number in range(8):
        rows = [{"id": i, "k": i % 5} for i in range(number * 1000, number * 1000 + 1000)]
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / f"{number}.parquet")
    text = f"CREATE TABLE t AS SELECT id, k + 1 AS k FROM file://{tmp_path}/*.parquet"
    state = tmp_path / "state"
    with pytest.raises(Exception), failing("load: chunk committed", visit=3):  # noqa: B017
        App(text, state=state, engine=engines[0]).drain()
    monkeypatch.setattr(large_reads, "GROUP_ROWS", 3000)  # what is begun goes on as it was
    with App(text, state=state, engine=engines[1]) as app:
        app.drain()
        assert app.sql("SELECT id, k FROM t ORDER BY id").rows() == [
            {"id": i, "k": i % 5 + 1} for i in range(8000)
        ]


# groups of splits


@given(
    hs.lists(hs.tuples(hs.none() | hs.integers(0, 500), hs.integers(0, 5000)), max_size=30),
    hs.integers(1, 800),
    hs.integers(1, 9000),
)
def test_splits_are_grouped_up_to_a_size(sizes: list[tuple[int | None, int]], rows: int, size: int) -> None:
    splits, groups = [Split(*s) for s in sizes], Groups(rows, size)
    found = grouped(splits, groups)
    assert [s for group in found for s in group] == splits
    assert all(found)

    def fits(group: list[Split]) -> bool:
        numbers = [s.rows if s.rows is not None else (s.bytes or 0) / 64 for s in group]
        return sum(s.bytes or 0 for s in group) <= size and sum(numbers) <= rows

    for group in found:
        assert len(group) == 1 or fits(group)
    for one, other in pairwise(found):
        assert not fits([*one, other[0]])


# what is cancelled


@contextmanager
def without_room(spark: SparkSession) -> Iterator[None]:
    """All cores of Spark are busy: other jobs wait."""
    context = spark.sparkContext

    def occupy() -> None:
        context.addJobTag("busy")
        with suppress(Exception):  # it is cancelled
            context.parallelize(range(2), 2).foreach(lambda _: time.sleep(120))

    thread = InheritableThread(target=occupy, daemon=True)
    thread.start()
    wait_until(lambda: len(context.statusTracker().getActiveStageIds()) > 0)
    time.sleep(0.5)
    try:
        yield
    finally:
        context.cancelJobsWithTag("busy")
        thread.join(30)


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize(
    "query", ["SELECT * FROM {}", "SELECT id + 1 AS id FROM {}", "SELECT COUNT(*) AS n FROM {}"]
)
def test_an_app_that_is_closed_does_not_wait_for_a_load(
    spark: SparkSession, tmp_path: Path, query: str
) -> None:
    pq.write_table(pa.table({"id": range(20_000)}), tmp_path / "a.parquet")
    text = f"CREATE TABLE waits AS {query.format(f'file://{tmp_path}/a.parquet')}"
    told: list[BaseException] = []
    app = App("", state=tmp_path / "state")

    def load() -> None:
        try:
            app.sql(text)
        except BaseException as error:
            told.append(error)

    with without_room(spark):
        jobs = Jobs(spark)
        thread = threading.Thread(target=load, daemon=True)
        thread.start()
        wait_until(lambda: "table:waits" in statements(jobs))
        app.close()
        thread.join(120)
        assert not thread.is_alive()
    assert len(told) == 1 and isinstance(told[0], Error), told
    with App(text, state=tmp_path / "state") as again:
        again.drain()
        assert len(again.table("waits")) in (1, 20_000)


def test_an_insert_that_waits_can_be_cancelled(spark: SparkSession, tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": range(20_000)}), tmp_path / "a.parquet")
    with App("CREATE TABLE t (id BIGINT)") as app:
        insert = f"INSERT INTO t SELECT id FROM file://{tmp_path}/a.parquet"
        jobs, limit = Jobs(spark), Allowance(300)

        def end() -> None:
            wait_until(lambda: "insert:t" in statements(jobs))
            limit.end()

        with without_room(spark), allowance.given(limit):
            limit.free()
            thread = threading.Thread(target=end, daemon=True)
            thread.start()
            with pytest.raises(TimedOut):
                app.sql(insert)
            thread.join(30)
        assert len(app.table("t")) == 0
        app.sql(insert)
        assert len(app.table("t")) == 20_000
