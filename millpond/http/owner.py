"""Runs statements of the owner of the process, who alone can open its Unix socket: trusted as the SQL file is."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from millpond.app.session import Session
from millpond.errors import Closed, NotSupported, Place
from millpond.http.failures import Refused
from millpond.http.responses import ARROW, answer_rows, as_json
from millpond.http.running_rows import RunningRows
from millpond.query.plans import Plan
from millpond.query.result import Result, RunningResult
from millpond.sql.checked import Checked
from millpond.sql.limits import OWN
from millpond.sql.statements import Statement, only_reads

if TYPE_CHECKING:
    from millpond.http.service import Service

SCOPE = "millpond.owner"
"""Where the scope of a request has the session of its connection, if it came over the socket."""
LAST_SECONDS = 1.0
"""How long a response is awaited when the app stops."""


class OwnerSession:
    """Runs the statements of one connection, in order, without limits of time, rows and names. BEGIN in one request is
    open until COMMIT or ROLLBACK in another, or the end of the connection.
    """

    def __init__(self, service: Service):
        self._service = service
        self._statements = Session(service.ask, service.begin_transaction)
        self._lock = threading.Lock()
        self.gone = threading.Event()
        """Set when the client has disconnected."""

    async def answer(self, text: str, params: Any, *, reads: bool, media: str) -> Response:
        """Runs statements, and responds with the result of the last one; with ``reads`` only if they change nothing."""
        permissions = OnlyReads(self._service.state) if reads else None
        result = await self._waited(self._run, text, params, permissions)
        if isinstance(result, RunningResult):
            if media != ARROW:
                self._service.cancel(result)
                raise Refused(
                    406,
                    "not_acceptable",
                    "the rows of this query keep coming, as an Arrow stream",
                    hint=f"Accept: {ARROW}",
                )
            return RunningRows(self._service, result, self.gone)
        if result.count is not None:
            return as_json({"count": result.count})
        return await answer_rows(await self._waited(result.to_arrow), media, self._service.in_thread)

    def _run(self, text: str, params: Any, permissions: OnlyReads | None) -> Result:
        try:
            with self._lock:
                return self._statements.run(text, params, permissions)
        finally:
            if self.gone.is_set():
                self.leave()

    async def _waited(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """Returns the result of a thread, however long it takes, unless the app stops meanwhile."""
        working = asyncio.ensure_future(self._service.in_thread(work, *arguments))
        stopping = asyncio.ensure_future(self._service.stopping.wait())
        try:
            await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait({working}, timeout=LAST_SECONDS)
        finally:
            stopping.cancel()
        if not working.done():
            working.add_done_callback(lambda done: done.cancelled() or done.exception())
            raise Closed("the app stops", hint="millpond run starts it again")
        return working.result()

    def leave(self) -> None:
        """Rolls back an open transaction; if a statement of it still runs, after that has ended."""
        self.gone.set()
        if self._lock.acquire(blocking=False):
            try:
                self._statements.end()
            finally:
                self._lock.release()


class OnlyReads:
    """Allows only statements that change nothing: for clients that have not said which app they mean."""

    limits = OWN

    def __init__(self, state: Path):
        self._state = state

    def planned(self, plan: Plan) -> bool:
        return not plan.writes

    def parsed(self, statements: Sequence[Statement], locate: Callable[[int, int], Place | None]) -> None:
        for statement in statements:
            if not only_reads(statement):
                raise NotSupported(
                    "a statement that changes something needs the name of the app",
                    hint=f"name it: --state {self._state}",
                    place=statement.place,
                )

    def checked(self, statements: Sequence[Checked]) -> None:
        return None
