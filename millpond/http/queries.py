"""Handles requests about running queries, and pauses, stops and starts them."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response

from millpond.errors import UnknownName
from millpond.http.failures import not_found
from millpond.http.responses import as_json
from millpond.store.undo import Undo

if TYPE_CHECKING:
    from millpond.http.service import Service

ACTIONS = ("pause", "resume", "stop", "start")


async def list_queries(service: Service, request: Request) -> Response:
    seen = await service.run(service.observer.look)
    mask = service.secrets.mask
    found = [
        {
            **{k: v.isoformat() if isinstance(v, datetime) else v for k, v in q.numbers.items()},
            "reads": [mask(name) for name in q.reads],
            "writes": [mask(name) for name in (*q.writes, *q.sinks)],
            "live": q.live,
        }
        for q in seen.queries
    ]
    return as_json({"queries": found})


async def control(service: Service, request: Request) -> Response:
    name, action = request.path_params["query"], request.path_params["action"]
    if action not in ACTIONS:
        raise not_found(f'there is no "{action}" of a query', f"known: {', '.join(ACTIONS)}")
    return as_json(await service.run(_control, service, name, action))


def _control(service: Service, name: str, action: str) -> dict[str, Any]:
    with service.lock:
        service.lifetime.check_open()
        try:
            with Undo() as undo:
                found = service.queries.control(name, action, undo)
        except UnknownName as error:
            raise not_found(error.message, error.hint) from None
    return {"query": found, "state": service.queries.state(found)}
