"""Finds the queries of an app by name, whichever part runs them, and pauses, stops and starts them."""

from __future__ import annotations

from millpond.engine.states import is_done
from millpond.sql.querynames import unknown_query
from millpond.store.query_states import DROPPED, QueryStates
from millpond.store.undo import Undo
from millpond.streaming.runner import Runner
from millpond.views.materialized_view import Views


class Queries:
    """Contains running statements, those that could not be started, and materialized views."""

    def __init__(self, runner: Runner, views: Views, query_states: QueryStates):
        self._runner = runner
        self._views = views
        self._query_states = query_states

    @property
    def names(self) -> list[str]:
        """Returns the names that SHOW QUERIES prints, each once; those of the parts of a query are not among them."""
        return [*self._runner.names, *(view.plan.name for view in self._views)]

    def known(self) -> dict[str, str]:
        """Returns queries by their names, those of their parts, and those of the tables and streams that they fill, in
        lower case.
        """
        parts = {part.lower(): query for part, query in self._runner.parts.items()}
        named = {name.lower(): name for name in self.names}
        filled = {n.partition(":")[2]: q for n, q in named.items() if n.startswith(("table:", "stream:"))}
        return filled | parts | named

    def dropped(self) -> list[str]:
        """Returns the names of dropped queries, in lower case: statements of the file may still name them."""
        return [name.lower() for name, state in self._query_states if state == DROPPED]

    def find(self, name: str) -> str:
        """Returns the query of a name, or the one that fills the table or stream of that name."""
        known = self.known()
        if name.lower() in known:
            return known[name.lower()]
        raise unknown_query(name, self.names)

    def state(self, query: str) -> str:
        view = self._views.get(query)
        return str(view.state if view is not None else self._runner.state_of(query))

    def is_done(self, name: str, action: str) -> bool:
        """Returns whether a query is in the state that an action leads to, or was dropped."""
        known = self.known().get(name.lower())
        if known is None:
            return name.lower() in self.dropped()
        return action != "drop" and is_done(self.state(known), action)

    def is_kept(self, name: str) -> bool:
        """Returns whether a restart restores the query in its last state; else the file sets the state again."""
        view = self._views.get(self.known().get(name.lower(), name))
        return view is None or view.emit is None

    def control(self, name: str, action: str, undo: Undo) -> str:
        """Runs PAUSE, RESUME, STOP or START, by any name of the query; returns its own name."""
        query = self.find(name)
        if self._views.get(query) is not None:
            self._views.control(query, action, undo)
        else:
            self._runner.control(query, action, undo)
        return query
