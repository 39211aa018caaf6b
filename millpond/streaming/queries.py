"""The queries of an app by their names, whatever keeps them running; and what they are told."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millpond.sql.querynames import unknown_query
from millpond.store.undo import Unit

if TYPE_CHECKING:
    from millpond.app.app import App


class Queries:
    """Running statements, those that could not be started, and live views."""

    def __init__(self, app: App):
        self._app = app

    @property
    def names(self) -> list[str]:
        """As SHOW QUERIES prints them, each once; those of the parts of a query are not among them."""
        return [*self._app._runner.names, *(view.plan.name for view in self._app._views)]

    def known(self) -> dict[str, str]:
        """Queries by their names, those of their parts, and those of the tables and streams that they fill, in lower
        case."""
        parts = {part.lower(): query for part, query in self._app._runner.parts.items()}
        named = {name.lower(): name for name in self.names}
        filled = {n.partition(":")[2]: q for n, q in named.items() if n.startswith(("table:", "stream:"))}
        return filled | parts | named

    def find(self, name: str) -> str:
        """The query of a name, or the one that fills the table or stream of that name."""
        known = self.known()
        if name.lower() in known:
            return known[name.lower()]
        raise unknown_query(name, self.names)

    def state(self, query: str) -> str:
        view = self._app._views.get(query)
        return str(view.state if view is not None else self._app._runner.state_of(query))

    def control(self, name: str, action: str, unit: Unit) -> str:
        """PAUSE, RESUME, STOP or START, by whatever name the query is known; answers its own."""
        query = self.find(name)
        if self._app._views.get(query) is not None:
            self._app._views.control(query, action, unit)
        else:
            self._app._runner.control(query, action, unit)
        return query
