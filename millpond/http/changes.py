"""Streams the changes of a table: ``GET /tables/{table}/changes``, server-sent events."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

from millpond.errors import NotSupported
from millpond.http.failures import bad_request
from millpond.http.follower import EventStream
from millpond.http.keys import key_of
from millpond.http.responses import EVENTS, wanted
from millpond.http.rows import table_of
from millpond.http.selection import Conditional, Selection
from millpond.options import parse_duration

if TYPE_CHECKING:
    from millpond.http.service import Service
    from millpond.query.table import Table

_KNOWN = ("key", "where", "conflate", "rows")
LONGEST = 3600.0


async def changes(service: Service, request: Request) -> Response:
    table = table_of(service, request.path_params["table"])
    query = request.query_params
    unknown = set(query.keys()) - set(_KNOWN)
    if unknown:
        raise bad_request(f'"{sorted(unknown)[0]}" is not known here', f"known: {', '.join(_KNOWN)}")
    if "key" in query and "where" in query:
        raise bad_request("key and where cannot stand together", "a key is one row already")
    wanted(request, EVENTS)
    rows = query.get("rows", "false").lower()
    if rows not in ("true", "false"):
        raise bad_request("rows is true or false")
    key = key_of(table.schema, query["key"], table.name) if "key" in query else None
    select = None
    if query.get("where"):
        select = await service.run(_conditional, service, table, query["where"])
    selection = Selection(key, query.get("where") or None, _seconds(query.get("conflate")))
    last = request.headers.get("last-event-id") or None
    follower = await service.hub.follow(table, selection, select, last=last, rows=rows == "true")
    return EventStream(follower, partial(service.hub.leave, follower))


def _conditional(service: Service, table: Table, where: str) -> Conditional:
    condition = table.compile_condition(where)
    service.calls.check_condition(condition)
    way, why = condition.way
    if way == "spark":
        raise NotSupported(
            f"only Spark can answer this condition ({why}): that takes too long for every commit",
            hint="make a live table of these rows, and follow that",
        )
    return Conditional(condition, table.schema.key)


def _seconds(text: str | None) -> float:
    if text is None:
        return 0.0
    try:
        found = parse_duration(text)
    except ValueError as error:
        raise bad_request(f'"{text[:40]}" is no duration', str(error)) from None
    if not 0.0 <= found <= LONGEST:
        raise bad_request("conflate is at most an hour")
    return found
