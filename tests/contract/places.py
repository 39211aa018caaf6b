"""Where the tables of the contract suites live: each kind of backend, with the servers that it needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from millpond.options import read_options, settings_of
from millpond.tables import Backend, backend_names, find_backend
from millpond.types import Schema

KINDS = sorted(set(backend_names().values()))
OUTSIDE = [kind for kind in KINDS if kind not in ("memory", "cache")]
"""Kinds that keep their rows in a database."""


@dataclass(frozen=True)
class Place:
    """The options of tables that live together."""

    backend: str
    settings: Mapping[str, str]
    home: Path

    def open(self, name: str, schema: Schema, **more: Any) -> Backend:
        backend = find_backend(self.backend)
        values = read_options(f'table "{name}"', backend.options, settings_of(self.settings))
        return backend.open(name, schema, values, home=self.home, **more)


class Places:
    """Places that nothing has used yet."""

    def __init__(self, directory: Path):
        self._directory = directory
        self._made = 0

    def new(self, kind: str) -> Place:
        self._made += 1
        home = self._directory / str(self._made)
        home.mkdir()
        return Place(kind, self._settings(kind), home)

    def _settings(self, kind: str) -> dict[str, str]:
        return {"sync": "false"} if kind == "sqlite" else {}
