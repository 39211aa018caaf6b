"""BEGIN … COMMIT over a stream, whose large batches Spark's executors evaluate: beside blocks of this process."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from millpond import App
from millpond.connectors.kafka.source import KafkaSource
from millpond.engine.local_stage import LocalStage
from millpond.engine.stage import Stage
from millpond.engine_rule import Engine
from millpond.errors import NotSupported
from millpond.streaming import fold
from millpond.streaming.fold import FoldRunner
from tests.engines import both, too_large
from tests.servers import Servers
from tests.spark_jobs import Jobs
from tests.test_kafka import new_topic, uri

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow
Row = dict[str, Any]

TABLES = """
CREATE TABLE t{n} (id INT PRIMARY KEY, x INT, y INT);
CREATE TABLE u{n} (id INT PRIMARY KEY, x INT, y INT);
CREATE TABLE rows{n} (id INT, x BIGINT, y INT);
CREATE TABLE sums{n} (id INT PRIMARY KEY, n BIGINT, total BIGINT, low INT);
CREATE TABLE kinds{n} (b INT PRIMARY KEY, ids BIGINT, mean DOUBLE);
CREATE TABLE all{n} (n BIGINT, total BIGINT);
CREATE TABLE spans{n} (start TIMESTAMP, id INT, n BIGINT, PRIMARY KEY (start, id));
CREATE STREAM log{n} (id INT, x INT, a INT);
CREATE TABLE logged{n} AS SELECT * FROM log{n};
CREATE STREAM out{n} (id INT, x BIGINT, y BIGINT);
CREATE TABLE outs{n} AS SELECT * FROM out{n};
CREATE STREAM groups{n} (id INT, x BIGINT, y BIGINT);
CREATE TABLE grouped{n} AS SELECT * FROM groups{n};
"""
NAMES = ("t", "u", "rows", "sums", "kinds", "all", "spans", "logged", "outs", "grouped")
MEMBERS = [
    # rows
    "INSERT INTO rows{n} SELECT id, a + 1, b FROM e WHERE b >= 0",
    "INSERT INTO rows{n} SELECT e.id, s.total, e.a FROM e JOIN sums{n} s ON s.id = e.id WHERE e.b > 2",
    "INSERT INTO u{n} SELECT id, a, b FROM e WHERE b = 1",
    "INSERT INTO u{n} SELECT e.id, t.x, t.y FROM e JOIN t{n} t ON t.id = e.id WHERE e.b <> 3",
    "INSERT INTO out{n} SELECT e.id, e.a, (SELECT COUNT(*) FROM rows{n}) FROM e WHERE e.a > 3",
    "INSERT INTO out{n} SELECT e.id, t.x, o.z FROM e LEFT JOIN t{n} t ON t.id = e.id JOIN other o ON o.id = e.id",
    "INSERT INTO rows{n} SELECT id, 12 / a, b FROM e WHERE b = 4",
    # groups
    "INSERT INTO sums{n} SELECT id, COUNT(*) AS n, SUM(a) AS total, MIN(b) AS low FROM e GROUP BY id",
    "INSERT INTO kinds{n} SELECT b, COUNT(DISTINCT id) AS ids, AVG(a) AS mean FROM e WHERE b IS NOT NULL GROUP BY b",
    "INSERT INTO all{n} SELECT COUNT(*) AS n, SUM(e.a) AS total FROM e JOIN t{n} t ON t.id = e.id AND t.x >= 0",
    "INSERT INTO groups{n} SELECT id, SUM(a) AS x, COUNT(*) AS y FROM e WHERE b < 3 GROUP BY id",
    "INSERT INTO spans{n} SELECT window_start, id, COUNT(*) AS n FROM e WHERE id < 3"
    " GROUP BY window(at, '10 seconds'), id",
    # changes of rows
    "UPDATE t{n} SET x = t{n}.x - e.a, y = t{n}.x FROM e WHERE t{n}.id = e.id AND t{n}.x >= e.a"
    " RETURNING t{n}.id, t{n}.x, e.a INTO log{n}",
    "UPDATE rows{n} SET y = e.b FROM e WHERE rows{n}.id = e.id AND e.b > 2",
    "UPDATE u{n} SET x = u{n}.x + s.n FROM e JOIN sums{n} s ON s.id = e.id WHERE u{n}.id = e.id",
    "DELETE FROM rows{n} USING e WHERE rows{n}.id = e.id AND rows{n}.x >= e.a AND e.b = 2",
    "DELETE FROM u{n} USING e WHERE u{n}.id = e.id AND e.b = 0 AND u{n}.id NOT IN (SELECT id FROM t{n} WHERE x > 2)",
    "UPSERT INTO u{n} SELECT e.id, t.x, t.y FROM e JOIN t{n} t ON t.id = e.id ON u{n}.id = e.id",
    "MERGE INTO t{n} t USING e ON t.id = e.id WHEN MATCHED AND e.b = 2 THEN DELETE"
    " WHEN MATCHED AND t.x >= e.a THEN UPDATE SET x = t.x - e.a, y = t.y + 1"
    " WHEN NOT MATCHED AND e.a IS NOT NULL THEN INSERT (id, x, y) VALUES (e.id, e.a, 0)",
    "MERGE INTO u{n} t USING e ON t.x > e.a WHEN MATCHED AND e.b = 2 THEN DELETE"
    " WHEN MATCHED THEN UPDATE SET y = t.y + 1",
]


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The number of rows of each evaluation in this process."""
    found: list[int] = []
    run = LocalStage.run

    def noted(self: LocalStage, batch: pa.Table, tables: Any) -> pa.Table:
        found.append(batch.num_rows)
        return run(self, batch, tables)

    with monkeypatch.context() as patch:
        patch.setattr(LocalStage, "run", noted)
        yield found


def same(apps: dict[Engine, App], table: str) -> pa.Table:
    one, other = (app.sql(f"SELECT * FROM `{table}`").to_arrow() for app in apps.values())
    assert one.schema == other.schema
    if not one.equals(other):
        rows = [list(map(repr, t.to_pylist())) for t in (one, other)]
        unordered = bool(apps["spark"].table(table).relation.schema.key) or table.startswith("grouped")
        assert sorted(rows[0]) == sorted(rows[1]) if unordered else rows[0] == rows[1], table
    return one


STREAM = """
CREATE STREAM e (id INT, a INT, b INT, at TIMESTAMP, WATERMARK FOR at AS at - INTERVAL 5 SECONDS);
CREATE TABLE other (id INT PRIMARY KEY, z INT);
INSERT INTO other VALUES (0, 1), (1, 2), (2, NULL);
"""
POISONED = next(m for m in MEMBERS if "12 / a" in m)
SMALL = [None, *range(6)]


class Events:
    """Makes random rows of the stream, and of the tables before."""

    def __init__(self, seed: int):
        self.chance = random.Random(seed)
        self._at = 1_700_000_000_000_000

    def before(self) -> list[Row]:
        return [{"id": i, "x": self.chance.choice(SMALL), "y": self.chance.choice(SMALL)} for i in range(5)]

    def rows(self, size: int) -> pa.Table:
        chance, times = self.chance, []
        for _ in range(size):
            self._at += chance.randrange(-2_000_000, 3_000_000)
            times.append(self._at)
        few = [chance.choice(SMALL if chance.random() < 0.05 else SMALL[2:]) for _ in range(size)]
        return pa.table(
            {
                "id": pa.array([chance.randrange(7) for _ in range(size)], pa.int32()),
                "a": pa.array(few, pa.int32()),
                "b": pa.array([chance.choice(SMALL) for _ in range(size)], pa.int32()),
                "at": pa.array(times, pa.timestamp("us", "UTC")),
            }
        )


def block(n: int, members: list[str]) -> str:
    inside = ";\n".join(m.format(n=n) for m in members)
    return f"{TABLES.format(n=n)}BEGIN;\n{inside};\nCOMMIT;\n"


def fill(apps: dict[Engine, App], n: int, rows: list[Row]) -> None:
    for app in apps.values():
        for name in ("t", "u", "rows"):
            app.table(f"{name}{n}").bulk_insert(rows)


def send(apps: dict[Engine, App], rows: Any) -> None:
    for app in apps.values():
        app.send("e", rows)
        app.drain(300)


def errors(app: App, query: str) -> list[Row]:
    return app.sql(f"SELECT seq, row FROM `{query}$errors` ORDER BY seq").rows()


@pytest.mark.parametrize("seed", [2, 3, *(pytest.param(seed, marks=pytest.mark.chaos) for seed in (0, 1))])
def test_random_blocks(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Of statements of all kinds, in any order: a later one reads what an earlier one wrote. With every other seed rows
    of tables are looked up.
    """
    if seed % 2:
        monkeypatch.setattr(fold, "SCANNED", 0)
    events = Events(seed)
    blocks = [events.chance.sample(MEMBERS, 6) for _ in range(2)]
    with both(STREAM + "".join(block(n, members) for n, members in enumerate(blocks))) as apps:
        for n in range(len(blocks)):
            fill(apps, n, events.before())
        for size in (40, 1, 100):
            send(apps, events.rows(size))
        for name in NAMES:
            for n in range(len(blocks)):
                same(apps, f"{name}{n}")
        queries = {e: app.sql("SHOW QUERIES").rows() for e, app in apps.items()}
        shown = {e: [(q["name"], q["rows"], q["errors"]) for q in found] for e, found in queries.items()}
        assert shown["spark"] == shown["process"]
        for q in (q for q in queries["spark"] if q["name"].startswith("block")):
            assert (q["spark_rows"], q["process_rows"]) == (141, 0)
            assert errors(apps["process"], q["name"]) == errors(apps["spark"], q["name"])


def test_all_statements_in_one_block(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the events of the MERGE that cannot be divided are applied here, and the rows of no batch are read here."""
    events, members = Events(9), [m for m in MEMBERS if m != POISONED]
    find, folds = FoldRunner.find, []

    def noted(self: FoldRunner, rows: pa.Table, now: Any) -> Any:
        folds.append(rows.num_rows)
        return find(self, rows, now)

    with both(STREAM + block(0, members)) as apps:
        fill(apps, 0, events.before())
        rows = events.rows(150)
        apps["process"].send("e", rows)
        apps["process"].drain(300)
        monkeypatch.setattr(FoldRunner, "find", noted)
        apps["spark"].send("e", rows)
        with counted(monkeypatch) as here:
            apps["spark"].drain(300)
        assert folds == [150] and not [n for n in here if n == 150]
        for name in NAMES:
            assert same(apps, f"{name}0").num_rows, name
        query = next(q for q in apps["spark"].sql("SHOW QUERIES").rows() if q["name"].startswith("block"))
        assert (query["rows"], query["spark_batches"], query["process_batches"]) == (150, 1, 0)
        plan = apps["spark"].sql(f"EXPLAIN ANALYZE QUERY `{query['name']}`").to_arrow()["plan"].to_pylist()
        assert len([line for line in plan if line.endswith("ms") and "on Spark: " in line]) == len(members)
        assert (
            len([line for line in plan if line.startswith("step:   read, evaluate and fold by Spark: ")]) == 7
        )


def test_a_row_that_cannot_be_processed(spark: SparkSession) -> None:
    """It has no effect in any statement; the others are applied."""
    members = [MEMBERS[0], POISONED, next(m for m in MEMBERS if "INTO sums" in m)]
    rows = [{"id": i % 3, "a": 0 if i in (7, 30) else i % 5 + 1, "b": 4} for i in range(40)]
    with both(STREAM + block(0, members)) as apps:
        send(apps, rows)
        assert same(apps, "rows0").num_rows == 2 * 38
        assert sum(same(apps, "sums0")["n"].to_pylist()) == 38
        found = {}
        for engine, app in apps.items():
            query = next(q for q in app.sql("SHOW QUERIES").rows() if q["name"].startswith("block"))
            found[engine] = query["rows"], query["errors"], errors(app, query["name"])
        assert found["spark"] == found["process"] and found["spark"][:2] == (38, 2)


READ = """
CREATE STREAM e (id INT, a INT);
CREATE TABLE rates (id INT PRIMARY KEY, rate INT);
CREATE TABLE t (id INT PRIMARY KEY, x INT);
CREATE TABLE log (id INT, x INT, rate INT);
CREATE TABLE seen (id INT PRIMARY KEY, n BIGINT);
BEGIN;
UPDATE t SET x = t.x + e.a FROM e WHERE t.id = e.id;
INSERT INTO log SELECT e.id, t.x, r.rate FROM e JOIN t ON t.id = e.id JOIN rates r ON r.id = e.id;
INSERT INTO seen SELECT id, COUNT(*) AS n FROM e GROUP BY id;
COMMIT;
"""


@pytest.mark.parametrize(
    ("changed", "times"),
    [
        ([("rates", {"id": 1, "rate": 20})], 2),
        ([("t", {"id": 1, "x": 100})], 2),
        ([("seen", {"id": 9, "n": 0})], 1),
        ([("rates", {"id": 1, "rate": n}) for n in (20, 21, 22)], 3),
    ],
)
def test_tables_that_change_meanwhile(
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    changed: list[tuple[str, Row]],
    times: int,
) -> None:
    """The statements see the tables as they are when the batch is committed. Spark evaluates again; if what they read
    changes each time, this process does so while no other commit can happen.
    """
    left, runs = list(reversed(changed)), 0
    run = Stage.run_on_spark

    def changing(self: Stage, *given: Any, **more: Any) -> pa.Table:
        nonlocal runs
        found = run(self, *given, **more)
        if "n" in found.column_names or "a0" in found.column_names:
            runs += 1
            if left:
                name, row = left.pop()
                app.table(name).insert(row)
        return found

    monkeypatch.setattr(Stage, "run_on_spark", changing)
    with App(READ, engine="spark", _direct=True) as app:
        app.table("t").bulk_insert([{"id": n, "x": 0} for n in range(3)])
        app.table("rates").bulk_insert([{"id": n, "rate": 10} for n in range(3)])
        app.send("e", [{"id": n % 3, "a": 1} for n in range(30)])
        with counted(monkeypatch) as here:
            app.drain(300)
        assert runs == times and not left
        assert bool(here) == (times == 3)
        x = {1: 110} if changed[0][0] == "t" else {}
        rate = {1: changed[-1][1]["rate"]} if changed[0][0] == "rates" else {}
        log = [{"id": n % 3, "x": x.get(n % 3, 10), "rate": rate.get(n % 3, 10)} for n in range(30)]
        assert app.sql("SELECT * FROM log").rows() == log
        seen = {r["id"]: r["n"] for r in app.sql("SELECT * FROM seen").rows()}
        assert seen == {0: 10, 1: 10, 2: 10} | ({9: 0} if changed[0][0] == "seen" else {})


def test_a_keyed_topic(spark: SparkSession, servers: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    """Executors alone decode its messages, some of which delete rows and some of which cannot be decoded. A stream that
    is derived from it has the rows that are deleted too.
    """
    kafka, chosen = servers.kafka, random.Random(11)
    topic = new_topic(kafka, 3)
    messages: list[tuple[str, str | None, int]] = []
    for at in range(12_000):
        key = chosen.randint(0, 2_000)
        value = json.dumps({"id": key, "qty": at}) if chosen.random() < 0.8 else None
        messages.append((json.dumps({"id": key}), value, key % 3))
    messages[5] = (messages[5][0], "{", 0)
    kafka.produce(topic, messages)
    tables = "".join(
        f"""
        CREATE TABLE {t} (id BIGINT PRIMARY KEY, qty BIGINT);
        CREATE TABLE {t}_twice (id BIGINT PRIMARY KEY, qty BIGINT);
        CREATE TABLE {t}_counts (k BIGINT PRIMARY KEY, n BIGINT, ended BIGINT);
        CREATE TABLE {t}_log (id BIGINT, qty BIGINT);
        BEGIN;
        INSERT INTO {t} SELECT id, qty FROM {s};
        INSERT INTO {t}_twice SELECT s.id, t.qty * 2 FROM {s} AS s JOIN {t} AS t ON t.id = s.id;
        INSERT INTO {t}_counts SELECT coalesce(id % 10, -1) AS k, COUNT(*) AS n,
          SUM(CASE WHEN _deleted THEN 1 END) AS ended FROM {s} GROUP BY coalesce(id % 10, -1);
        INSERT INTO {t}_log SELECT id, qty FROM {s} WHERE qty % 2 = 0;
        COMMIT;"""
        for t, s in (("t", "s"), ("u", "d"))
    )
    sql = f"""
        CREATE STREAM s (id BIGINT, qty BIGINT) WITH ('connector' = '{uri(kafka, topic)}');
        CREATE STREAM d AS SELECT id, qty, _deleted, _key FROM s;
        {tables}
    """
    found = {}
    for engine in ("process", "spark"):
        with monkeypatch.context() as patch, App(sql, engine=engine) as app:  # type: ignore[arg-type]
            if engine == "spark":
                patch.setattr(KafkaSource, "decode", None)
            app.drain(180)
            names = [f"{t}{more}" for t in "tu" for more in ("", "_twice", "_counts", "_log")]
            rows = {n: app.sql(f"SELECT * FROM {n}").rows() for n in names}
            queries = app.sql("SHOW QUERIES").rows()
            assert not [q for q in queries if q["process_batches" if engine == "spark" else "spark_batches"]]
            found[engine] = (
                {n: r if n.endswith("log") else sorted(r, key=repr) for n, r in rows.items()},
                [(q["name"], q["rows"], q["errors"]) for q in queries],
            )
    assert found["spark"] == found["process"]
    assert found["spark"][0]["t"] and len(found["spark"][0]["t"]) < 2_000


def test_rows_of_a_database(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Spark evaluates once: nothing has changed at the commit, in the transaction of the database."""
    sql = """CREATE STREAM e (id INT, a INT);
    CREATE TABLE t (id INT PRIMARY KEY, x INT) WITH ('extension' = 'sqlite', 'path' = '{0}/{1}.db');
    CREATE TABLE u (id INT, x INT) WITH ('extension' = 'sqlite', 'path' = '{0}/{1}.db');
    CREATE TABLE n (id INT PRIMARY KEY, n BIGINT) WITH ('extension' = 'sqlite', 'path' = '{0}/{1}.db');
    CREATE TABLE rates (id INT PRIMARY KEY, rate INT) WITH ('extension' = 'sqlite', 'path' = '{0}/{1}.db');
    BEGIN;
    MERGE INTO t USING e ON t.id = e.id WHEN MATCHED AND e.a = 3 THEN DELETE
      WHEN MATCHED THEN UPDATE SET x = t.x + 100 WHEN NOT MATCHED THEN INSERT (id, x) VALUES (e.id, e.a);
    INSERT INTO u SELECT e.id, t.x + r.rate FROM e JOIN t ON t.id = e.id JOIN rates r ON r.id = e.id;
    INSERT INTO n SELECT id, COUNT(*) AS n FROM e GROUP BY id;
    UPDATE u SET x = u.x + n.n FROM e JOIN n ON n.id = e.id WHERE u.id = e.id AND e.a = 1;
    COMMIT;"""
    found = []
    for engine in ("process", "spark"):
        with App(sql.format(tmp_path, engine), engine=engine, _direct=True) as app:  # type: ignore[arg-type]
            app.table("t").bulk_insert([{"id": i, "x": 0} for i in range(5)])
            app.table("rates").bulk_insert([{"id": i, "rate": i} for i in range(6)])
            with counted(monkeypatch) as here:
                for _ in range(2):
                    app.send("e", [{"id": i % 7, "a": i % 4} for i in range(40)])
                    app.drain(300)
            assert (40 in here) == (engine == "process")
            found.append([sorted(app.sql(f"SELECT * FROM {t}").rows(), key=repr) for t in ("t", "u", "n")])
    assert found[0] == found[1] and all(found[0])


def test_new_fields_of_a_topic(spark: SparkSession, servers: Servers) -> None:
    """Executors find them; the statements of a block go on with the columns that they know."""
    kafka = servers.kafka
    topic = new_topic(kafka)
    kafka.produce(topic, ['{"id": 1}'] * 11_000 + ['{"id": 2, "note": "new"}', "{"])
    sql = f"""CREATE STREAM s WITH ('connector' = '{uri(kafka, topic)}');
        CREATE TABLE n (id BIGINT PRIMARY KEY, n BIGINT); CREATE TABLE two (id BIGINT);
        BEGIN; INSERT INTO n SELECT id, COUNT(*) AS n FROM s GROUP BY id;
        INSERT INTO two SELECT id FROM s WHERE id = 2; COMMIT;"""
    with App(sql) as app:
        app.drain(120)
        assert app.sql("SELECT * FROM n ORDER BY id").rows() == [{"id": 1, "n": 11_000}, {"id": 2, "n": 1}]
        assert app.sql("SELECT * FROM two").rows() == [{"id": 2}]
        (query,) = app.sql("SHOW QUERIES").rows()
        assert (query["rows"], query["errors"], query["spark_rows"]) == (11_001, 1, 11_002)


def test_results_that_are_too_large_come_in_halves(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = too_large(monkeypatch, 2)
    with App(SALES, _direct=True) as app:
        app.send("sales", pa.table({"id": range(30_000), "shop": [1] * 30_000, "price": [1.0] * 30_000}))
        app.drain(300)
        (query,) = app.sql("SHOW QUERIES").rows()
        assert (query["spark_batches"], query["rows"]) == (2, 30_000) and len(asked) == 6
        assert app.sql("SELECT * FROM totals").rows() == [{"shop": 1, "n": 30_000, "total": 30_000.0}]
        assert app.sql("SELECT id FROM dear").to_arrow()["id"].to_pylist() == list(range(30_000))


SALES = """
CREATE STREAM sales (id BIGINT, shop BIGINT, price DOUBLE);
CREATE TABLE totals (shop BIGINT PRIMARY KEY, n BIGINT, total DOUBLE);
CREATE TABLE dear (id BIGINT, shop BIGINT, price DOUBLE);
BEGIN;
INSERT INTO totals SELECT shop, COUNT(*) AS n, SUM(price) AS total FROM sales GROUP BY shop;
INSERT INTO dear SELECT id, shop, price FROM sales WHERE price > 0.999;
COMMIT;
"""


def test_few_bytes_reach_the_driver(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the rule leaves to Spark is read there; a small batch is evaluated here."""
    many = 200_000
    chance = np.random.default_rng(5)
    rows = pa.table(
        {"id": np.arange(many), "shop": chance.integers(0, 100, many), "price": chance.random(many)}
    )
    with App(SALES, _direct=True) as app:
        jobs = Jobs(spark)
        app.send("sales", rows)
        with counted(monkeypatch) as here:
            app.drain(300)
        (query,) = app.sql("SHOW QUERIES").rows()
        assert (query["rows"], query["spark_rows"], query["process_rows"]) == (many, many, 0)
        assert not here
        stages = jobs.of(query["name"])
        assert sum(s.read for s in stages) == 2 * many, "each statement reads what was sent"
        assert 0 < sum(s.result for s in stages) < 400_000, "groups, and a thousandth of the rows"
        app.send("sales", rows.slice(0, 100))
        app.drain(300)
        (query,) = app.sql("SHOW QUERIES").rows()
        assert (query["spark_rows"], query["process_rows"]) == (many, 100)
        expected = rows.group_by("shop").aggregate([("id", "count")]).to_pylist()
        found = {r["shop"]: r["n"] for r in app.sql("SELECT shop, n FROM totals").rows()}
        assert sum(found.values()) == many + 100 and len(found) == len(expected)


def test_explain_tells_who_runs_each_statement(spark: SparkSession) -> None:
    """As the batches that follow are run."""
    engines: tuple[Engine, ...] = ("auto", "spark", "process")
    members = [m for m in SALES.split(";") if "SELECT" in m]
    for engine in engines:
        with App(SALES, engine=engine, _direct=True) as app:
            said = []
            for member in members:
                lines = app.sql(f"EXPLAIN {member}").to_arrow()["plan"].to_pylist()
                said += [line for line in lines if line.startswith("batch stage: ")]
            for size in (100, 15_000):
                app.send("sales", pa.table({"id": range(size), "shop": [1] * size, "price": [1.0] * size}))
                app.drain(300)
            (query,) = app.sql("SHOW QUERIES").rows()
            steps = app.sql(f"EXPLAIN ANALYZE QUERY `{query['name']}`").to_arrow()["plan"].to_pylist()
            by_spark = sum("of the block" in line and "on Spark" in line for line in steps)
            assert by_spark == (0 if engine == "process" else len(members))
            expected = {
                "auto": ("in process up to 10,000 rows and 16 MB, else by Spark", 100, 15_000),
                "spark": ("by Spark (engine = spark)", 0, 15_100),
                "process": ("in process (engine = process)", 15_100, 0),
            }[engine]
            assert said == [f"batch stage: {expected[0]}"] * len(members)
            assert (query["process_rows"], query["spark_rows"]) == expected[1:]


def test_what_only_spark_can_evaluate_is_refused_in_process() -> None:
    sql = "CREATE STREAM e (id INT); CREATE TABLE t (id INT, p INT);"
    sql += "BEGIN; INSERT INTO t SELECT id, spark_partition_id() FROM e; COMMIT"
    with pytest.raises(NotSupported):
        App(sql, engine="process", _direct=True).close()


@pytest.mark.usefixtures("spark")
def test_an_aggregate_reads_what_an_earlier_statement_has_written() -> None:
    """In a subquery beside its groups, or in HAVING: these are evaluated when the groups were merged."""
    sql = (
        STREAM
        + """
    CREATE TABLE x (id INT);
    CREATE TABLE n (id INT PRIMARY KEY, n BIGINT, xs BIGINT);
    BEGIN;
    INSERT INTO x SELECT id FROM e;
    INSERT INTO n SELECT id, COUNT(*) AS n, (SELECT COUNT(*) FROM x) AS xs FROM e
      GROUP BY id HAVING COUNT(*) <= (SELECT MAX(id) FROM x) + 100;
    COMMIT;
    """
    )
    events = Events(3)
    with both(sql) as apps:
        for size in (1, 40, 30):
            rows = events.rows(size)
            for app in apps.values():
                app.send("e", rows)
                app.drain(120)
            found = same(apps, "n")
            assert set(found["xs"].to_pylist()) <= {1, 41, 71} and max(found["xs"].to_pylist()) in (1, 41, 71)
        assert max(found["xs"].to_pylist()) == 71


@pytest.mark.usefixtures("spark")
def test_values_that_change_are_the_same_for_later_statements() -> None:
    sql = (
        STREAM
        + """
    CREATE TABLE t (id INT PRIMARY KEY, n BIGINT, at TIMESTAMP);
    CREATE TABLE log (id INT, at TIMESTAMP);
    BEGIN;
    INSERT INTO t SELECT id, COUNT(*) AS n, now() AS at FROM e GROUP BY id;
    INSERT INTO log SELECT e.id, t.at FROM e JOIN t ON t.id = e.id;
    COMMIT;
    """
    )
    with both(sql) as apps:
        for app in apps.values():
            app.send("e", Events(4).rows(50))
            app.drain(120)
            other = app.sql("SELECT COUNT(*) AS n FROM log l JOIN t ON t.id = l.id WHERE l.at <> t.at").rows()
            assert other == [{"n": 0}]
