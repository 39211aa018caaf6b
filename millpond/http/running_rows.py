"""Sends the rows of a running query as a response without end: for the owner, on the socket."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from millpond.errors import Closed, EngineError, known
from millpond.http.failures import body_of
from millpond.http.responses import ARROW, Pieces
from millpond.query.result import RunningResult

if TYPE_CHECKING:
    from millpond.http.service import Service

WAITING_ROWS = 2_000_000
"""Rows that a running query may buffer for a client that does not read them."""


class RunningRows(Response):
    """Sends rows as an Arrow stream until the client disconnects, the query fails or the app stops; then the query
    stops. An error is in the metadata of the last batch, which is empty.
    """

    media_type = ARROW

    def __init__(self, service: Service, result: RunningResult, gone: threading.Event):
        super().__init__(headers={"X-Running": "true"})
        del self.headers["content-length"]
        self._service = service
        self._result = result
        self._gone = gone

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        pieces = self._pieces()
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        while (piece := await self._service.in_thread(next, pieces, None)) is not None:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    def _pieces(self) -> Iterator[bytes]:
        out = Pieces()
        schema = self._result.to_arrow().schema
        with pa.ipc.new_stream(pa.PythonFile(out, "w"), schema) as writer:
            try:
                yield out.take()
                for rows in self._service.follow(self._result, self._has_gone):
                    if rows.num_rows > WAITING_ROWS:
                        raise EngineError(
                            "the rows come faster than they are read", hint="select fewer of them"
                        )
                    writer.write_table(rows.cast(schema))
                    yield out.take()
            except Exception as error:
                found = known(error)
                self._service.secrets.mask_error(found)
                error_text = json.dumps(body_of(found, whole=True)["error"])
                writer.write_batch(_empty(schema), custom_metadata={"error": error_text})
        yield out.take()

    def _has_gone(self) -> bool:
        if self._service.stopping.is_set():
            raise Closed("the app stops", hint="millpond run starts it again")
        return self._gone.is_set()


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], f.type) for f in schema], schema=schema)
