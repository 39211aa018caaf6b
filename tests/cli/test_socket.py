from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import socket
import stat
import threading
import time
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from millpond import App
from millpond.app.app import runtime_of
from millpond.errors import CheckFailed, EngineError, InvalidRecord, Place, SqlError, UnknownName
from millpond.server import registry
from millpond.server.address import NAME, connect
from millpond.server.client import Client
from millpond.server.messages import dump_error, load_error
from millpond.server.socket import CONNECTIONS, SocketServer

pytestmark = pytest.mark.slow

SQL = "CREATE TABLE t (id BIGINT PRIMARY KEY, price DECIMAL(10,2)); INSERT INTO t VALUES (1, 1.50), (2, 2.25)"


@pytest.fixture
def served(tmp_path: Path):
    with App(SQL, state=tmp_path / "state") as app, SocketServer.of(runtime_of(app)):
        yield tmp_path / "state"


@pytest.fixture
def client(served: Path):
    client = Client.of(served)
    assert client is not None
    yield client
    client.close()


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
    back = load_error(json.loads(json.dumps(dump_error(error))))
    assert isinstance(back, InvalidRecord)
    assert vars(back) == vars(error)


def test_the_socket_is_for_its_owner_and_goes_with_the_app(tmp_path):
    with App(SQL, state=tmp_path / "s") as app:
        with SocketServer.of(runtime_of(app)):
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
        with SocketServer.of(runtime_of(app)):
            client = Client.of(tmp_path / "s")
            assert client is not None and rows(client, "SELECT 1 AS one")
            client.close()


def test_a_state_directory_with_a_very_long_path(tmp_path):
    state = tmp_path / ("d" * 100) / ("e" * 100)
    with App(SQL, state=state) as app, SocketServer.of(runtime_of(app)):
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
    clients = [Client.of(served) for _ in range(CONNECTIONS)]
    for client in clients:
        assert client is not None and rows(client, "SELECT 1 AS one")
    late = Client.of(served)
    assert late is not None
    with pytest.raises(EngineError, match="clients are connected"):
        late.ask("SELECT 1")
    later = Client.of(served)
    assert later is not None
    assert select.select([later._connection], [], [], 10)[0]  # the app has spoken and gone
    with pytest.raises(EngineError, match="clients are connected"):
        later.ask("SELECT 1")
    for client in [*clients, late, later]:
        client.close()


@pytest.mark.parametrize(
    "request_line", [b"nonsense\n", b"[1]\n", b'{"sql": 1}\n', b'{"sql": "SELECT 1", "x": 1}\n']
)
def test_a_request_that_is_not_understood(served, request_line):
    with connect(served) as connection, connection.makefile("rwb") as file:
        file.write(request_line)
        file.flush()
        assert "error" in json.loads(file.readline())


def test_a_client_that_leaves_without_asking_does_no_harm(served, client):
    connect(served).close()
    with connect(served) as connection:
        connection.sendall(b'{"sql": "SEL')
    assert rows(client, "SELECT 1 AS one") == [{"one": 1}]


def test_an_app_that_ends_is_told(served, client):
    client._connection.shutdown(socket.SHUT_WR)
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


def said(served: Path, request: bytes) -> bytes:
    """All that a connection is answered on which nothing but that is sent."""
    connection = connect(served)
    assert connection is not None
    connection.settimeout(20)
    with connection:
        with contextlib.suppress(BrokenPipeError):
            connection.sendall(request)
        parts = []
        with contextlib.suppress(ConnectionError):
            while part := connection.recv(65536):
                parts.append(part)
        return b"".join(parts)


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        (b"hello\n", "is not JSON"),
        (b"\xff\xfe\n", "is not JSON"),
        (b"[1]\n", "not a JSON object"),
        (b"[" * 100_000 + b"\n", "nested deeper"),
        (b"x" * 2_000_000, "longer than 1 MB"),
        (b'{"sql": "SELECT 1", "params": "x"}\n', "is not understood"),
        (b'{"sql": 5}\n', "is not understood"),
        (b'{"sql": "SELECT 1", "admin": true}\n', "is not understood"),
    ],
)
def test_what_is_no_request(served, client, monkeypatch, request_, answer):
    monkeypatch.setattr("millpond.server.messages.MAX_LINE", 1 << 20)
    connection = connect(served)
    connection.settimeout(20)
    with connection, connection.makefile("rwb") as file:
        with contextlib.suppress(BrokenPipeError):
            connection.sendall(request_)
        assert answer in json.loads(file.readline())["error"]["message"]
    assert rows(client, "SELECT 1 AS one") == [{"one": 1}]


def test_a_request_that_is_never_finished(served, monkeypatch):
    monkeypatch.setattr("millpond.server.socket.REQUEST_SECONDS", 0.3)
    assert said(served, b'{"sql": "SELECT') == b""
    # those that have not begun one may take their time
    patient = Client.of(served)
    assert rows(patient, "SELECT 1 AS one") == [{"one": 1}]
    select.select([patient._connection], [], [], 0.8)
    assert rows(patient, "SELECT 2 AS two") == [{"two": 2}]
    patient.close()


def test_clients_that_never_read(served, monkeypatch):
    """They are let go, and others are answered meanwhile."""
    monkeypatch.setattr("millpond.server.socket.ANSWER_SECONDS", 1.0)
    stuck = []
    for _ in range(CONNECTIONS - 1):
        connection = connect(served)
        text = f"SELECT '{'x' * 300_000}' AS x FROM t"
        connection.sendall(json.dumps({"sql": text}).encode() + b"\n")
        stuck.append(connection)
    other = Client.of(served)
    assert rows(other, "SELECT 1 AS one") == [{"one": 1}]
    deadline = time.monotonic() + 30
    fresh = []
    while len(fresh) < CONNECTIONS - 1:
        assert time.monotonic() < deadline
        client = Client.of(served)
        try:
            rows(client, "SELECT 1 AS one")
            fresh.append(client)
        except EngineError:
            client.close()
            time.sleep(0.1)
    for one in (*stuck, *fresh, other):
        one.close()


def test_an_exhausted_file_table_does_not_end_it(served):
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
