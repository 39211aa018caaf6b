from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from millpond.app.check import check_text
from millpond.errors import UnknownName

ROOT = Path(__file__).resolve().parents[2]
SVG = "{http://www.w3.org/2000/svg}"

TEN_MISTAKES = """\
CREATE STREAM trades (id BIGINT, symbol STRNG, qty INT);
CREATE TABLE prices (symbol STRING PRIMARY KEY, price DECIMAL(10,2)) WITH ('extension'='memry');
CREATE TABLE ref AS SELECT * FROM file:///nowhere/ref.csv;
SELECT symbol, prise FROM prices;
INSERT INTO nowhere SELECT * FROM prices;
SELECT uper(symbol) FROM prices;
INSERT INTO prices VALUES ('A');
CREATE TABLE k (id INT, PRIMARY KEY (idd));
SELECT '${MILLPOND_NOT_SET}';
CREATE TABLE o (id INT) WITH ('colour'='red');
-- these need what is broken above, and are not mistakes of their own
SELECT t.id, r.x FROM trades t JOIN ref r ON r.id = t.id;
INSERT INTO k VALUES (1);
"""


def test_ten_mistakes_are_ten_errors_each_with_place_and_hint(cli):
    cli.file("bad.sql", TEN_MISTAKES)
    done = cli("check", "bad.sql")
    assert done.code == 1 and done.out == ""
    heads = re.findall(r"^bad\.sql:(\d+):(\d+): (.*)$", done.err, re.MULTILINE)
    assert [int(line) for line, _, _ in heads] == list(range(1, 11))
    blocks = done.err.strip().split("\n\n")
    assert blocks.pop() == "10 errors"
    lines = TEN_MISTAKES.splitlines()
    for (line, column, _), block in zip(heads, blocks, strict=True):
        _, text, caret, hint = block.split("\n")
        assert text == "  " + lines[int(line) - 1]
        assert caret.index("^") == int(column) + 1
        assert hint.startswith("hint: ")
    assert 'did you mean "STRING"?' in blocks[0] and 'did you mean "upper"?' in blocks[5]


_DECLARED = """
CREATE STREAM orders (id BIGINT, at DATE);
CREATE TABLE items (id BIGINT PRIMARY KEY, at TIMESTAMP);
CREATE TABLE sums AS SELECT at, COUNT(*) AS n FROM orders GROUP BY at;
INSERT INTO items SELECT id, at FROM orders WITH ('query.name' = 'filler');
"""


@pytest.mark.parametrize(
    ("text", "at", "message", "hint"),
    [
        ("SELECT DATE '2013-13-45'", "'2013", '"2013-13-45" is no DATE', "'2026-01-31'"),
        ("SELECT id FROM orders WHERE at > DATE '2013-02-29'", "'2013", "is no DATE", ""),
        ("SELECT TIMESTAMP '2013-01-01 24:00:00' AS t", "'2013", "is no TIMESTAMP", ""),
        ("SELECT TIMESTAMP_NTZ '2013-01-01 1:60:00' AS t", "'2013", "is no TIMESTAMP_NTZ", ""),
        ("INSERT INTO items VALUES (1, '2013-02-30 00:00:00')", "'2013", "is no TIMESTAMP", ""),
        ("INSERT INTO items VALUES (1, NULL), (NULL, NULL)", "items", 'row 1 for table "items"', ""),
        ("INSERT INTO items (at) VALUES (NULL)", "items", '"id" is NULL or missing', ""),
        ("PAUSE QUERY filer", "filer", 'there is no query "filer"', 'did you mean "filler"?'),
        ("DROP QUERY sms", "sms", 'there is no query "sms"', 'did you mean "sums"?'),
        ("START QUERY insert_items_0123abcd", "insert_items", "there is no query", "queries: filler, sums"),
        ("INSERT INTO kafka://out SELECT id FROM orders LIMIT 3", "3", "LIMIT on a stream", ""),
    ],
)
def test_what_cannot_be_is_found_before_it_runs(text: str, at: str, message: str, hint: str) -> None:
    (error,) = check_text(_DECLARED + text).errors
    assert message in error.message and hint in (error.hint or "")
    assert error.line == 6 and text[(error.column or 0) - 1 :].startswith(at)


def test_what_may_be_is_not_refused() -> None:
    found = check_text(
        _DECLARED
        + "SELECT DATE '2024-2-29', TIMESTAMP '2024-01-01 23:59:59.5 Europe/Paris', TIMESTAMP '13:00', DATE 'today';"
        "INSERT INTO sums VALUES (NULL, 3); INSERT INTO items SELECT id, at FROM orders;"
        "PAUSE QUERY Sums; STOP QUERY filler; RESUME QUERY insert_items_55583c27; DROP QUERY IF EXISTS x"
    )
    assert not found.errors


_ONLY_SPARK = """
CREATE STREAM pages (id INT, url STRING);
CREATE TABLE ids AS SELECT id, regexp_extract(url, '(&|^)id=([^&]*)', 2) AS found FROM pages;
CREATE TABLE n AS SELECT COUNT(*) AS n FROM pages;
"""


def test_a_file_is_checked_for_the_engine_of_its_app(cli):
    file = cli.file("app.sql", _ONLY_SPARK)
    assert cli("check", file).code == 0
    assert cli("check", file, "--engine", "spark").code == 0
    done = cli("check", file, "--engine", "process")
    assert done.code == 1 and "app.sql:3:1: only Spark can evaluate this statement" in done.err
    assert done.err.rstrip().endswith("1 error")
    assert "not one of 'auto', 'spark', 'process'" in cli("check", file, "--engine", "duckdb").err
    told = cli(
        "explain", cli.file("block.sql", _ONLY_SPARK + "BEGIN; INSERT INTO n SELECT 1 FROM pages; COMMIT;")
    )
    lines = [line.split("  ", 1)[1] for line in told.out.splitlines() if "block.sql:5" in line]
    assert [line.split(":")[0] for line in lines] == ["BEGIN", "INSERT", "COMMIT"]
    assert "by Spark (engine = spark)" in cli("explain", file, "--engine", "spark").out


def test_check_is_fast_and_starts_nothing(cli):
    """Ten mistakes cost little beside what checking a good statement costs."""
    bad, good = cli.file("bad.sql", TEN_MISTAKES), cli.file("good.sql", "CREATE TABLE t (id INT);")
    before = set(cli.cwd.iterdir())

    def checked(file):
        code = (
            "import sys, time\nfrom millpond.cli.main import main\n"
            "try: main()\nexcept SystemExit as end: code = end.code\n"
            "print(code, time.process_time(), 'pyspark' in sys.modules)"
        )
        command = [sys.executable, "-c", code, "check", str(file)]
        done = subprocess.run(command, capture_output=True, text=True, cwd=cli.cwd, timeout=300)
        exit_code, seconds, spark = done.stdout.split()[-3:]
        assert spark == "False"
        return exit_code, float(seconds)

    (one, one_good), (bad_code, ten_bad) = checked(good), checked(bad)
    assert (one, bad_code) == ("0", "1")
    assert ten_bad < 10 * one_good
    assert set(cli.cwd.iterdir()) == before


def test_a_good_file(cli):
    cli.file("good.sql", "CREATE TABLE t (id INT); -- one\nSELECT * FROM t;")
    done = cli("check", "good.sql")
    assert (done.code, done.out, done.err) == (0, "ok: 2 statements\n", "")


def test_the_example_is_good():
    assert (
        check_text(
            (ROOT / "examples/pnl/app.sql").read_text(), {"PNL_DATA": str(ROOT / "examples/pnl/data")}
        ).errors
        == ()
    )


def test_missing_and_unreadable_files(cli):
    (cli.cwd / "binary.sql").write_bytes(b"\xff\xfe\x00")
    for command in ("check", "run", "explain"):
        done = cli(command, "nowhere.sql")
        assert done.code == 1 and 'there is no file "nowhere.sql"' in done.err
        assert cli(command, "binary.sql").code == 1
        assert "cannot be read" in cli(command, ".").err


def test_parse_errors_and_check_errors_come_in_text_order():
    found = check_text("SELECT a FROM x;\nSELECT FROM;\nSELECT b FROM y;")
    assert [e.line for e in found.errors] == [1, 2, 3]


def test_a_name_that_is_created_only_later_is_an_error():
    found = check_text("SELECT * FROM t;\nCREATE TABLE t (id INT);\nSELEC;")
    assert (found.errors[0].line, type(found.errors[0])) == (1, UnknownName)


def test_other_mistakes_beside_a_broken_name_are_still_found():
    text = "CREATE TABLE t (id NT);\nSELECT id, uper(name) FROM t;\nSELECT id FROM t2;"
    assert [e.line for e in check_text(text).errors] == [1, 2, 3]


def test_a_view_over_a_broken_view_is_not_one_more_mistake():
    text = "CREATE VIEW a AS SELECT x FROM nowhere;\nCREATE VIEW b AS SELECT x FROM a;\nSELECT y FROM b;"
    assert [e.line for e in check_text(text).errors] == [1]


def test_secrets_are_not_shown(cli):
    cli.file(
        "app.sql",
        "CREATE TABLE t AS SELECT * FROM file:///nowhere/${TOKEN}.csv;\nSELECT '${TOKEN}' + x FROM t2;",
    )
    for command in ("check", "run", "explain"):
        done = cli(command, "app.sql", TOKEN="hunter2secret")
        assert done.code == 1 and "${TOKEN}" in done.err
        assert "hunter2secret" not in done.out + done.err


def test_explain_tells_the_plan_of_every_statement(cli):
    cli.file(
        "app.sql",
        "CREATE STREAM s (id BIGINT);\nCREATE TABLE t (id BIGINT PRIMARY KEY);\n"
        "INSERT INTO t SELECT id FROM s;\nSELECT * FROM t;",
    )
    done = cli("explain", "app.sql")
    assert done.code == 0, done.err
    assert [line for line in done.out.splitlines() if line.startswith("app.sql:")] == [
        "app.sql:1  CREATE STREAM: done at once",
        "app.sql:2  CREATE TABLE: done at once",
        "app.sql:3  INSERT: runs for as long as the app",
        "app.sql:4  SELECT: answered once",
    ]


GROWING = """\
CREATE STREAM s (k STRING, x INT, ts TIMESTAMP);
CREATE STREAM t (k STRING, x INT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL 5 SECONDS);
CREATE TABLE a AS SELECT COUNT(*) AS n FROM s WINDOW TUMBLING(5m);
CREATE TABLE b AS SELECT COUNT(*) AS n FROM t WINDOW TUMBLING(5m) WITH ('late' = 'update');
SELECT DISTINCT k FROM s;
CREATE TABLE c AS SELECT k, MEDIAN(x) AS m FROM s GROUP BY k;
-- these end, or grow with their groups alone
CREATE TABLE d AS SELECT k, COUNT(DISTINCT x) AS n FROM t GROUP BY k WINDOW TUMBLING(5m);
CREATE TABLE e AS SELECT COUNT(*) AS n FROM t WINDOW TUMBLING(5m) WITH ('late' = 'update', 'retention' = '1 day');
CREATE TABLE f AS SELECT k, SUM(x) AS total FROM s GROUP BY k;
SELECT DISTINCT k FROM f;
"""


def test_state_that_grows_for_ever_is_warned_of(cli):
    cli.file("growing.sql", GROWING)
    done = cli("check", "growing.sql")
    assert done.code == 0 and done.out == "ok: 10 statements, 4 warnings\n"
    assert re.findall(r"^growing\.sql:(\d+):", done.err, re.MULTILINE) == ["3", "4", "5", "6"]


def test_state_of_views_that_grows_with_the_tables_is_noted(cli):
    cli.file(
        "views.sql",
        "CREATE TABLE t (id INT PRIMARY KEY, g STRING, x INT);\n"
        "CREATE MATERIALIZED VIEW a AS SELECT g, COUNT(DISTINCT x) AS n FROM t GROUP BY g;\n"
        "CREATE TABLE b AS SELECT DISTINCT g FROM t;\n"
        "-- these keep nothing that grows, or have a limit, or are recomputed\n"
        "CREATE TABLE c AS SELECT SUM(x) AS total FROM t;\n"
        "CREATE TABLE d AS SELECT DISTINCT g FROM t WITH ('state.max_memory' = '64MB');\n"
        "CREATE TABLE e AS SELECT DISTINCT g FROM t WITH ('refresh' = 'full');\n"
        "CREATE TABLE f AS SELECT DISTINCT g FROM t WITH ('refresh' = 'once');\n",
    )
    done = cli("check", "views.sql")
    assert done.code == 0 and done.out == "ok: 7 statements\n"
    assert re.findall(r"^views\.sql:(\d+):\d+: note: .* grows with the (.*)$", done.err, re.MULTILINE) == [
        ("2", "groups, and with the different values of groups"),
        ("3", "different rows"),
    ]
    assert done.err.count("hint: limit it: WITH ('state.max_memory'") == 2


def test_a_picture_of_the_app(cli):
    cli.file("x.csv", "id,name\n1,a\n")
    cli.file(
        "app.sql",
        "CREATE STREAM s (id BIGINT, qty INT);\nCREATE TABLE t (id BIGINT PRIMARY KEY, qty INT, name STRING);\n"
        f"CREATE TABLE f AS SELECT * FROM file://{cli.cwd}/x.csv;\n"
        "INSERT INTO t SELECT s.id, s.qty, f.name FROM s JOIN f ON f.id = s.id;\n"
        "CREATE TABLE n AS SELECT COUNT(*) AS n FROM t;\n",
    )
    picture = cli("explain", "app.sql", "--format", "mermaid").out
    assert picture.startswith("flowchart LR\n") and '(["s"])' in picture and '[("t")]' in picture
    drawn = cli("explain", "app.sql", "--format", "svg").out
    assert {e.text for e in ElementTree.fromstring(drawn).iter(f"{SVG}title")} >= {"s", "t", "f", "insert 4"}
    told = json.loads(cli("explain", "app.sql", "--format", "json").out)
    edges = {(e["from"], e["to"]) for e in told["edges"]}
    source = next(n["id"] for n in told["nodes"] if n["kind"] == "source")
    assert {
        (source, "table:f"),
        ("stream:s", "query:insert 4"),
        ("table:f", "query:insert 4"),
        ("query:insert 4", "table:t"),
        ("table:t", "table:n"),
    } == edges
    assert [s["line"] for s in told["statements"]] == [1, 2, 3, 4, 5]


ALL_WRONG = """\
CREATE STREAM trades (id INT, symbol STRNG);
CREATE TABLE users (id BIGINT PRIMARY KEY, nam STRING);
CREATE TABLE named AS SELECT t.id, u.name, t.whatever FROM trades t JOIN users u ON t.user_id = u.idd;
INSERT INTO named SELECT id, price FROM trades WHERE price > 1;
SELECT foo, bar FROM users WHERE idd = 1;
CREATE TABLE more AS SELECT * FROM missing m JOIN users u USING (id) WHERE u.nme = m.x AND y = 1;
SELECT a, b FROM more WHERE uper(a) = 1;
UPDATE users SET nme = 'x', idd = 1;
UPDATE more SET anything = 1;
CREATE TABLE t (id INT) WITH ('durabilty' = 'x', 'durability' = 'sometimes', 'hot.records' = 'many');
DROP TABLE nope;
INSERT INTO users (id, nme) VALUES (1, 2);
INSERT INTO users VALUES (2);
CREATE INDEX i ON users (nme);
CREATE INDEX j ON more (z);
"""


def test_all_mistakes_at_once_each_at_its_word():
    """What only follows from another mistake is not told."""
    found = [
        (e.line, e.place.text[e.column - 1 :][: e.place.length], e.message)
        for e in check_text(ALL_WRONG).errors
    ]
    assert [(line, word) for line, word, _ in found] == [
        (1, "STRNG"),
        (3, "name"),
        (3, "idd"),
        (5, "foo"),
        (5, "bar"),
        (5, "idd"),
        (6, "missing"),
        (6, "nme"),
        (7, "uper"),
        (8, "nme"),
        (8, "idd"),
        (10, "'durabilty' = 'x'"),
        (10, "'durability' = 'sometimes'"),
        (10, "'hot.records' = 'many'"),
        (11, "nope"),
        (12, "nme"),
        (13, "2"),
        (14, "nme"),
    ], found


def test_a_word_is_found_in_its_own_line():
    text = "SELECT 1;\n  INSERT INTO t (`a b`,\n  -- nope\n  nope) VALUES ('nope', 1);"
    catalog = "CREATE TABLE t (`a b` INT, c INT);\n"
    (error,) = check_text(catalog + text).errors
    assert (error.line, error.column, error.place.text) == (5, 3, "  nope) VALUES ('nope', 1)")


def test_a_check_waits_for_nothing(tmp_path, caplog):
    text = f"""
    CREATE TABLE a AS SELECT * FROM file://{tmp_path}/later.csv WITH ('file.wait.timeout' = '1h');
    CREATE TABLE b AS SELECT x FROM file://{tmp_path}/later*.csv WHERE uper(x) = 1 WITH ('file.wait.timeout' = '1h');
    CREATE TABLE c AS SELECT * FROM http://127.0.0.1:1/x.json WITH ('retry.timeout' = '1h');
    CREATE TABLE d AS SELECT * FROM postgresql://127.0.0.1:1/x?table=y WITH ('retry.timeout' = '1h');
    CREATE TABLE e AS SELECT * FROM kafka://127.0.0.1:1/t WITH ('topic.wait.timeout' = '1h');
    SELECT whatever FROM a;
    """
    checked = check_text(text)
    assert [e.line for e in checked.errors] == [3, 4, 5, 6] and "uper" in checked.errors[0].message
    assert [w.place.line for w in checked.warnings] == [2, 3]
    assert "trying again" not in caplog.text
