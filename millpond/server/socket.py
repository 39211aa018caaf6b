"""The Unix socket on which a running app answers, in its state directory and for its owner only."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from io import BufferedIOBase
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from millpond.app.session import Session
from millpond.errors import Closed, EngineError, Error, NotSupported, Place, SqlError, known
from millpond.query.plans import Plan
from millpond.query.result import Result, RunningResult
from millpond.server.address import NAME, address_in
from millpond.server.messages import dump_error, read_line, write_line
from millpond.sql.checked import Checked
from millpond.sql.limits import OWN
from millpond.sql.statements import Statement, only_reads

if TYPE_CHECKING:
    from millpond.app.runtime import Runtime

Follow = Callable[[RunningResult, Callable[[], bool]], Iterator[pa.Table]]
"""Hands out the rows of a running query until the reader is gone."""
CONNECTIONS = 32
"""Clients at a time; one more is told to come back."""
REQUEST_SECONDS = 30.0
"""Until a request that has begun is there as a whole."""
ANSWER_SECONDS = 600.0
"""How long a client may read nothing of an answer that waits for it."""
WAITING_ROWS = 2_000_000
"""Rows that a running query may hold for a client that does not read them."""


class SocketServer:
    """Answers statements of other processes, each connection in a thread of its own, until ``close``."""

    def __init__(self, home: Path, session: Callable[[], Session], follow: Follow):
        self._session = session
        self._follow = follow
        self._path = home / NAME
        self._stopping = threading.Event()
        self._clients: set[socket.socket] = set()
        self._places = threading.BoundedSemaphore(CONNECTIONS)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        # The state directory is locked by this app: a socket in it is left over from one that was killed.
        self._path.unlink(missing_ok=True)
        # The mode is there before the file is: nobody else can connect in between.
        os.fchmod(self._listener.fileno(), 0o600)
        with address_in(home) as address:
            self._listener.bind(address)
        os.chmod(self._path, 0o600)
        self._listener.listen(CONNECTIONS)
        self._thread = threading.Thread(target=self._accept, name="millpond-socket", daemon=True)
        self._thread.start()

    @classmethod
    def of(cls, app: Runtime) -> Self:
        """The server of an app."""
        return cls(app.state.path, lambda: Session(app.texts.ask, app.begin_transaction), app.tails.follow)

    def close(self) -> None:
        """Takes no more clients; those that follow a query are told that the app stops."""
        if self._stopping.is_set():
            return
        self._stopping.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._path.unlink(missing_ok=True)
        for client in list(self._clients):
            with contextlib.suppress(OSError):
                client.shutdown(socket.SHUT_RD)
        for _ in range(CONNECTIONS):
            if not self._places.acquire(timeout=1.0):
                return

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *about: object) -> None:
        self.close()

    def _accept(self) -> None:
        while not self._stopping.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                # Without free files none can be taken now; one that is closed takes none any more.
                if self._stopping.wait(0.1):
                    return
                continue
            if self._places.acquire(blocking=False):
                self._clients.add(connection)
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()
            else:
                with contextlib.suppress(OSError), connection, connection.makefile("wb") as out:
                    full = EngineError(f"{CONNECTIONS} clients are connected", hint="try again in a moment")
                    write_line(out, {"error": dump_error(full)})

    def _serve(self, connection: socket.socket) -> None:
        session = self._session()
        try:
            with connection, connection.makefile("rwb") as file:
                while file.peek(1):  # a client may think for as long as it likes
                    connection.settimeout(REQUEST_SECONDS)
                    try:
                        request = read_line(file)
                    except Error as error:
                        write_line(file, {"error": dump_error(error)})
                        return
                    if request is None:
                        return
                    connection.settimeout(ANSWER_SECONDS)
                    self._answer(request, file, connection, session)
                    connection.settimeout(None)
        except OSError:
            return  # the client has gone
        finally:
            session.end()
            self._clients.discard(connection)
            self._places.release()

    def _answer(
        self,
        request: dict[str, Any],
        file: BufferedIOBase,
        connection: socket.socket,
        session: Session,
    ) -> None:
        try:
            result = self._run(request, session)
        except Exception as error:
            write_line(file, {"error": dump_error(known(error))})
            return
        if isinstance(result, RunningResult):
            write_line(file, {"running": True})
            self._stream(result, file, connection)
        elif result.count is not None:
            write_line(file, {"count": result.count})
        else:
            table = result.to_arrow()
            write_line(file, {"rows": True})
            with pa.ipc.new_stream(file, table.schema) as writer:
                writer.write_table(table)
            write_line(file, {})

    def _run(self, request: dict[str, Any], session: Session) -> Result:
        text, params, reads = request.get("sql"), request.get("params"), request.get("only_reads")
        unknown = set(request) - {"sql", "params", "only_reads"}
        if not isinstance(text, str) or unknown or not isinstance(params, list | dict | None):
            raise SqlError("the request is not understood", hint='send {"sql": "…", "params": […]}')
        return session.run(text, params, OnlyReads(self._path.parent) if reads else None)

    def _stream(self, result: RunningResult, file: BufferedIOBase, connection: socket.socket) -> None:
        """Sends rows until the client leaves, the query fails or the app stops."""
        ending: dict[str, Any] = {}
        schema = result.to_arrow().schema
        with pa.ipc.new_stream(file, schema) as writer:
            file.flush()
            try:
                for rows in self._rows(result, connection):
                    writer.write_table(rows.cast(schema))
                    file.flush()
            except OSError:
                raise
            except Exception as error:
                ending = {"error": dump_error(known(error))}
        write_line(file, ending)

    def _rows(self, result: RunningResult, connection: socket.socket) -> Iterator[pa.Table]:
        def gone() -> bool:
            if self._stopping.is_set():
                raise Closed("the app stops", hint="millpond run starts it again")
            readable = select.select([connection], [], [], 0)[0]
            return bool(readable) and not connection.recv(1, socket.MSG_PEEK)

        for rows in self._follow(result, gone):
            if rows.num_rows > WAITING_ROWS:
                raise EngineError("the rows come faster than they are read", hint="select fewer of them")
            yield rows


class OnlyReads:
    """Lets through what changes nothing: for clients that have not said which app they mean."""

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
