"""Statements come out as their data says."""

from __future__ import annotations

import time
from typing import Any

import pyarrow as pa
import pytest
from sqlglot import exp

from millpond.options import Setting
from millpond.sql import statements as s
from millpond.sql.nodes import AnyDepth, Index, Path, StreamWindow
from millpond.sql.parse import parse, parse_condition, parse_one_statement
from millpond.types import TIMESTAMP, TIMESTAMP_NTZ


def one(text: str) -> Any:
    return parse_one_statement(text)


def test_create_stream() -> None:
    stream = one(
        "CREATE STREAM IF NOT EXISTS Trades (ts TIMESTAMP NOT NULL, v INT, "
        "WATERMARK FOR ts AS ts - INTERVAL 5 SECONDS) WITH ('connector'='kafka://trades', \"format\"='json')"
    )
    assert isinstance(stream, s.CreateStream)
    assert stream.name == "Trades"
    assert stream.if_not_exists
    assert stream.columns == (s.ColumnDef("ts", TIMESTAMP, nullable=False), s.ColumnDef("v", pa.int32()))
    assert stream.watermark is not None
    assert (stream.watermark.column, stream.watermark.seconds) == ("ts", 5.0)
    assert stream.settings == (Setting("connector", "kafka://trades"), Setting("format", "json"))


def test_keys_of_tables() -> None:
    inline = one("CREATE TABLE t (id INT PRIMARY KEY, v STRING)")
    apart = one("CREATE TABLE t (id INT, v STRING, PRIMARY KEY (id))")
    assert inline == apart
    assert inline.key == ("id",)
    assert [c.primary_key for c in inline.columns] == [True, False]
    only = one("CREATE TABLE t (PRIMARY KEY (a, b)) AS SELECT a, b FROM s")
    assert (only.columns, only.key) == ((), ("a", "b"))


@pytest.mark.parametrize(
    ("text", "type_"),
    [
        ("INTEGER", pa.int32()),
        ("INT", pa.int32()),
        ("LONG", pa.int64()),
        ("BIGINT", pa.int64()),
        ("SMALLINT", pa.int16()),
        ("TINYINT", pa.int8()),
        ("BOOL", pa.bool_()),
        ("TEXT", pa.string()),
        ("VARCHAR", pa.string()),
        ("VARCHAR(20)", pa.string()),
        ("DOUBLE", pa.float64()),
        ("FLOAT", pa.float32()),
        ("BINARY", pa.binary()),
        ("DATE", pa.date32()),
        ("TIMESTAMP", TIMESTAMP),
        ("TIMESTAMP_NTZ", TIMESTAMP_NTZ),
        ("INTERVAL DAY TO SECOND", pa.duration("us")),
        ("DECIMAL", pa.decimal128(10, 0)),
        ("DECIMAL(12)", pa.decimal128(12, 0)),
        ("DECIMAL(18,4)", pa.decimal128(18, 4)),
        ("ARRAY(STRING)", pa.list_(pa.field("element", pa.string()))),
        ("ARRAY<ARRAY<INT>>", pa.list_(pa.field("element", pa.list_(pa.field("element", pa.int32()))))),
        ("MAP(STRING, INT)", pa.map_(pa.string(), pa.int32())),
        ("MAP<STRING, ARRAY<LONG>>", pa.map_(pa.string(), pa.list_(pa.field("element", pa.int64())))),
        ("STRUCT<a: INT, b: STRING>", pa.struct([("a", pa.int32()), ("b", pa.string())])),
        ("STRUCT<a INT>", pa.struct([("a", pa.int32())])),
    ],
)
def test_types(text: str, type_: pa.DataType) -> None:
    assert one(f"CREATE TABLE t (c {text})").columns[0].type == type_


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM kafka://x WITH ({})",
        "SELECT * FROM kafka://x o WITH ({})",
        "SELECT * FROM t WHERE a = 1 WITH ({})",
        "SELECT a FROM t GROUP BY a WITH ({})",
        "SELECT a FROM t ORDER BY a LIMIT 1 WITH ({})",
        "SELECT * FROM t EMIT CHANGES WITH ({})",
        "SELECT * FROM t WITH ({}) EMIT CHANGES",
        "SELECT COUNT(*) FROM t WINDOW TUMBLING(5m) WITH ({})",
        "CREATE TABLE t WITH ({}) AS SELECT * FROM s",
        "CREATE TABLE t AS SELECT * FROM s WITH ({})",
        "INSERT INTO t SELECT * FROM s WITH ({})",
        "INSERT INTO t WITH ({}) SELECT * FROM s",
        "UPDATE t SET a = 1 FROM s WHERE t.a = s.a WITH ({})",
        "DELETE FROM t USING s WHERE t.a = s.a WITH ({})",
        "DELETE FROM t WITH ({})",
        "UPSERT INTO t SELECT a FROM s ON t.a = s.a WITH ({})",
    ],
)
def test_settings_end_any_statement(text: str) -> None:
    inner = "'a.b' = 'x', \"c\" = \"y\", d.e = 1.5, f = true, g = -2, h = 30s, `i` = '', format = FALSE"
    assert one(text.format(inner)).settings == (
        Setting("a.b", "x"),
        Setting("c", "y"),
        Setting("d.e", "1.5"),
        Setting("f", "true"),
        Setting("g", "-2"),
        Setting("h", "30s"),
        Setting("i", ""),
        Setting("format", "false"),
    )


@pytest.mark.parametrize(
    ("text", "window"),
    [
        ("TUMBLING(5m)", s.WindowClause("tumbling", None, 300.0)),
        ("tumbling(500ms)", s.WindowClause("tumbling", None, 0.5)),
        ("TUMBLING(ts, INTERVAL '5' MINUTE)", s.WindowClause("tumbling", parse_condition("ts"), 300.0)),
        ("TUMBLING(t.ts, INTERVAL 2 HOURS)", s.WindowClause("tumbling", parse_condition("t.ts"), 7200.0)),
        ("HOPPING(10m, 2m)", s.WindowClause("hopping", None, 600.0, 120.0)),
        ("SLIDING(10m, '2 minutes')", s.WindowClause("hopping", None, 600.0, 120.0)),
        ("SESSION(30s)", s.WindowClause("session", None, 30.0)),
        ("SESSION(7d)", s.WindowClause("session", None, 604800.0)),
    ],
)
def test_windows(text: str, window: s.WindowClause) -> None:
    for query in ("SELECT COUNT(*) FROM t", "SELECT COUNT(*) FROM t x WHERE a > 1 GROUP BY a"):
        select = one(f"{query} WINDOW {text} EMIT FINAL")
        assert select.query.window == window
        assert select.query.emit == "final"
        assert select.query.expression.args.get("windows") is None


def test_the_window_of_an_inner_query_stays_in_the_tree() -> None:
    select = one("SELECT * FROM (SELECT COUNT(*) FROM s WINDOW TUMBLING(5s)) x")
    assert select.query.window is None
    (window,) = select.query.expression.find_all(StreamWindow)
    assert (window.name, window.args["size"].name) == ("tumbling", "5")


def test_window_functions_are_no_window_clause() -> None:
    select = one("SELECT SUM(a) OVER w FROM t GROUP BY window(ts, '5 minutes'), b WINDOW w AS (ORDER BY b)")
    assert select.query.window is None
    assert len(select.query.expression.args["windows"]) == 1
    assert select.query.expression.args["group"].expressions[0].name.lower() == "window"


def test_paths() -> None:
    steps = one("SELECT a.*.b[0].**.c[*] FROM t").query.expression.expressions[0].steps
    kinds = [exp.Identifier, exp.Star, exp.Identifier, Index, AnyDepth, exp.Identifier, Index]
    assert [type(each) for each in steps] == kinds
    assert isinstance(one("SELECT **.b FROM t").query.expression.expressions[0], Path)
    plain = one("SELECT t.*, users[0].profile.email, a * b FROM t").query.expression
    assert not list(plain.find_all(Path))


def test_insert() -> None:
    insert = one("INSERT INTO t (a, `b c`) VALUES (1, 'x'), (?, :name)")
    assert insert.columns == ("a", "b c")
    assert [len(row) for row in insert.values] == [2, 2]
    question, named = insert.values[1]
    assert isinstance(question, exp.Placeholder)
    assert isinstance(named, exp.Placeholder)
    assert named.name == "name"
    assert question.meta["start"] < named.meta["start"]


def test_update_and_delete() -> None:
    update = one(
        "UPDATE stock AS k SET k.qty = k.qty - o.q, last = 1 FROM orders o JOIN items i ON o.i = i.id "
        "WHERE k.id = i.stock RETURNING k.id AS id, qty INTO out_stream ERROR INTO bad"
    )
    assert (update.target, update.alias) == ("stock", "k")
    assert [name for name, _ in update.assignments] == ["qty", "last"]
    assert update.source.name == "orders"
    assert len(update.joins) == 1
    assert len(update.returning) == 2
    assert (update.returning_into, update.errors_into) == ("out_stream", "bad")
    assert one("DELETE FROM t FROM s WHERE t.a = s.a") == one("DELETE FROM t USING s WHERE t.a = s.a")


def test_merge() -> None:
    merge = one(
        "MERGE INTO t USING s ON t.id = s.id WHEN MATCHED AND s.op = 'd' THEN DELETE "
        "WHEN MATCHED THEN UPDATE SET a = s.a WHEN NOT MATCHED THEN INSERT (id, a) VALUES (s.id, s.a)"
    )
    assert merge.target == "t"
    assert len(merge.expression.args["whens"].expressions) == 3


def test_small_statements() -> None:
    parsed = parse(
        "BEGIN; COMMIT; ROLLBACK; SHOW TABLES; REPLAY x$errors; STOP QUERY q; EXPLAIN UPGRADE new.sql"
    )
    assert parsed.require() == (
        s.Begin(),
        s.Commit(),
        s.Rollback(),
        s.Show("tables"),
        s.Replay("x$errors"),
        s.ControlQuery("stop", "q"),
        s.ExplainUpgrade("new.sql"),
    )
    explain = one("EXPLAIN ANALYZE SELECT 1")
    assert explain.analyze and explain.format == "text"
    for form in ("FORMAT JSON", "format = json", "(FORMAT JSON)", "(FORMAT = Json)"):
        assert one(f"EXPLAIN {form} SELECT 1") == s.Explain(explain.statement, format="json")
    assert one("EXPLAIN (SELECT 1)").statement == one("(SELECT 1)")
    assert explain.statement.text == "SELECT 1"


def test_the_grain_of_any_all_and_exists() -> None:
    select = one("SELECT a > ANY (SELECT 1), a > SOME (SELECT 1), a > ALL (SELECT 1), EXISTS (SELECT 1)")
    first, second, third, fourth = select.query.expression.expressions
    assert first == second
    assert all(isinstance(e.this, exp.Select) for e in (first.expression, third.expression, fourth))


def test_names_keep_their_spelling() -> None:
    select = one("SELECT OrderId, `My Col` FROM Orders")
    assert [c.name for c in select.query.expression.expressions] == ["OrderId", "My Col"]
    assert [c.meta["start"] for c in select.query.expression.find_all(exp.Identifier)]


_WORDS = (
    "status metrics properties stream emit window changes final key tables query queries error "
    "format comment schema database session index view show update replace load file value type date "
    "timestamp begin commit start stop pause resume upsert merge insert delete table column columns "
    "user year month day hour first last data options partition rows range row set no name version "
    "source target matched location language top limit offset string int array map struct filter "
    "transform if any some next unique watermark tumbling returning values "
).split()


@pytest.mark.parametrize("word", _WORDS)
def test_words_that_are_not_reserved_are_names(word: str) -> None:
    for text in (
        "SELECT {w}, t.{w}, SUM({w}) AS {w} FROM t WHERE {w} > 1 AND {w} IS NOT NULL",
        "SELECT * EXCEPT ({w}) FROM t JOIN u USING ({w})",
        "CREATE TABLE {w} ({w} INT, s STRUCT<{w}: INT>, PRIMARY KEY ({w}))",
        "UPDATE t SET {w} = {w} + 1",
        "INSERT INTO {w} ({w}) VALUES (1)",
        "SELECT {w}.*.x FROM t",
        "SELECT * FROM t AS {w}",
    ):
        assert parse(text.format(w=word)).errors == (), text.format(w=word)


def test_emit_is_no_alias() -> None:
    assert one("SELECT a FROM t EMIT CHANGES").query.emit == "changes"
    assert one("SELECT a FROM (SELECT a FROM t) EMIT FINAL").query.emit == "final"
    assert one("SELECT 1 EMIT CHANGES").query.emit == "changes"


def test_the_time_to_parse_grows_with_the_text_and_no_faster() -> None:
    def seconds(count: int) -> float:
        text = ";\n".join(
            f"CREATE TABLE t{i} AS SELECT a, SUM(b) AS s, COUNT(*) FROM kafka://x{i} o JOIN u ON o.id = u.id "
            f"WHERE a > {i} AND b LIKE '%x' GROUP BY a WINDOW TUMBLING(5m) EMIT CHANGES WITH ('k{i}' = 'v')"
            for i in range(count)
        )
        start = time.process_time()
        assert len(parse(text).require()) == count
        return time.process_time() - start

    seconds(10)
    assert min(seconds(200) for _ in range(2)) < 25 * min(seconds(20) for _ in range(3))


@pytest.mark.parametrize(
    "text",
    [
        "SELECT SUM({}), coalesce({}, 1), greatest(1, {}) FROM t",
        "SELECT SUM({} * 2), MAX({} IS NULL), MAX({} = 1), SUM({} / 2), COUNT(DISTINCT {}) FROM t",
        "SELECT {} = 1, {} IS NULL FROM t",
        "SELECT SUM({}) OVER (PARTITION BY {}) FROM t",
    ],
)
def test_all_is_a_name_where_nothing_follows_that_it_could_be_about(text: str) -> None:
    plain, quoted = (parse(text.replace("{}", name)).require()[0] for name in ("all", "`all`"))
    assert isinstance(plain, s.Select) and isinstance(quoted, s.Select)
    assert _columns(plain) == _columns(quoted) and _columns(plain).count("all") == text.count("{}")


@pytest.mark.parametrize(
    "text", ["SELECT COUNT(ALL *) FROM t", "SELECT SUM(ALL +1) FROM t", "SELECT ALL * FROM t"]
)
def test_all_is_a_word_elsewhere(text: str) -> None:
    (found,) = parse(text).require()
    assert isinstance(found, s.Select) and not _columns(found)


def _columns(select: s.Select) -> list[str]:
    return [c.name for c in select.query.expression.find_all(exp.Column)]


@pytest.mark.parametrize("text", ["r'a\\n' 'b'", "'a\\\\' r'nb'", "r'a\\' 'n' r\"b\""])
def test_adjacent_texts_are_one(text: str) -> None:
    (found,) = parse(f"SELECT {text} AS x, upper({text}) AS y").require()
    assert isinstance(found, s.Select)
    assert [e.name for e in found.query.expression.find_all(exp.Literal)] == ["a\\nb"] * 2
