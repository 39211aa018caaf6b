"""A double of a schema registry: the documented routes of Confluent's, in memory. It is not that server, and checks no
compatibility but what ``refuse`` says."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote


class RegistryDouble:
    """``GET /schemas/ids/{id}``, ``GET /subjects/{s}/versions/{latest or a number}``, ``POST
    /subjects/{s}/versions``.
    """

    def __init__(self, login: str | None = None):
        self.schemas: dict[int, dict[str, Any]] = {}
        self.subjects: dict[str, list[int]] = {}
        self.asked: list[str] = []
        self.down = False
        self.refuse: str | None = None
        self._login = login and "Basic " + base64.b64encode(login.encode()).decode()
        double = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._do("GET", None)

            def do_POST(self) -> None:
                self._do("POST", json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

            def _do(self, method: str, body: Any) -> None:
                double.asked.append(f"{method} {self.path}")
                status, answer = double.answer(method, self.path, body, self.headers.get("Authorization"))
                data = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *args: object) -> None:
                """Nothing is printed."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def add(self, subject: str, schema: Any, kind: str = "AVRO", *, refers: Any = ()) -> int:
        """Adds a schema. ``refers`` are a name, a subject and a version each."""
        text = schema if isinstance(schema, str) and schema.startswith("{") else json.dumps(schema)
        entry: dict[str, Any] = {"schema": text} | ({"schemaType": kind} if kind != "AVRO" else {})
        if refers:
            entry["references"] = [dict(zip(("name", "subject", "version"), r, strict=True)) for r in refers]
        number = next((n for n, known in self.schemas.items() if known == entry), len(self.schemas) + 1)
        self.schemas[number] = entry
        versions = self.subjects.setdefault(subject, [])
        if number not in versions:
            versions.append(number)
        return number

    def answer(self, method: str, path: str, body: Any, login: str | None) -> tuple[int, Any]:
        if self.down:
            return 503, {"error_code": 50302, "message": "no leader"}
        if login != self._login:
            return 401, {"error_code": 401, "message": "Unauthorized"}
        parts = path.strip("/").split("/")
        if method == "GET" and parts[:2] == ["schemas", "ids"]:
            found = self.schemas.get(int(parts[2]))
            return (200, found) if found else (404, {"error_code": 40403, "message": "Schema not found"})
        if method == "GET" and parts[0] == "subjects" and parts[2:3] == ["versions"] and len(parts) == 4:
            subject = unquote(parts[1])
            versions = self.subjects.get(subject)
            if not versions:
                return 404, {"error_code": 40401, "message": f"Subject '{subject}' not found."}
            wanted = len(versions) if parts[3] == "latest" else int(parts[3])
            if not 1 <= wanted <= len(versions):
                return 404, {"error_code": 40402, "message": f"Version {wanted} not found."}
            number = versions[wanted - 1]
            return 200, {"subject": subject, "version": wanted, "id": number} | self.schemas[number]
        if method == "POST" and parts[0] == "subjects" and parts[2:] == ["versions"]:
            if self.refuse:
                return 409, {"error_code": 409, "message": self.refuse}
            return 200, {"id": self.add(parts[1], json.loads(body["schema"]), body.get("schemaType", "AVRO"))}
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}

    @contextmanager
    def running(self) -> Iterator[RegistryDouble]:
        thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join()
