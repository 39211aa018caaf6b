"""Where the tables of the contract suites live: each kind of backend, with the servers that it needs."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from millpond.tables import Backend, backend_names
from millpond.tables.flushed_table import FlushedTable
from millpond.testing.contracts import TablePlace
from millpond.types import Schema
from tests.servers import Servers

SERVED = [kind for kind in ("postgresql", "mysql", "redis", "mongodb") if kind in backend_names()]
"""Kinds that need a server."""
KINDS = [*sorted(set(backend_names().values()) - set(SERVED)), "flushed"]
EVERY = [*KINDS, *(pytest.param(kind, marks=pytest.mark.slow) for kind in SERVED)]
OUTSIDE = [kind for kind in EVERY if kind not in ("memory", "cache", "delta", "flushed")]
"""Kinds that keep their rows in a database."""


FINITE = ["mysql"]
"""Kinds that store neither NaN nor infinities."""


class FlushedPlace(TablePlace):
    """Tables that are flushed after every second change, and once while another one is set apart."""

    def open(self, name: str, schema: Schema, **more: Any) -> Backend:
        table = super().open(name, schema, **more)
        assert isinstance(table, FlushedTable)
        apply, count = table.apply, itertools.count(1)

        def apply_and_flush(*args: Any, **named: Any) -> bool:
            applied = apply(*args, **named)
            number = next(count)
            if number % 3 == 1:
                table.freeze(number)
            elif number % 3 == 2:
                table.flush("test")
            return applied

        setattr(table, "apply", apply_and_flush)  # noqa: B010
        return table


class Places:
    """Places that nothing has used yet."""

    def __init__(self, directory: Path, servers: Servers):
        self._directory = directory
        self._servers = servers
        self._made = 0

    def new(self, kind: str) -> TablePlace:
        self._made += 1
        home = self._directory / str(self._made)
        home.mkdir()
        place = FlushedPlace if kind == "flushed" else TablePlace
        backend = "delta" if kind == "flushed" else kind.split()[0]
        return place(backend, self._settings(kind, home), home)

    def _settings(self, kind: str, home: Path) -> dict[str, str]:
        match kind:
            case "sqlite":
                return {"sync": "false"}
            case "postgresql":
                return {"url": self._servers.postgresql.new_schema(f"p{self._made}"), "retry.timeout": "5s"}
            case "mysql":
                return {"url": self._servers.mariadb.new_database(f"p{self._made}"), "retry.timeout": "5s"}
            case "redis":
                return {"url": self._servers.redis.url(), "prefix": f"p{self._made}:", "retry.timeout": "5s"}
            case "mongodb":
                return {"url": self._servers.mongodb.url(f"p{self._made}"), "retry.timeout": "5s"}
            case "cache":
                return {"max_size": "1000000"}
            case "cache over postgresql":
                return {"max_size": "3", "cache.over": self._servers.postgresql.new_schema(f"p{self._made}")}
            case "cache over sqlite":
                return {"max_size": "3", "cache.over": f"sqlite:///{home / 'tables.db'}"}
            case _:
                return {}
