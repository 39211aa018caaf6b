"""Reports whether the app is alive, and whether it is ready."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

from millpond.http.responses import as_json
from millpond.http.settings import Role

if TYPE_CHECKING:
    from millpond.http.service import Service


async def health(service: Service, request: Request) -> Response:
    """Returns 200 while the process responds: for restarts, not for routing."""
    return as_json({"status": "ok" if not service.lifetime.closed else "closing"})


async def ready(service: Service, request: Request) -> Response:
    """Returns 200 when all tables are loaded and all queries run, else 503. Only readers get the details."""
    found = await service.run(service.ready)
    body: dict[str, object] = {"ready": bool(found), "state": found.state}
    if request.scope["millpond.role"] >= Role.READ:
        body["loading"] = [dataclasses.asdict(load) for load in found.loading]
        body["waiting"] = {name: list(tables) for name, tables in (found.waiting or {}).items()}
        body["problems"] = list(found.problems)
    return as_json(body, 200 if found else 503)
