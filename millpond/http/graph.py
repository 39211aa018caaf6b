"""Builds the graph of the app: sources, streams, queries, tables and sinks, and what flows between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response

from millpond.http.observation import Observation, Query
from millpond.http.responses import as_json
from millpond.loading.progress import Load
from millpond.plan.graph import Graph
from millpond.sql.catalog import Catalog
from millpond.sql.reserved_names import is_own
from millpond.sql.uris import is_uri

if TYPE_CHECKING:
    from millpond.http.service import Service


async def graph(service: Service, request: Request) -> Response:
    return as_json(await service.run(_graph, service))


def _graph(service: Service) -> dict[str, Any]:
    made = _Drawing(service.catalog, service.loads, service.secrets.mask, service.observer.look())
    made.relations()
    for query in made.seen.queries:
        made.query(query, service.sampler.out_rate(query.name))
    made.loads()
    return made.graph.as_json()


class _Drawing:
    def __init__(
        self, catalog: Catalog, loads: Mapping[str, Load], mask: Callable[[str], str], seen: Observation
    ):
        self._catalog = catalog
        self._loads = loads
        self._mask = mask
        self.seen = seen
        self.graph = Graph()

    def relations(self) -> None:
        for relation in self._catalog:
            name = relation.name
            if relation.kind == "stream":
                self.graph.node("stream", name, rows=self.seen.streams.get(name))
                if relation.uri:
                    self.graph.edge(self._outside("source", relation.uri), f"stream:{name}", rate=None)
            elif relation.kind == "table" and not is_own(name):
                stats, health = self.seen.tables.get(name, (None, None))
                self.graph.node(
                    "table",
                    name,
                    state=health.status if health else "missing",
                    reason=self._mask(health.reason) if health else None,
                    rows=stats.rows if stats else None,
                    bytes=stats.bytes if stats else None,
                )

    def query(self, query: Query, out_rate: float | None) -> None:
        numbers = query.numbers
        id_ = self.graph.node(
            "query",
            query.name,
            **{k: numbers.get(k) for k in ("state", "rows", "rate", "lag", "errors", "error", "statement")},
            live=query.live,
        )
        for name in query.reads:
            source = self._known(name) or (self._outside("source", name) if is_uri(name) else None)
            if source is not None:
                self.graph.edge(
                    source,
                    id_,
                    rate=numbers.get("rate") if source.startswith(("stream:", "source:")) else None,
                )
        for name in query.writes:
            target = self._known(name)
            if target is not None:
                self.graph.edge(id_, target, rate=out_rate)
        for uri in query.sinks:
            self.graph.edge(id_, self._outside("sink", uri), rate=out_rate)

    def loads(self) -> None:
        """Adds edges to the tables that were read from outside, once or by a load."""
        for name, load in self._loads.items():
            table = self._known(name)
            if table is not None:
                self.graph.edge(
                    self._outside("source", load.what),
                    table,
                    rate=load.rate if load.loaded_at is None else 0.0,
                )

    def _known(self, name: str) -> str | None:
        """Returns the node of a stream or table."""
        relation = self._catalog.find(name)
        id_ = f"{relation.kind}:{relation.name}" if relation is not None else ""
        return id_ if id_ in self.graph.nodes else None

    def _outside(self, kind: str, uri: str) -> str:
        return self.graph.node(kind, self._mask(uri))
