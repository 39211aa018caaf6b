"""The engine of ClickHouse (chdb) behind HTTP: what clickhouse-connect needs of a server, in a process of its own.

It is not ClickHouse's server: its HTTP interface is written here, after the documentation; parsing, types, tables,
formats and errors are the engine's. Sessions keep nothing from one request to the next. Users are those of ``USERS``.

    python -m tests.chdb_http PORT DIRECTORY [CERTIFICATE KEY]
"""

from __future__ import annotations

import base64
import email
import gzip
import re
import ssl
import sys
import tempfile
import uuid
import zlib
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import chdb
import pyarrow as pa

USERS = {"default": "", "millpond": "pond"}
_OF_HTTP = {
    "user",
    "password",
    "query",
    "query_id",
    "database",
    "session_id",
    "session_timeout",
    "wait_end_of_query",
    "default_format",
    "client_protocol_version",
    "buffer_size",
    "role",
}
_FORMAT = re.compile(r"\s+FORMAT\s+(\w+)\s*;?\s*\Z", re.IGNORECASE)
_INSERT = re.compile(
    rb"\s*(INSERT\s+INTO\s+(?:(?!\sVALUES\b|\sSELECT\b).)*?)\s+FORMAT\s+(\w+)\s*?\n", re.I | re.S
)
_SELECT = re.compile(r"\s*\(*\s*(?:SELECT|WITH)\b", re.IGNORECASE)
_CODE = re.compile(r"Code: (\d+)\. (DB::Exception: .*)", re.DOTALL)
_STATUS = {60: 404, 81: 404, 62: 400, 46: 404, 47: 404, 497: 403, 516: 403}


class Failed(Exception):
    """An error of the engine, with its code."""

    def __init__(self, text: str):
        found = _CODE.search(text)
        self.code = int(found[1]) if found else 1001
        super().__init__(
            f"Code: {self.code}. {found[2] if found else text} (version {chdb.engine_version})\n"
        )


class Asked:
    """A request: its statement, the format of the answer, settings and parameters."""

    def __init__(self, handler: BaseHTTPRequestHandler, body: bytes):
        given = {k: v[0] for k, v in parse_qs(urlsplit(handler.path).query, keep_blank_values=True).items()}
        kind = handler.headers.get("Content-Type", "")
        if kind.startswith("multipart/form-data"):
            message = email.message_from_bytes(f"Content-Type: {kind}\r\n\r\n".encode() + body)
            for part in message.walk():
                name = part.get_param("name", header="content-disposition")
                if isinstance(name, str):
                    given[name] = part.get_payload(decode=True).decode()  # type: ignore[union-attr]
            body = b""
        if handler.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        self.data: bytes | None = None
        text = given.get("query", "").encode() + (b"\n" if given.get("query") else b"") + body
        insert = _INSERT.match(text)
        if insert is not None:
            self.data, text = text[insert.end() :], insert[1]
        self.format = insert[2].decode() if insert else given.get("default_format", "TabSeparated")
        self.statement = text.decode()
        found = _FORMAT.search(self.statement)
        if found is not None and insert is None:
            self.statement, self.format = self.statement[: found.start()], found[1]
        self.database = given.get("database") or "default"
        self.id = given.get("query_id") or str(uuid.uuid4())
        self.params = {k[6:]: v for k, v in given.items() if k.startswith("param_")}
        self.settings = {k: v for k, v in given.items() if k not in _OF_HTTP and not k.startswith("param_")}
        self.user, self.password = self._login(handler, given)

    def _login(self, handler: BaseHTTPRequestHandler, given: dict[str, str]) -> tuple[str, str]:
        scheme, _, token = handler.headers.get("Authorization", "").partition(" ")
        if scheme == "Basic":
            user, _, password = base64.b64decode(token).decode().partition(":")
            return user, password
        user = handler.headers.get("X-ClickHouse-User") or given.get("user", "default")
        return user, handler.headers.get("X-ClickHouse-Key") or given.get("password", "")


def answer(asked: Asked, path: str) -> Iterator[bytes]:
    """The bytes of an answer. Raises Failed, perhaps in the middle."""
    if USERS.get(asked.user) != asked.password:
        refused = "Authentication failed: password is incorrect, or there is no user with such name."
        raise Failed(f"Code: 516. DB::Exception: {asked.user}: {refused} (AUTHENTICATION_FAILED)")
    try:
        with closing(chdb.connect(path)) as connection:
            connection.query(f"USE `{asked.database}`")
            for name, value in asked.settings.items():
                connection.query(f"SET {name} = '{_quoted(value)}'")
            yield from _rows(connection, asked)
    except Failed:
        raise
    except Exception as e:
        raise Failed(str(e)) from None


def _quoted(value: str) -> str:
    return value.replace("\\", "\\\\").replace("'", "\\'")


def _rows(connection: Any, asked: Asked) -> Iterator[bytes]:
    params = asked.params or None
    if asked.data is not None:
        with tempfile.NamedTemporaryFile() as file:
            Path(file.name).write_bytes(asked.data)
            connection.query(
                f"{asked.statement} FROM INFILE '{file.name}' FORMAT {asked.format}", params=params
            )
    elif asked.format in ("ArrowStream", "Native") and _SELECT.match(asked.statement):
        chunks = connection.send_query(asked.statement, asked.format, params=params)
        some = False
        for part in _one_stream(chunks) if asked.format == "ArrowStream" else (c.bytes() for c in chunks):
            some = True
            yield part
        if not some:  # of no rows chdb streams not even the columns
            yield connection.query(asked.statement, asked.format, params=params).bytes()
    else:
        yield connection.query(asked.statement, asked.format, params=params).bytes()


def _one_stream(chunks: Any) -> Iterator[bytes]:
    """One Arrow stream of the many that chdb gives, as its server would: with one head, and one end."""
    head = 0
    for chunk in chunks:
        data = chunk.bytes()
        if not head:
            with pa.ipc.open_stream(data) as reader:
                head = reader.schema.serialize().size
            yield data[:-8]
        else:
            yield data[head:-8]
    if head:
        yield b"\xff\xff\xff\xff\0\0\0\0"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1
    directory: str

    def do_GET(self) -> None:
        if urlsplit(self.path).path == "/ping":
            self._whole(200, b"Ok.\n", {})
        else:
            self.do_POST()

    def do_POST(self) -> None:
        asked = Asked(self, self._body())
        parts = answer(asked, self.directory)
        head = {"X-ClickHouse-Query-Id": asked.id, "X-ClickHouse-Timezone": "UTC"}
        try:
            first = next(parts, b"")
        except Failed as e:
            head["X-ClickHouse-Exception-Code"] = str(e.code)
            self._whole(_STATUS.get(e.code, 500), str(e).encode(), head)
            return
        self._stream(asked, first, parts, head)

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        found = b""
        while size := int(self.rfile.readline().split(b";")[0], 16):
            found += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return found

    def _stream(self, asked: Asked, first: bytes, rest: Iterator[bytes], head: dict[str, str]) -> None:
        tag = uuid.uuid4().hex[:16]
        squeezed = asked.settings.get("enable_http_compression") == "1" and "gzip" in self.headers.get(
            "Accept-Encoding", ""
        )
        head |= {"X-ClickHouse-Format": asked.format, "X-ClickHouse-Exception-Tag": tag}
        head |= {"Transfer-Encoding": "chunked"} | ({"Content-Encoding": "gzip"} if squeezed else {})
        self._head(200, head)

        squeeze = zlib.compressobj(1, wbits=31)

        def send(part: bytes, flush: int = zlib.Z_SYNC_FLUSH) -> None:
            part = squeeze.compress(part) + squeeze.flush(flush) if squeezed else part
            if part:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))

        try:
            send(first)
            for part in rest:
                send(part)
            send(b"", zlib.Z_FINISH)
        except Failed as e:
            text = str(e)
            send(f"__exception__\r\n{tag}\r\n{text}{len(text)} {tag}\r\n__exception__\r\n".encode())
            self.close_connection = True  # without the last chunk: nobody takes it for the whole
            self.wfile.flush()
            return
        self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()

    def _whole(self, status: int, body: bytes, head: dict[str, str]) -> None:
        self._head(status, {**head, "Content-Length": str(len(body))})
        self.wfile.write(body)
        self.wfile.flush()

    def _head(self, status: int, head: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in head.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        return


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that leave in the middle of an answer are part of the tests."""


def main(port: str, directory: str, *tls: str) -> None:
    Handler.directory = directory
    held = chdb.connect(directory)  # the engine ends with its last connection
    server = Server(("127.0.0.1", int(port)), Handler)
    if tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*tls)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    with closing(held):
        server.serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
