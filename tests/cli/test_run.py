from __future__ import annotations

import signal

import pytest

APP = "CREATE TABLE t (id BIGINT PRIMARY KEY, name STRING);\nINSERT INTO t VALUES (1, 'one'), (2, 'two');\n"


def test_once_prints_the_answers_and_ends(cli):
    cli.file("app.sql", APP + "SELECT name FROM t ORDER BY id;\nSHOW TABLES;\nSELECT COUNT(*) AS n FROM t;")
    done = cli("run", "app.sql", "--once", "--format", "csv")
    assert done.code == 0
    assert done.out.splitlines()[:3] == ["name", "one", "two"] and done.out.splitlines()[-2:] == ["n", "2"]


def test_loading_is_told_on_standard_error(cli):
    cli.file("x.csv", "id,name\n1,a\n2,b\n")
    cli.file("app.sql", f"CREATE TABLE x AS SELECT * FROM file://{cli.cwd}/x.csv; SELECT * FROM x;")
    done = cli("run", "app.sql", "--once", "--format", "json")
    assert done.out == '{"id":1,"name":"a"}\n{"id":2,"name":"b"}\n' and "loaded x: 2 rows" in done.err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_it_cleanly(cli, number):
    cli.file("app.sql", APP + "SELECT COUNT(*) AS n FROM t;")
    run = cli.start("run", "app.sql", "--format", "csv", background=True)
    run.wait_for("n\n2\n", "out")
    assert run.stop(number) == 0
    assert "stopped" in run.err.read_text() and "Traceback" not in run.err.read_text()
    left = [p for p in (cli.cwd / "tmp").iterdir() if p.name.startswith("millpond-") and list(p.iterdir())]
    assert left == []


def test_a_second_run_on_the_same_state_is_refused(cli):
    cli.file("app.sql", APP)
    run = cli.start("run", "app.sql", "--state", "st")
    run.wait_for("running")
    done = cli("run", "app.sql", "--state", "st")
    assert done.code == 1 and f"in use by process {run.process.pid}" in done.err and "hint:" in done.err
    assert cli("query", "SELECT COUNT(*) AS n FROM t", "--state", "st", "--format", "csv").out == "n\n2\n"


def test_mistakes_in_the_file(cli):
    cli.file("app.sql", APP + "SELECT nme FROM t;\nSELECT uper(name) FROM t;")
    done = cli("run", "app.sql", "--state", "st")
    assert done.code == 1 and done.out == ""
    assert "app.sql:3:8: " in done.err and "app.sql:4:8: " in done.err
    assert 'hint: did you mean "upper"?' in done.err


def test_verbose_shows_where(cli):
    cli.file("app.sql", "SELECT nme FROM t;")
    assert "Traceback" in cli("run", "app.sql", "--verbose").err


@pytest.mark.parametrize("content", ["", "   -- nothing\n"])
def test_an_empty_file_is_an_app_without_anything(cli, content):
    cli.file("app.sql", content)
    assert cli("run", "app.sql", "--once").code == 0
    assert cli("check", "app.sql").out == "ok: 0 statements\n"


def test_a_state_directory_that_cannot_be_used(cli):
    cli.file("app.sql", APP)
    done = cli("run", "app.sql", "--state", "/dev/null/x")
    assert done.code == 1 and "cannot be used" in done.err and "/dev/null/x" in done.err
    cli.file("a_file", "")
    assert cli("run", "app.sql", "--state", "a_file").code == 1
    (cli.cwd / "full").mkdir()
    (cli.cwd / "full" / "letter.txt").write_text("mine")
    done = cli("run", "app.sql", "--state", "full")
    assert done.code == 1 and "not a state directory" in done.err
    assert [p.name for p in (cli.cwd / "full").iterdir()] == ["letter.txt"]


def test_a_state_directory_of_another_app(cli):
    cli.file("app.sql", APP)
    cli.file("other.sql", "CREATE TABLE u (id INT);")
    assert cli("run", "app.sql", "--once", "--state", "st").code == 0
    done = cli("run", "other.sql", "--once", "--state", "st")
    assert done.code == 1 and "another app" in done.err
    assert cli("query", "SELECT COUNT(*) AS n FROM t", "--state", "st", "--format", "csv").out == "n\n2\n"


def test_malformed_and_missing_data(cli):
    cli.file("bad.json", '[{"id": 1}, {"id": ')
    cli.file("app.sql", f"CREATE TABLE x AS SELECT * FROM file://{cli.cwd}/bad.json;")
    done = cli("run", "app.sql", "--once")
    assert done.code == 1 and "bad.json" in done.err
    cli.file("app.sql", f"CREATE TABLE x AS SELECT * FROM file://{cli.cwd}/none.csv;")
    done = cli("run", "app.sql", "--once")
    assert done.code == 1 and "file.wait.timeout" in done.err and "app.sql:1:" in done.err


def test_a_row_of_the_wrong_type_keeps_nothing(cli):
    cli.file("app.sql", "CREATE TABLE t (id INT);\nINSERT INTO t VALUES (1), ('x');")
    done = cli("run", "app.sql", "--once")
    assert done.code == 1 and "app.sql:2:" in done.err
