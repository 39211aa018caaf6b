"""Serves numbers for monitors and plots: ``GET /metrics`` and ``GET /stats``."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from prometheus_client import generate_latest
from starlette.requests import Request
from starlette.responses import Response

from millpond.http.failures import bad_request
from millpond.http.responses import as_json
from millpond.http.samples import INTERVAL

if TYPE_CHECKING:
    from millpond.http.service import Service

MEDIA = "text/plain; version=0.0.4; charset=utf-8"


async def metrics(service: Service, request: Request) -> Response:
    text = await service.run(generate_latest, service.registry)
    return Response(text, media_type=MEDIA)


async def stats(service: Service, request: Request) -> Response:
    text = request.query_params.get("after", "0")
    try:
        after = float(text)
    except ValueError:
        raise bad_request(f'"{text[:40]}" is no time', "after is the `at` of the last sample") from None
    found = await service.run(service.sampler.samples, after)
    return as_json({"now": time.time(), "interval": INTERVAL, "samples": found})
