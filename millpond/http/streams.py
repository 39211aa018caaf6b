"""Receives rows for embedded streams: ``POST /streams/{stream}``. The response is sent when they are durable."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

from millpond.http.body import read_body
from millpond.http.failures import Refused, bad_request, not_found
from millpond.http.posted_rows import records_of, rows_of
from millpond.http.posts import SMALL_BODY
from millpond.http.responses import JSON, as_json
from millpond.journal.responses import Answer
from millpond.sql.catalog import Relation
from millpond.types import type_name

if TYPE_CHECKING:
    from millpond.http.service import Service

LONGEST_KEY = 255
_LOCKS = tuple(threading.Lock() for _ in range(64))
"""Locks by the hash of a key: two requests with one key run one after the other."""


async def list_streams(service: Service, request: Request) -> Response:
    found = [
        {
            "name": r.name,
            "columns": [{"name": c.name, "type": type_name(c.type)} for c in r.schema],
            "connector": service.secrets.mask(r.uri) if r.uri else None,
            "rows": None if r.uri else service.store.journal.stream_end(r.name),
        }
        for r in service.catalog
        if r.kind == "stream"
    ]
    return as_json({"streams": found})


async def send_rows(service: Service, request: Request) -> Response:
    relation = _stream(service, request.path_params["stream"])
    unknown = request.query_params.get("unknown", "error")
    if set(request.query_params) - {"unknown"} or unknown not in ("error", "ignore"):
        raise bad_request("only ?unknown=ignore is known here", "it leaves out fields that the stream lacks")
    key = request.headers.get("idempotency-key")
    if key is not None and not 1 <= len(key) <= LONGEST_KEY:
        raise bad_request(f"an Idempotency-Key has 1 to {LONGEST_KEY} characters")
    body = await read_body(request, service.limits)
    ignore = unknown == "ignore"
    if key is None and len(body) <= SMALL_BODY:
        count = await service.posts.send(relation, body, ignore=ignore)
        return Response(json.dumps({"rows": count}), media_type=JSON)
    send = Sending(service, relation, body, ignore=ignore)
    text, again = await service.run(send.once, key) if key else (await service.run(send.send), False)
    return Response(text, media_type=JSON, headers={"Idempotency-Replayed": "true"} if again else None)


def _stream(service: Service, name: str) -> Relation:
    relation = service.catalog.find(name)
    if relation is None or relation.kind != "stream":
        error = service.catalog.unknown(name, "stream")
        raise not_found(error.message, error.hint)
    return relation


class Sending:
    """Sends the rows of one request body to a stream."""

    def __init__(self, service: Service, stream: Relation, body: bytes, *, ignore: bool):
        self._service = service
        self._stream = stream
        self._body = body
        self._ignore = ignore

    def send(self, answer_as: tuple[str, str] | None = None) -> str:
        """Sends the rows, all or none, and responds; ``answer_as`` are the key and digest to store the response by."""
        rows = rows_of(self._stream, records_of(self._stream, self._body, ignore=self._ignore))
        text = json.dumps({"rows": rows.num_rows})
        answer = None
        if answer_as is not None:
            until = time.time() + self._service.limits.idempotency_seconds
            answer = Answer(*answer_as, text, until)
        self._service.send(self._stream.name, rows, answer)
        return text

    def once(self, key: str) -> tuple[str, bool]:
        """Works as ``send``, but a key that was used before gets the same response, and nothing is sent."""
        name = f"{self._stream.name.lower()}/{key}"
        digest = hashlib.sha256(self._body).hexdigest()
        with _LOCKS[hash(name) % len(_LOCKS)]:
            known = self._service.store.journal.answer(name)
            if known is None:
                return self.send((name, digest)), False
        if known.digest != digest:
            raise Refused(
                422,
                "key_reused",
                "the Idempotency-Key was used before, with another body",
                hint="a new request has a key of its own",
            )
        return known.text, True
