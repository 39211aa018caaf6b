"""Caches the plans of lookups in one table, by output."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from millpond.lookup import Lookup, Run
from millpond.query.plans import Asked, Plan, Plans, Way
from millpond.query.result import LookupResult
from millpond.sql.catalog import Relation
from millpond.sql.filters import resolve_lookup

_KEPT = 64
"""Outputs whose plans are cached."""


class OutputPlans(dict[str, Plans[LookupResult]]):
    """Stores plans by their output: ``*``, or an expression. Plans of a new output are made on demand."""

    def __init__(self, relation: Relation, compile_lookup: Callable[[Lookup], Run | None]):
        super().__init__()
        self._relation = relation
        self._compile_lookup = compile_lookup

    def __missing__(self, output: str) -> Plans[LookupResult]:
        if len(self) >= _KEPT:
            self.clear()
        made = self[output] = Plans(partial(self._plan, output))
        return made

    def _plan(self, output: str, asked: Asked) -> Plan | None:
        lookup = resolve_lookup(self._relation, (output,), asked.text, asked.template)
        run = None if lookup is None else self._compile_lookup(lookup)
        return None if run is None else Plan(run, Way("lookup", f"table {self._relation.name}"))
