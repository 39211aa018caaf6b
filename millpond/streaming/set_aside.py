"""Stores statements that are stopped for a moment, and that others will continue."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from millpond.engine.states import State
from millpond.streaming.starter import Pipelines
from millpond.streaming.statement import RunningStatement

_HELD = (State.PAUSED, State.STOPPED)


class SetAside:
    """Stores the parts of queries, which have their positions even where nothing is stored, and their states."""

    def __init__(self) -> None:
        self._parts: dict[str, tuple[RunningStatement, State]] = {}

    def put(self, query: str, pipelines: Pipelines) -> None:
        """Stops a query that will be added again."""
        held = {p.name: p.state for p in pipelines if p.statement.ephemeral and p.state in _HELD}
        for statement, _ in pipelines.take_out(query):
            name = statement.plan.name
            self._parts[name] = (statement, held.get(name, State.RUNNING))

    def hand_over(self, statements: Iterable[RunningStatement]) -> None:
        """Lets statements continue where those of their names have stopped."""
        for statement in statements:
            if (before := self._parts.get(statement.plan.name)) is not None:
                statement.continue_from(before[0])

    def rename(self, names: Mapping[str, str]) -> None:
        """Lets parts be continued under other names; what had these names is forgotten."""
        for old, new in names.items():
            if (part := self._parts.pop(old, None)) is not None:
                self._parts[new] = part

    def end(self, name: str) -> State:
        """Forgets a part, which runs again, and returns the state that it was in."""
        return self._parts.pop(name, (None, State.RUNNING))[1]

    def remove(self, query: str) -> list[RunningStatement]:
        """Forgets a query, and returns its parts."""
        names = [name for name, (statement, _) in self._parts.items() if statement.plan.query == query]
        return [self._parts.pop(name)[0] for name in names]
