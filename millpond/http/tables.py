"""Lists the tables and describes each."""

from __future__ import annotations

import dataclasses
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response

from millpond.errors import Error
from millpond.http.failures import not_found
from millpond.http.responses import as_json
from millpond.sql.catalog import Relation
from millpond.sql.reserved_names import is_own
from millpond.types import type_name

if TYPE_CHECKING:
    from millpond.http.service import Service


async def list_tables(service: Service, request: Request) -> Response:
    return as_json({"tables": await service.run(_all, service)})


async def one_table(service: Service, request: Request) -> Response:
    name = request.path_params["table"]
    relation = service.catalog.find(name)
    if relation is None or relation.kind not in ("table", "view"):
        error = service.catalog.unknown(name, "table")
        raise not_found(error.message, error.hint)
    return as_json(await service.run(_one, service, relation))


def _all(service: Service) -> list[dict[str, Any]]:
    relations = [r for r in service.catalog if r.kind in ("table", "view") and not is_own(r.name)]
    return [summary(service, relation) for relation in relations]


def summary(service: Service, relation: Relation) -> dict[str, Any]:
    """Returns name, columns, key, number of rows and state."""
    found: dict[str, Any] = {
        "name": relation.name,
        "kind": relation.kind,
        "live": relation.live,
        "columns": [{"name": c.name, "type": type_name(c.type)} for c in relation.schema],
        "key": list(relation.schema.key),
        "rows": None,
        "health": None,
    }
    with suppress(Error):  # it was dropped meanwhile, or its database is away: the health reports that
        if service.store.table(relation.name) is not None:
            table = service.table(relation.name)
            health = table.health_check()
            found["health"] = {"status": health.status, "reason": service.secrets.mask(health.reason)}
            found["rows"] = len(table)
    return found


def _one(service: Service, relation: Relation) -> dict[str, Any]:
    found = summary(service, relation)
    if relation.kind == "view":
        return found
    stats = service.table(relation.name).get_stats()
    numbers = {f.name: getattr(stats, f.name) for f in dataclasses.fields(stats) if f.name != "more"}
    found["stats"] = numbers | {k: v for k, v in stats.more.items() if isinstance(v, (int, float, str, dict))}
    found["durability"] = service.descriptions.durability_of(relation.name)
    found["indexes"] = [
        {"name": i.name, "columns": list(i.columns)} for i in service.catalog.indexes(relation.name)
    ]
    lowered = relation.name.lower()
    found["queries"] = [
        p.plan.query
        for p in service.runner
        if lowered in (n.lower() for n in (*p.plan.reads, *p.plan.writes))
    ]
    return found
