from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from millpond import App
from millpond.app.app import runtime_of
from millpond.app.texts import Texts
from millpond.cli.client import Client
from millpond.cli.error_report import Report
from millpond.cli.output import Format, Printer
from millpond.cli.prompt import SqlCompleter, make_prompt
from millpond.cli.sessions import LocalSession, RemoteSession
from millpond.cli.shell import Shell
from millpond.cli.splitter import is_finished, split_statements
from millpond.http.socket import SocketServer

STATEMENTS = """\
CREATE TABLE t (id INT, name STRING);
INSERT INTO t VALUES (1, 'a;b'); -- not; here
SELECT name
FROM t;
\\d t
"""


@pytest.fixture
def session():
    with App("CREATE TABLE prices (symbol STRING, price DOUBLE); CREATE STREAM trades (qty INT)") as app:
        yield LocalSession(app)


def test_statements_from_a_pipe(cli):
    done = cli("sql", "--format", "csv", stdin=STATEMENTS)
    assert done.code == 0, done.err
    assert done.out.splitlines()[4:] == [
        "name",
        "a;b",
        "column,type,key,nullable",
        "id,INT,false,true",
        "name,STRING,false,true",
    ]


def test_a_pipe_ends_at_the_first_error_and_names_its_line(cli):
    done = cli("sql", "--format", "csv", stdin="SELECT 1 AS a;\n\nSELECT x\nFROM nowhere;\nSELECT 2 AS b;")
    assert (done.code, done.out) == (1, "a\n1\n") and "sql:4:6: " in done.err


def test_plans_come_as_text_that_can_be_copied(cli):
    table = "CREATE TABLE t (id INT PRIMARY KEY);"
    done = cli("sql", stdin=f"{table} EXPLAIN FORMAT MERMAID SELECT * FROM t;")
    assert done.out.splitlines()[1:] == [
        "flowchart LR",
        '    n0{{"select"}}',
        '    n1[("t")]',
        "    n1 --> n0",
    ]
    done = cli("sql", stdin=f"{table} EXPLAIN FORMAT JSON SELECT * FROM t;")
    assert json.loads(done.out.partition("\n")[2])["columns"] == [{"name": "id", "type": "INT"}]
    cli.file("app.sql", table)
    cli.start("run", "app.sql").wait_for("running")
    told = cli("query", "EXPLAIN SELECT * FROM t")
    assert told.out.splitlines()[:2] == ["SELECT: answered once", "read table t as t"]
    assert cli("query", "EXPLAIN FORMAT SVG SELECT * FROM t").out.startswith("<svg ")


def test_a_shell_of_its_own_keeps_what_it_did(cli):
    assert cli("sql", "--state", "st", stdin="CREATE TABLE t (id INT); INSERT INTO t VALUES (7);").code == 0
    assert cli("query", "SELECT * FROM t", "--state", "st", "--format", "csv").out == "id\n7\n"


def test_a_shell_of_a_running_app(cli):
    cli.file("app.sql", "CREATE TABLE t (id INT);")
    run = cli.start("run", "app.sql")
    run.wait_for("running")
    assert cli("sql", stdin="INSERT INTO t VALUES (1); INSERT INTO t VALUES (2)").code == 0
    assert cli("query", "SELECT SUM(id) AS n FROM t", "--format", "csv").out == "n\n3\n"


@pytest.mark.parametrize(
    ("text", "statements"),
    [
        ("SELECT 1; SELECT 2", ["SELECT 1", " SELECT 2"]),
        ("SELECT ';' ; -- a;b\n", ["SELECT ';' "]),
        ("\\d\nSELECT 1;", ["\\d", "\nSELECT 1"]),
        ("SELECT 1;\\d t", ["SELECT 1", "\\d t"]),
        (";;  ;", []),
        ("SELECT * FROM file:///a;b", ["SELECT * FROM file:///a", "b"]),
        ("/* ; */ SELECT 1;", ["/* ; */ SELECT 1"]),
        (
            "SELECT 0; begin; SELECT 1; -- ;\nCOMMIT; SELECT 2",
            ["SELECT 0", " begin; SELECT 1; -- ;\nCOMMIT", "\n SELECT 2"],
        ),
        ("BEGIN; SELECT 1", ["BEGIN", " SELECT 1"]),
        ("BEGIN; a; ROLLBACK; BEGIN; b;", ["BEGIN; a; ROLLBACK", " BEGIN", " b"]),
    ],
)
def test_splitting(text, statements):
    assert split_statements(text, unfinished=True) == statements


@pytest.mark.parametrize(
    ("text", "finished"),
    [
        ("SELECT 1;", True),
        ("SELECT 1; -- the end", True),
        ("SELECT 1", False),
        ("SELECT ';", False),
        ("SELECT 1; SELECT", False),
        ("\\d", True),
        ("", True),
        (" Exit ;", True),
        ("quit", True),
        ("help", True),
        ("exits", False),
    ],
)
def test_a_statement_is_finished_by_its_semicolon(text, finished):
    assert is_finished(text) is finished


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        ("SELECT * FROM pri", "prices"),
        ("SELECT sy", "symbol"),
        ("SELECT q", "qty"),
        ("SEL", "SELECT"),
        ("sel", "select"),
        ("SELECT * FROM TRA", "trades"),
        ("UPD", "UPDATE"),
        ("SELECT date_f", "date_format"),
    ],
)
def test_completion(session, typed, found):
    offered = SqlCompleter(session).get_completions(Document(typed), CompleteEvent())
    assert found in [c.text for c in offered]


def test_the_prompt_takes_lines_until_a_semicolon(session, tmp_path):
    with create_pipe_input() as typed, create_app_session(input=typed, output=DummyOutput()):
        ask = make_prompt(session, tmp_path)
        typed.send_text("SELECT 1\r+ 1;\r")
        assert ask() == "SELECT 1\n+ 1;"
        typed.send_text("\\d\r")
        assert ask() == "\\d"
    assert "+SELECT 1" in (tmp_path / "history").read_text()


def test_commands(session, capsys):
    out = io.StringIO()
    shell = Shell(session, Printer(Format.csv, out), Report("sql"))
    assert shell.run("\\d") and "prices" in out.getvalue() and "trades" in out.getvalue()
    assert shell.run("\\timing") and shell.run("SELECT 1") and " ms" in capsys.readouterr().err
    assert not shell.run("\\nonsense") and "not known" in capsys.readouterr().err
    assert shell.run("HELP;") and "the end" in capsys.readouterr().err
    for end in ("\\q", "exit", "quit;"):
        with pytest.raises(EOFError):
            shell.run(end)


def check_a_transaction_line_by_line(shell: Shell, other: Callable[[str], list[Any]], capsys: Any) -> None:
    count = "SELECT COUNT(*) AS n FROM prices"
    assert shell.run("BEGIN") and shell.run("INSERT INTO prices VALUES ('A', 1.5)")
    assert not shell.run("INSERT INTO nowhere VALUES (1)") and "nowhere" in capsys.readouterr().err
    assert not shell.run("BEGIN") and "open already" in capsys.readouterr().err
    assert shell.run("UPDATE prices SET price = 2 WHERE symbol = 'A'") and shell.run(
        "SELECT price FROM prices"
    )
    assert other(count) == [{"n": 0}]
    assert shell.run("commit;")
    assert other("SELECT * FROM prices") == [{"symbol": "A", "price": 2.0}]
    assert shell.run("begin transaction") and shell.run("DELETE FROM prices") and shell.run("ROLLBACK")
    assert other(count) == [{"n": 1}]
    assert shell.run("BEGIN") and shell.run("INSERT INTO prices VALUES ('B', 1)")
    other("INSERT INTO prices VALUES ('C', 1)")
    assert shell.run("COMMIT") and other(count) == [{"n": 3}]
    assert not shell.run("COMMIT") and "BEGIN" in capsys.readouterr().err


def test_a_transaction_line_by_line(session, capsys):
    out = io.StringIO()
    shell = Shell(session, Printer(Format.csv, out), Report("sql"))
    check_a_transaction_line_by_line(shell, lambda sql: session.app.sql(sql).rows(), capsys)
    assert "price\n2.0\n" in out.getvalue()


def test_a_transaction_line_by_line_with_a_running_app(tmp_path, capsys):
    with (
        App("CREATE TABLE prices (symbol STRING, price DOUBLE)", state=tmp_path / "s") as app,
        SocketServer(runtime_of(app)),
    ):
        client = Client.of(tmp_path / "s")
        assert client is not None
        session = RemoteSession(tmp_path / "s", client)
        shell = Shell(session, Printer(Format.csv, io.StringIO()), Report("sql"))
        check_a_transaction_line_by_line(shell, lambda sql: app.sql(sql).rows(), capsys)
        assert shell.run("BEGIN") and shell.run("DELETE FROM prices")
        session.close()  # what was not committed is not there
        assert len(app.table("prices").all_rows()) == 3


def test_long_answers_are_paged(tmp_path, monkeypatch):
    monkeypatch.setenv("LINES", "10")
    monkeypatch.setenv("PAGER", f"tee {tmp_path / 'seen'}")
    out = io.StringIO()
    with App() as app:
        shell = Shell(LocalSession(app), Printer(Format.table, out, paged=True), Report("sql"))
        many = " UNION ALL ".join(f"SELECT {i} AS n" for i in range(30))
        assert shell.run(many) and shell.run("SELECT 'short' AS s")
        assert "29" in (tmp_path / "seen").read_text() and "(30 rows)" in (tmp_path / "seen").read_text()
        assert "29" not in out.getvalue() and "short" in out.getvalue()
        monkeypatch.setenv("PAGER", "no-such-pager")
        assert shell.run(many) and "29" in out.getvalue()


def test_a_query_that_is_left_while_it_starts_does_not_go_on(monkeypatch):
    """A person presses Ctrl-C while a query starts."""
    plain = Texts.ask

    def ask(self, text, params, permissions=None):
        plain(self, text, params, permissions)
        raise KeyboardInterrupt

    with App("CREATE STREAM s (id INT); CREATE TABLE t (id INT)", _direct=True) as app:
        monkeypatch.setattr(Texts, "ask", ask)
        with pytest.raises(KeyboardInterrupt):
            LocalSession(app).ask("SELECT * FROM s")
        monkeypatch.undo()
        assert app.sql("SHOW QUERIES").rows() == [] and not app._runtime.emitted.results
