"""Joins of streams: bounds, warnings, plans, control, errors, tables in a database."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pytest

from millpond import App, Error
from millpond.app.check import check_text, explain_text
from millpond.sql.joins import joins_of
from millpond.testing.crash import crash

STREAMS = """
CREATE STREAM o (id INT, x INT, ts TIMESTAMP, made TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL 5 SECONDS);
CREATE STREAM p (id INT, y INT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL 1 MINUTE);
CREATE STREAM plain (id INT, ts TIMESTAMP);
"""
BOUND = "p.ts BETWEEN o.ts AND o.ts + INTERVAL 10 SECONDS"


def at(seconds: int) -> dt.datetime:
    return dt.datetime(2024, 1, 1, tzinfo=dt.UTC) + dt.timedelta(seconds=seconds)


def rows(app: App, sql: str) -> list[dict[str, Any]]:
    return app.sql(sql).rows()


@pytest.mark.parametrize(
    ("condition", "low", "high"),
    [
        ("p.ts BETWEEN o.ts AND o.ts + INTERVAL 10 MINUTES", 0, 600),
        ("o.ts BETWEEN p.ts - INTERVAL '1' HOUR AND p.ts + INTERVAL 2 SECONDS", -2, 3600),
        ("p.ts > o.ts AND p.ts < o.ts + INTERVAL 1 DAY", 0, 86400),
        ("p.ts - o.ts < INTERVAL 1 HOUR AND INTERVAL 1 MINUTE <= p.ts - o.ts", 60, 3600),
        ("p.ts - INTERVAL 10 SECONDS <= o.ts AND INTERVAL 5 SECONDS + p.ts >= o.ts", -5, 10),
        ("p.ts = o.ts", 0, 0),
        ("p.ts >= o.ts AND p.ts >= o.ts + INTERVAL 3 SECONDS AND p.ts <= o.ts + INTERVAL 9 SECONDS", 3, 9),
        ("p.ts <= o.ts + INTERVAL 1 MINUTE", None, 60),
        ("p.ts <= o.ts + INTERVAL 1 MONTH AND p.ts >= o.ts", 0, None),
        ("(p.ts <= o.ts OR o.x = 1)", None, None),
        ("NOT (p.ts BETWEEN o.ts AND o.ts + INTERVAL 1 HOUR)", None, None),
        ("p.y > o.x", None, None),
    ],
)
def test_bounds(condition: str, low: int | None, high: int | None) -> None:
    checked = check_text(f"{STREAMS} SELECT o.id FROM o JOIN p ON o.id = p.id AND {condition};")
    assert not checked.errors
    (join,) = joins_of(checked.statements[-1].resolved)
    left, right = join.sides
    assert left.reach == (None if high is None else high * 1_000_000)
    assert right.reach == (None if low is None else -low * 1_000_000)
    assert bool(checked.warnings) == (low is None or high is None)


def test_warnings_are_for_joins_without_a_bound_and_for_nothing_else() -> None:
    text = f"""{STREAMS}
CREATE TABLE t (id INT PRIMARY KEY);
CREATE TABLE bounded AS SELECT o.id FROM o JOIN p ON o.id = p.id AND {BOUND};
CREATE TABLE unmarked AS SELECT o.id FROM o JOIN plain ON o.id = plain.id AND plain.ts = o.ts;
CREATE TABLE tables AS SELECT o.id FROM o JOIN t ON o.id = t.id;
CREATE TABLE endless AS SELECT o.id FROM o JOIN p ON o.id = p.id;
INSERT INTO t SELECT o.id FROM o, p WHERE o.id = p.id AND p.ts >= o.ts;
"""
    found = check_text(text)
    assert not found.errors
    both, one = found.warnings
    assert both.message == '"o" and "p" are joined without a time bound: all rows of both are kept for ever'
    assert "p.ts BETWEEN o.ts - INTERVAL 1 HOUR" in both.hint
    assert both.place is not None and both.place.line == 10
    assert 'at one end only: all rows of "o" are kept for ever' in one.message


def test_explain_says_what_is_kept() -> None:
    text = f"""{STREAMS}
SELECT o.x, p.y FROM o LEFT JOIN p ON o.id = p.id AND {BOUND};
SELECT o.id FROM o JOIN plain ON o.id = plain.id AND plain.ts = o.ts;
SELECT o.id FROM o JOIN plain ON o.id = plain.id;
"""
    *_, left, unmarked, endless = ("\n".join(lines) for _, lines in explain_text(check_text(text)))
    assert "stream stage: read o (id, x, ts)" in left
    assert ", pairs in process up to 10,000 rows and 16 MB, else by Spark" in left
    assert "the pairs stay on its executors, where the rest of the statement is evaluated" in left
    assert "batch stage: in process up to 10,000 pairs, or if they were found there, else by Spark" in left
    assert "join stage: LEFT JOIN of o and p on" in left
    assert "is joined with the stored rows of the other by o_id = p_id" in left
    assert "state: each row of o until the watermark of p (ts - 60 s) is more than 10 s past its o_ts" in left
    assert "emitted then if it has no match" in left
    assert "state: every row of o: without a watermark of plain" in unmarked
    assert "warning" not in unmarked
    assert 'warning: "o" and "plain" are joined without a time bound' in endless
    assert "state: every row of plain: without a time bound it grows with the stream" in endless


def test_explain_says_who_finds_pairs() -> None:
    select = f"FROM o JOIN p ON o.id = p.id AND {BOUND} GROUP BY o.id"
    text = f"""{STREAMS}
INSERT INTO counts SELECT o.id, LAST(p.y) AS y {select};
INSERT INTO counts SELECT o.id, MAX(p.y) AS y {select.replace("AND", "AND (o.x < p.y OR p.ts < now()) AND", 1)};
INSERT INTO counts SELECT o.id, MAX(p.y) AS y {select} WITH ('engine' = 'spark');
INSERT INTO counts SELECT o.id, MAX(p.y) AS y {select} WITH ('engine' = 'process');
""".replace(STREAMS, STREAMS + "CREATE TABLE counts (id INT PRIMARY KEY, y INT);")
    *_, numbered, changing, spark, process = ("\n".join(lines) for _, lines in explain_text(check_text(text)))
    assert "the pairs come to the driver, as the statement needs their numbers" in numbered
    assert "batch stage: in process, however many pairs there are" in numbered
    assert "the pairs come to the driver, as the condition may give another value each time" in changing
    assert ", pairs by Spark (engine = spark)" in spark and "the pairs stay on its executors" in spark
    assert ", pairs in process (engine = process)" in process and "executors" not in process


def test_kept_rows_are_bounded_and_late_rows_counted() -> None:
    sql = f"{STREAMS} CREATE TABLE j AS SELECT o.x, p.y FROM o LEFT JOIN p ON o.id = p.id AND {BOUND};"
    with App(sql, _direct=True) as app:
        most = 0
        for i in range(30):
            app.send("o", [{"id": n, "x": i, "ts": at(i * 60)} for n in range(20)])
            app.send("p", [{"id": n, "y": i, "ts": at(i * 60 + 5)} for n in range(10)])
            app.drain()
            kept = [len(app._runtime.store.table(f"table:j${side}") or ()) for side in ("left", "right")]
            most = max(most, *kept)
        assert most <= 60
        app.send("o", {"id": 1, "x": -1, "ts": at(0)})
        app.drain()
        about = {r["property"]: r["value"] for r in rows(app, "DESCRIBE EXTENDED j")}
        assert about["late rows"] == "1"
        assert int(about["kept rows"]) <= 60
        met, unmet = (
            rows(app, f"SELECT COUNT(*) AS n FROM j WHERE y IS {what} NULL")[0]["n"] for what in ("NOT", "")
        )
        assert met == 300
        assert unmet in range(270, 301)


def test_a_query_of_two_streams_is_one_to_whoever_holds_or_drops_it(tmp_path: Path) -> None:
    sql = f"{STREAMS} CREATE TABLE j AS SELECT o.x, p.y FROM o JOIN p ON o.id = p.id AND {BOUND};"
    with App(sql, state=tmp_path / "state", _direct=True) as app:
        app.sql("PAUSE QUERY j")
        app.send("o", {"id": 1, "x": 1, "ts": at(0)})
        app.send("p", {"id": 1, "y": 2, "ts": at(0)})
        app.drain()
        assert [q["state"] for q in rows(app, "SHOW QUERIES")] == ["paused", "paused"]
        assert [q["lag"] for q in rows(app, "SHOW QUERIES")] == [1, 1]
    with App(sql, state=tmp_path / "state", _direct=True) as app:
        assert {q["name"]: q["state"] for q in rows(app, "SHOW QUERIES")} == {
            "table:j.o": "paused",
            "table:j.p": "paused",
        }
        app.sql("RESUME QUERY j")
        app.drain()
        assert rows(app, "SELECT * FROM j") == [{"x": 1, "y": 2}]
        with pytest.raises(Error, match='stream "p" is used by query "table:j"'):
            app.sql("DROP STREAM p")
        app.sql("DROP TABLE j")
        assert not rows(app, "SHOW QUERIES")
        assert not [name for name in app._runtime.store._tables if name.startswith("table:j")]
        app.sql(f"CREATE TABLE j AS SELECT o.x, p.y FROM o JOIN p ON o.id = p.id AND {BOUND}")
        app.drain()
        assert rows(app, "SELECT * FROM j") == [{"x": 1, "y": 2}]


def test_rows_that_cannot_be_processed() -> None:
    """A pair that fails is put aside, and so is a row whose condition fails; the others go on."""
    sql = f"""{STREAMS}
CREATE TABLE divisors (id INT PRIMARY KEY, d INT);
INSERT INTO divisors VALUES (1, 0), (2, 5);
CREATE TABLE j AS SELECT o.id, o.x DIV d.d AS q FROM o JOIN p ON o.id = p.id AND {BOUND} JOIN divisors d ON d.id = o.id;
CREATE TABLE c AS SELECT o.id FROM o JOIN p ON 10 DIV o.x = p.y AND {BOUND};
"""
    with App(sql, _direct=True) as app:
        app.send("p", [{"id": n, "y": 2, "ts": at(1)} for n in (1, 2)])
        app.drain()
        app.send("o", [{"id": 1, "x": 5, "ts": at(0)}, {"id": 2, "x": 0, "ts": at(0)}])
        app.drain()
        assert rows(app, "SELECT * FROM j") == [{"id": 2, "q": 0}]
        (error,) = rows(app, "SELECT query, stream, row FROM j$errors")
        assert (error["query"], error["stream"]) == ("table:j", "o JOIN p")
        assert rows(app, "SELECT * FROM c") == [{"id": 1}, {"id": 1}]
        (error,) = rows(app, "SELECT query, stream FROM c$errors")
        assert error == {"query": "table:c.o", "stream": "o"}
        assert {q["name"]: q["errors"] for q in rows(app, "SHOW QUERIES")} == {
            "table:j.o": 1,
            "table:j.p": 0,
            "table:c.o": 1,
            "table:c.p": 0,
        }
        app.sql("UPDATE divisors SET d = 1 WHERE id = 1")
        assert app.sql("REPLAY j$errors").count == 1
        assert rows(app, "SELECT * FROM j ORDER BY id") == [{"id": 1, "q": 5}, {"id": 2, "q": 0}]
        assert not rows(app, "SELECT * FROM j$errors")


def test_joined_rows_wait_for_a_table() -> None:
    sql = f"""{STREAMS}
CREATE TABLE names (id INT PRIMARY KEY, name STRING);
CREATE TABLE j AS SELECT o.id, p.y, n.name FROM o JOIN p ON o.id = p.id AND {BOUND} JOIN names n ON n.id = o.id
WITH ('on.miss' = 'retry', 'on.miss.timeout' = '1h');
"""
    with App(sql, _direct=True) as app:
        app.send("o", {"id": 1, "ts": at(0)})
        app.send("p", {"id": 1, "y": 5, "ts": at(0)})
        app.drain()
        assert not rows(app, "SELECT * FROM j")
        assert sum(q["waiting"] or 0 for q in rows(app, "SHOW QUERIES")) == 1
        app.sql("INSERT INTO names VALUES (1, 'one')")
        app.drain()
        assert rows(app, "SELECT * FROM j") == [{"id": 1, "y": 5, "name": "one"}]


def test_into_a_database_rows_and_what_is_kept_are_one_transaction(tmp_path: Path) -> None:
    sql = f"""{STREAMS}
CREATE TABLE j (x INT, y INT) WITH ('extension' = 'sqlite', 'path' = '{tmp_path / "j.db"}');
INSERT INTO j SELECT o.x, p.y FROM o FULL JOIN p ON o.id = p.id AND {BOUND} WITH ('query.name' = 'q');
"""
    app = App(sql, state=tmp_path / "state", _direct=True)
    app.send("o", [{"id": 1, "x": 1, "ts": at(0)}, {"id": 2, "x": 2, "ts": at(0)}])
    app.drain()
    crash(app)
    with App(sql, state=tmp_path / "state", _direct=True) as app:
        app.send("p", [{"id": 1, "y": 10, "ts": at(3)}, {"id": 3, "y": 30, "ts": at(3)}])
        app.drain()
        assert rows(app, "SELECT * FROM j") == [{"x": 1, "y": 10}]
        for number, name in enumerate(("p", "o")):
            app.send(name, {"id": 8 + number, "ts": at(1000)})
        app.drain()
        found = sorted(rows(app, "SELECT * FROM j"), key=str)
        assert found == [{"x": 1, "y": 10}, {"x": 2, "y": None}, {"x": None, "y": 30}]
