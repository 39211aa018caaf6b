"""Sends rows to a web server: POST or PUT, as JSON or JSON lines, many in a request.

What a server refuses for good is known only when it was sent. Then the rows of the request are sent in halves, until
the refused ones are found. They are remembered until their batch is written, so that ``check`` finds them, and so are
those that were accepted, which are not sent again.
"""

from __future__ import annotations

import hashlib
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond.changes import Position
from millpond.connectors.http.client import REQUEST_OPTIONS, Client
from millpond.connectors.sink import Sink
from millpond.errors import BadData, ConfigurationIssue, InvalidOption
from millpond.formats.jsontext import to_json
from millpond.formats.messages.base import joined
from millpond.options import Option
from millpond.retry import Issues
from millpond.types import Schema

_TYPES = {"json": "application/json", "jsonl": "application/x-ndjson", "object": "application/json"}
MOST_REFUSED = 64
"""Requests that are refused before the first is accepted: with more of them it is not about single rows."""


class HttpSink(Sink):
    """Sends rows to one address."""

    kind: ClassVar[str] = "http"
    schemes: ClassVar[tuple[str, ...]] = ("http", "https")
    for_clients: ClassVar[bool] = False
    keyed: ClassVar[bool] = False
    divides: ClassVar[bool] = False
    options: ClassVar[tuple[Option, ...]] = (
        Option("method", "choice", "the method of requests", "POST", ("POST", "PUT")),
        Option(
            "format",
            "choice",
            "json: an array of objects. jsonl: an object per line. object: a request for each row",
            "json",
            ("json", "jsonl", "object"),
        ),
        Option("request.max.rows", "int", "the most rows of a request", 1000, least=1),
        Option("request.max.size", "size", "the most bytes of a request, unless one row is larger", 1 << 20),
        Option(
            "idempotency.header",
            "text",
            "the header with a key that is the same if a request is repeated; '' sends none",
            "Idempotency-Key",
        ),
        *REQUEST_OPTIONS,
    )

    def __init__(self, uri: str, values: Mapping[str, Any], schema: Schema):
        super().__init__(uri, values, schema)
        self._client = Client(uri, self.values, Issues())
        self._name = ""
        self._batch: tuple[int, str] | None = None
        self._write = ""
        self._bodies: Counter[bytes] = Counter()
        self._any_accepted, self._refusals = False, 0
        self._accepted: list[pa.Array] = []
        self._refused: dict[bytes, str] = {}
        self._looked_for = False
        """Whether refused rows were looked for: else a write is no repetition without them."""

    @classmethod
    def check_statement(cls, uri: str, values: Mapping[str, Any], schema: Schema, *, running: bool) -> None:
        Client(uri, values, Issues())
        if values["format"] == "object" and values["request.max.rows"] not in (1, 1000):
            raise InvalidOption(
                "option \"request.max.rows\" does not go with 'format' = 'object'", hint="leave it out"
            )

    @property
    def guarantee(self) -> str:
        if not self.values["idempotency.header"]:
            return "at least once: rows of a batch that a crash cuts off are sent again"
        return (
            "at least once, with keys: rows of a batch that a crash cuts off are sent again; a request that is"
            f" repeated has the same {self.values['idempotency.header']}"
        )

    @property
    def writer(self) -> str:
        return f"the driver, {self.values['method']} as {self.values['format']}, one request after another"

    def open(self, name: str) -> Position | None:
        self._name = name
        self._any_accepted, self._refusals = False, 0
        self._forget_batch()
        return None

    def check(self, rows: pa.Table) -> None:
        self._looked_for = True
        if not self._refused:
            return
        known = pa.array(list(self._refused), pa.binary())
        found = pc.drop_null(pc.index_in(to_json(rows), known))
        if len(found):
            raise BadData(self._refused[known[found[0].as_py()].as_py()])

    def write(self, rows: pa.Table, position: Position | None) -> None:
        batch = None if position is None else (position.batch, repr(position.offsets))
        if batch != self._batch or not self._looked_for:
            self._forget_batch()
            self._batch = batch
        self._looked_for = False
        # Without a position a write is not repeated: the same rows may come once more.
        self._write = uuid.uuid4().hex if batch is None else repr((self._name, batch))
        self._bodies.clear()
        values = to_json(rows)
        if self._accepted:
            values = values.filter(pc.invert(pc.is_in(values, pa.concat_arrays(self._accepted))))
        refused: dict[bytes, str] = {}
        try:
            for part in self._requests(values):
                self._send(part, refused)
        except BaseException:
            self._forget_batch()
            raise
        if refused:
            self._refused |= refused
            raise BadData(next(iter(refused.values())))
        self._forget_batch()

    def accept_refused(self) -> None:
        self._forget_batch()

    def _forget_batch(self) -> None:
        self._batch, self._accepted, self._refused = None, [], {}
        self._looked_for = False

    def _requests(self, values: pa.Array) -> Iterator[pa.Array]:
        """Yields the rows of each request."""
        most = 1 if self.values["format"] == "object" else self.values["request.max.rows"]
        ends = np.cumsum(np.asarray(pc.binary_length(values).cast(pa.int64())) + 1)
        first = 0
        while first < len(values):
            before = ends[first - 1] if first else 0
            fits = int(np.searchsorted(ends, before + self.values["request.max.size"], side="right"))
            end = min(max(fits, first + 1), first + most)
            yield values.slice(first, end - first)
            first = end

    def _send(self, values: pa.Array, refused: dict[bytes, str]) -> None:
        """Sends rows; those that the server refuses are found by halving, and added to ``refused``."""
        body = self._body(values)
        headers = {"Content-Type": _TYPES[self.values["format"]]}
        if self.values["idempotency.header"]:
            headers[self.values["idempotency.header"]] = self._key(body)
        try:
            keyed = bool(self.values["idempotency.header"])
            self._client.send(self.values["method"], headers, body, keyed=keyed)
        except BadData as error:
            self._count_refusal(error)
            if len(values) == 1:
                refused[values[0].as_py()] = error.message
                return
            middle = len(values) // 2
            self._send(values.slice(0, middle), refused)
            self._send(values.slice(middle), refused)
        else:
            self._any_accepted = True
            self._accepted.append(values)

    def _count_refusal(self, error: BadData) -> None:
        """Raises if nothing was accepted yet and many requests were refused."""
        self._refusals += 1
        if not self._any_accepted and self._refusals >= MOST_REFUSED:
            self._refusals = 0
            raise ConfigurationIssue(
                f"all of {MOST_REFUSED} requests were refused, the last one so: {error.message}",
                hint="check the address, 'format' and the columns; START QUERY goes on",
            ) from error

    def _body(self, values: pa.Array) -> bytes:
        if self.values["format"] == "object":
            return bytes(values[0].as_py())
        lines = joined(values)
        if self.values["format"] == "jsonl":
            return lines
        # No line break is in an object: those between objects become commas.
        return b"[" + lines[:-1].replace(b"\n", b",\n") + b"]"

    def _key(self, body: bytes) -> str:
        """Returns a key that no other request has: not those with other rows, those with equal rows of the same batch,
        nor those with the same rows of another batch.
        """
        digest = hashlib.sha256(self._write.encode())
        digest.update(body)
        same = digest.digest()
        if number := self._bodies[same]:
            digest.update(b" %d" % number)
        self._bodies[same] += 1
        return digest.hexdigest()[:32]

    def close(self) -> None:
        self._client.close()
