from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import resource
import select
import socket
import stat
import subprocess
import sys
import threading
import time
from decimal import Decimal
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path

import httpx
import pyarrow as pa
import pytest

from millpond import App
from millpond.app.app import runtime_of
from millpond.cli import registry
from millpond.cli.client import Client, load_error
from millpond.cli.sessions import RemoteSession
from millpond.errors import (
    CheckFailed,
    Closed,
    Conflict,
    EngineError,
    Error,
    InvalidRecord,
    NotSupported,
    Place,
    SqlError,
    UnknownName,
)
from millpond.http.address import NAME, connect
from millpond.http.failures import body_of
from millpond.http.socket import LIMITS, SocketServer

pytestmark = pytest.mark.slow

SQL = "CREATE TABLE t (id BIGINT PRIMARY KEY, price DECIMAL(10,2)); INSERT INTO t VALUES (1, 1.50), (2, 2.25)"


@contextlib.contextmanager
def serving(state: Path, sql: str = SQL, **limits):
    """An app on a state directory, and its socket with these limits."""
    limited = dataclasses.replace(LIMITS, **limits)
    with App(sql, state=state, _direct=True) as app, SocketServer(runtime_of(app), limited) as server:
        yield app, server


@pytest.fixture
def served(tmp_path: Path):
    with serving(tmp_path / "state"):
        yield tmp_path / "state"


@pytest.fixture
def client(served: Path):
    client = Client.of(served)
    assert client is not None
    yield client
    client.close()


def request(body: bytes, path: str = "/sql") -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def rows(client: Client, sql: str, params=None) -> list[dict]:
    return pa.concat_tables(client.ask(sql, params).tables).to_pylist()


def test_rows_keep_their_types(client):
    assert rows(client, "SELECT * FROM t ORDER BY id") == [
        {"id": 1, "price": Decimal("1.50")},
        {"id": 2, "price": Decimal("2.25")},
    ]


def test_an_answer_without_rows_has_its_columns(client):
    (table,) = client.ask("SELECT id FROM t WHERE id > 5").tables
    assert table.num_rows == 0 and table.column_names == ["id"]


def test_parameters_and_counts(client):
    assert rows(client, "SELECT price FROM t WHERE id = ?", [2]) == [{"price": Decimal("2.25")}]
    assert client.ask("INSERT INTO t VALUES (:id, 9)", {"id": 3}).count == 1
    assert rows(client, "SELECT COUNT(*) AS n FROM t") == [{"n": 3}]


def test_an_error_is_the_same_on_the_other_side_and_the_connection_goes_on(client):
    with pytest.raises(UnknownName) as found:
        client.ask("SELECT id,\n  prize FROM t")
    assert (found.value.line, found.value.column) == (2, 3)
    assert found.value.place.caret() == "  prize FROM t\n  ^^^^^" and found.value.hint
    with pytest.raises(CheckFailed) as several:
        client.ask("SELECT a FROM t; SELECT b FROM t")
    assert [e.column for e in several.value.errors] == [8, 25]
    assert rows(client, "SELECT 1 AS one") == [{"one": 1}]


def test_every_field_of_an_error_survives():
    error = InvalidRecord("m", row=3, field="f", hint="h", place=Place(1, 2, 3, "abcdef"))
    back = load_error(json.loads(json.dumps(body_of(error, whole=True)))["error"])
    assert isinstance(back, InvalidRecord)
    assert vars(back) == vars(error)


def test_the_socket_is_for_its_owner_and_goes_with_the_app(tmp_path):
    with App(SQL, state=tmp_path / "s") as app:
        with SocketServer(runtime_of(app)):
            assert stat.S_IMODE(os.stat(tmp_path / "s" / NAME).st_mode) == 0o600
        assert not (tmp_path / "s" / NAME).exists()
    assert Client.of(tmp_path / "s") is None
    assert Client.of(tmp_path / "nowhere") is None


def test_a_socket_that_a_killed_app_left_is_replaced(tmp_path):
    with App(SQL, state=tmp_path / "s") as app:
        left = socket.socket(socket.AF_UNIX)
        left.bind(str(tmp_path / "s" / NAME))
        left.close()
        assert Client.of(tmp_path / "s") is None
        with SocketServer(runtime_of(app)):
            client = Client.of(tmp_path / "s")
            assert client is not None and rows(client, "SELECT 1 AS one")
            client.close()


def test_a_state_directory_with_a_very_long_path(tmp_path):
    state = tmp_path / ("d" * 100) / ("e" * 100)
    with App(SQL, state=state) as app, SocketServer(runtime_of(app)):
        client = Client.of(state)
        assert client is not None and rows(client, "SELECT COUNT(*) AS n FROM t") == [{"n": 2}]
        client.close()


def test_many_clients_at_once(served):
    answers = []

    def ask() -> None:
        client = Client.of(served)
        assert client is not None
        answers.extend(rows(client, "SELECT COUNT(*) AS n FROM t"))
        client.close()

    threads = [threading.Thread(target=ask) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [{"n": 2}] * 16


def test_one_client_too_many_is_told(served):
    clients = [Client.of(served) for _ in range(LIMITS.connections)]
    for client in clients:
        assert client is not None and rows(client, "SELECT 1 AS one")
    late = Client.of(served)
    assert late is not None
    with pytest.raises(EngineError, match="connections are open"):
        late.ask("SELECT 1")
    later = Client.of(served)
    assert later is not None
    assert select.select([later._http.sock], [], [], 10)[0]  # the app has spoken and gone
    with pytest.raises(EngineError, match="connections are open"):
        later.ask("SELECT 1")
    for client in [*clients, late, later]:
        client.close()


def test_a_client_that_leaves_without_asking_does_no_harm(served, client):
    connect(served).close()
    with connect(served) as connection:
        connection.sendall(request(b'{"sql": "SEL')[:-4])
    assert rows(client, "SELECT 1 AS one") == [{"one": 1}]


def test_an_app_that_ends_is_told(served, client):
    client._http.sock.shutdown(socket.SHUT_WR)
    with pytest.raises(EngineError, match="went away"):
        client.ask("SELECT 1")


def test_the_registry_knows_running_processes_only(tmp_path, monkeypatch):
    monkeypatch.setattr(registry.tempfile, "gettempdir", lambda: str(tmp_path))
    with registry.Registration() as mine:
        assert registry.running_apps() == [None]
        mine.ready(tmp_path / "state")
        assert registry.running_apps() == [tmp_path / "state"]
    directory = tmp_path / f"millpond-{os.getuid()}"
    (directory / "1.app").write_text("/left/over")
    assert registry.running_apps() == [] and not list(directory.iterdir())


def test_a_registry_that_others_can_write_to_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(registry.tempfile, "gettempdir", lambda: str(tmp_path))
    directory = tmp_path / f"millpond-{os.getuid()}"
    directory.mkdir()
    directory.chmod(0o777)
    with pytest.raises(Exception, match="only you can write to"):
        registry.running_apps()


def test_bad_text_over_the_socket_is_an_error_not_the_end(client):
    with pytest.raises(SqlError):
        client.ask("SELECT 'never closed")
    assert rows(client, "SELECT 1 AS one")


def said(state: Path, sent: bytes) -> bytes:
    """All that a connection is answered on which nothing but that is sent."""
    connection = connect(state)
    assert connection is not None
    connection.settimeout(20)
    with connection:
        with contextlib.suppress(BrokenPipeError):
            connection.sendall(sent)
        parts = []
        with contextlib.suppress(ConnectionError):
            while part := connection.recv(65536):
                parts.append(part)
        return b"".join(parts)


@pytest.mark.parametrize(
    ("body", "answer"),
    [
        (b"hello", "is not JSON"),
        (b"\xff\xfe", "is not JSON"),
        (b"[1]", "not a JSON object"),
        (b"[" * 100_000, "nested too deeply"),
        (b"x" * 2_000_000, "larger than 1,048,576 bytes"),
        (b'{"sql": "SELECT 1", "params": "x"}', "wrong type"),
        (b'{"sql": 5}', "wrong type"),
        (b'{"params": []}', "missing"),
        (b'{"sql": "SELECT 1", "admin": true}', "is not known"),
    ],
)
def test_what_is_no_request(tmp_path, body, answer):
    with serving(tmp_path, body=1 << 20), connect(tmp_path) as connection:
        connection.settimeout(20)
        connection.sendall(request(body))
        response = HTTPResponse(connection)
        response.begin()
        assert 400 <= response.status < 500 and answer in json.loads(response.read())["error"]["message"]
        other = Client.of(tmp_path)
        assert rows(other, "SELECT 1 AS one") == [{"one": 1}]
        other.close()


def test_what_is_no_http(served, client):
    assert said(served, b'{"sql": "SELECT 1"}\n').startswith(b"HTTP/1.1 400 ")
    assert rows(client, "SELECT 1 AS one") == [{"one": 1}]


def test_a_request_that_is_never_finished(tmp_path):
    with serving(tmp_path, head_seconds=0.3, body_seconds=0.3):
        assert said(tmp_path, b"POST /sql HT") == b""
        begun = request(b'{"sql": "SELECT 1"}').replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
        assert said(tmp_path, begun[:-4]).startswith(b"HTTP/1.1 408 ")
        # those that have not begun one may take their time
        patient = Client.of(tmp_path)
        select.select([patient._http.sock], [], [], 0.8)
        assert rows(patient, "SELECT 1 AS one") == [{"one": 1}]
        select.select([patient._http.sock], [], [], 0.8)
        assert rows(patient, "SELECT 2 AS two") == [{"two": 2}]
        patient.close()


def test_clients_that_never_read(tmp_path):
    """They are let go, and others are answered meanwhile."""
    with serving(tmp_path, answer_seconds=1.0):
        stuck = []
        for _ in range(LIMITS.connections - 1):
            connection = connect(tmp_path)
            text = f"SELECT '{'x' * 300_000}' AS x FROM t"
            connection.sendall(request(json.dumps({"sql": text}).encode()))
            stuck.append(connection)
        other = Client.of(tmp_path)
        assert rows(other, "SELECT 1 AS one") == [{"one": 1}]
        deadline = time.monotonic() + 30
        fresh = []
        while len(fresh) < LIMITS.connections - 1:
            assert time.monotonic() < deadline
            client = Client.of(tmp_path)
            try:
                rows(client, "SELECT 1 AS one")
                fresh.append(client)
            except EngineError:
                client.close()
                time.sleep(0.1)
        for one in (*stuck, *fresh, other):
            one.close()


@pytest.mark.parametrize("asked_before", [False, True])
def test_an_exhausted_file_table_does_not_end_it(served, asked_before):
    if asked_before:
        first = Client.of(served)
        assert rows(first, "SELECT 1 AS one")
        first.close()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    held = []
    waiting = socket.socket(socket.AF_UNIX)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 30, hard))
    try:
        with contextlib.suppress(OSError):
            while True:
                held.append(os.open("/dev/null", os.O_RDONLY))
        waiting.connect(os.fspath(served / NAME))  # nobody can take it now
        time.sleep(0.3)
    finally:
        for file in held:
            os.close(file)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    late = Client(waiting)
    assert rows(late, "SELECT 1 AS one") == [{"one": 1}]
    late.close()


def test_the_routes_of_the_http_api_without_a_token(tmp_path, monkeypatch):
    monkeypatch.setenv("MILLPOND_TOKEN_READ", "0123456789abcdef")
    (tmp_path / "x.csv").write_text("a\n1\n")
    file = f"SELECT a FROM file://{tmp_path}/x.csv"
    with serving(tmp_path / "s") as (app, _), app.serve(port=0) as http:
        transport = httpx.HTTPTransport(uds=str(tmp_path / "s" / NAME))
        with httpx.Client(transport=transport, base_url="http://localhost", timeout=30) as owner:
            assert owner.get("/tables/t/rows/1").json() == {"id": 1, "price": 1.5}
            assert [t["name"] for t in owner.get("/tables").json()["tables"]] == ["t"]
            assert "millpond_ready" in owner.get("/metrics").text
            assert owner.get("/openapi.json").json()["paths"]
            # What only the owner of the process may name.
            assert owner.post("/sql", json={"sql": file}).json()["rows"] == [{"a": 1}]
        with httpx.Client(base_url=http.url, headers={"Authorization": "Bearer 0123456789abcdef"}) as guest:
            assert guest.post("/sql", json={"sql": file}).status_code == 403
            assert guest.post("/sql", json={"sql": "SELECT 1", "only_reads": True}).status_code == 400


def test_a_client_that_only_reads(served):
    reader = Client.of(served, only_reads=True)
    assert rows(reader, "SELECT COUNT(*) AS n FROM t") == [{"n": 2}]
    for text in ("DELETE FROM t", "SELECT 1; DROP TABLE t", "BEGIN", "INSERT INTO t VALUES (7, 7)"):
        with pytest.raises(NotSupported, match="needs the name of the app"):
            reader.ask(text)
    reader.close()


STREAM = "CREATE STREAM s (id INT, name STRING)"


def no_queries(app: App) -> bool:
    deadline = time.monotonic() + 20
    while app.sql("SHOW QUERIES").rows():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def test_a_running_query_goes_on_until_its_client_leaves(tmp_path):
    with serving(tmp_path, STREAM) as (app, _):
        client = Client.of(tmp_path)
        answer = client.ask("SELECT id, upper(name) AS name FROM s")
        assert answer.running
        for number in (1, 2):
            app.send("s", [{"id": number, "name": "a"}])
            app.drain()
            assert next(answer.tables).to_pylist() == [{"id": number, "name": "A"}]
        assert app.sql("SHOW QUERIES").rows()
        client.close()
        assert no_queries(app)


def test_a_running_query_tells_of_its_end(tmp_path):
    with serving(tmp_path, STREAM) as (app, server):
        failing, stopped = Client.of(tmp_path), Client.of(tmp_path)
        broken = failing.ask("SELECT id FROM s WHERE 1 / id > 0 WITH ('on.error' = 'fail')")
        live = stopped.ask("SELECT id FROM s")
        app.send("s", [{"id": 1}])
        app.drain()
        assert [next(a.tables).to_pylist() for a in (broken, live)] == [[{"id": 1}]] * 2
        app.send("s", [{"id": 0}])
        with contextlib.suppress(Error):
            app.drain()
        with pytest.raises(Error, match="zero"):
            list(broken.tables)
        assert next(live.tables).to_pylist() == [{"id": 0}]
        server.close()
        with pytest.raises(Closed, match="the app stops"):
            list(live.tables)
        for client in (failing, stopped):
            client.close()


def test_rows_that_keep_coming_are_arrow(tmp_path):
    with serving(tmp_path, STREAM) as (app, _):
        transport = httpx.HTTPTransport(uds=str(tmp_path / NAME))
        with httpx.Client(transport=transport, base_url="http://localhost", timeout=30) as owner:
            refused = owner.post("/sql", json={"sql": "SELECT id FROM s"})
            assert refused.status_code == 406 and "Arrow" in refused.json()["error"]["message"]
        assert no_queries(app)


def test_a_statement_that_runs_when_the_app_stops(tmp_path):
    told = []

    def ask(client: Client) -> None:
        try:
            client.ask("CREATE TABLE other (id INT)")
        except Error as error:
            told.append(error)

    with serving(tmp_path) as (app, server):
        client = Client.of(tmp_path)
        assert rows(client, "SELECT 1 AS one")
        with runtime_of(app).lock:
            asking = threading.Thread(target=ask, args=(client,))
            asking.start()
            time.sleep(0.3)
            server.close()
        asking.join()
        assert [type(e) for e in told] == [Closed]


def test_an_error_gets_the_class_that_declares_its_code():
    class Inside(Closed):
        """As those that an app catches itself: its code is the one of its parent."""

    data = {"code": "closed", "message": "the app stops", "hint": None}
    for declared in (Closed, Conflict, Error):
        assert type(load_error({**data, "code": declared.code})) is declared
    assert issubclass(Inside, Closed)


def test_a_statement_that_is_left_does_not_answer_the_next_one(served, monkeypatch):
    session = RemoteSession(served, Client.of(served))
    with monkeypatch.context() as interrupted:
        interrupted.setattr(
            HTTPConnection, "getresponse", lambda self: (_ for _ in ()).throw(KeyboardInterrupt)
        )
        with pytest.raises(KeyboardInterrupt):
            session.ask("SELECT 1 AS one")
    for _ in range(2):
        assert [t.to_pylist() for t in session.ask("SELECT 2 AS two").tables] == [[{"two": 2}]]
    session.close()


def test_an_app_that_nobody_asks_loads_no_server(tmp_path):
    code = (
        "import sys\nfrom pathlib import Path\nfrom millpond import App\nfrom millpond.app.app import runtime_of\n"
        "from millpond.cli.client import Client\nfrom millpond.http.socket import SocketServer\n"
        "server = {'uvicorn', 'starlette', 'prometheus_client'}\n"
        f"with App(state=Path({str(tmp_path)!r})) as app, SocketServer(runtime_of(app)):\n"
        "    print(server & set(sys.modules))\n"
        f"    print(list(Client.of(Path({str(tmp_path)!r})).ask('SELECT 1 AS one').tables)[0].to_pylist())\n"
        "    print(server <= set(sys.modules))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines() == ["set()", "[{'one': 1}]", "True"], done.stderr


def test_a_client_loads_no_server():
    code = (
        "import sys, millpond.cli.main, millpond.cli.sessions\n"
        "print({'uvicorn', 'starlette', 'asyncio', 'duckdb', 'pyspark'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines() == ["set()"], done.stderr
