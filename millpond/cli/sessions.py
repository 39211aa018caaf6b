"""Chooses where the statements of a command run: in the running app, on the state that one left, or in an app of its
own.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from millpond.cli.client import Answer, Client
from millpond.cli.error_report import say
from millpond.cli.registry import running_apps
from millpond.errors import SqlError, StateLocked, UnknownName

if TYPE_CHECKING:
    import pyarrow as pa

    from millpond.app.app import App

PATIENCE = 60.0
"""Seconds to wait for an app that still loads its tables."""


class Session(Protocol):
    def ask(self, sql: str) -> Answer:
        """Runs a text; returns the result of the last statement."""

    def close(self) -> None: ...


class RemoteSession:
    """Sends statements to a running app. Leaving one before its result is complete closes its connection, and with it a
    transaction; the next one gets a new one.
    """

    def __init__(self, state: Path, client: Client):
        self.state = state
        self._client: Client | None = client

    def ask(self, sql: str) -> Answer:
        client = self._client or Client.of(self.state)
        if client is None:
            raise SqlError("the app has ended", hint="start it again with millpond run")
        self._client = client
        try:
            answer = client.ask(sql)
        except KeyboardInterrupt:  # the rest of its response is not for the next statement
            self.close()
            raise
        return Answer(answer.count, answer.running, self._until_left(answer))

    def _until_left(self, answer: Answer) -> Iterator[pa.Table]:
        whole = False
        try:
            yield from answer.tables
            whole = not answer.running
        finally:
            if not whole:
                self.close()

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None


class LocalSession:
    """Sends statements to an app in this process. ``hint`` is shown if a name is not known."""

    def __init__(self, app: App, *, hint: str | None = None):
        from millpond.app.app import runtime_of
        from millpond.app.session import Session as Statements

        self.app = app
        parts = runtime_of(app)
        self._statements = Statements(parts.texts.ask, app.begin_transaction)
        self._emitted, self._tails = parts.emitted, parts.tails
        self._hint = hint

    def ask(self, sql: str) -> Answer:
        from millpond.query.result import RunningResult

        before = set(self._emitted.results)
        try:
            result = self._statements.run(sql)
        except KeyboardInterrupt:  # queries that it has started are cancelled too
            for name in self._emitted.results.keys() - before:
                self._tails.cancel(self._emitted.results[name])
            raise
        except UnknownName as error:
            if self._hint and "is not known" in error.message and not error.message.startswith("option"):
                error.hint = self._hint
            raise
        if isinstance(result, RunningResult):
            # Ctrl-C ends the output, whatever handled it before.
            signal.signal(signal.SIGINT, signal.default_int_handler)
            return Answer(None, True, self._tails.follow(result, lambda: False))
        if result.count is not None:
            return Answer(result.count, False, iter(()))
        return Answer(None, False, iter([result.to_arrow()]))

    def close(self) -> None:
        self.app.close()


@contextmanager
def open_session(state: Path | None, own: Callable[[], App] | None = None) -> Iterator[Session]:
    """Opens a session with the app that runs on ``state``; without one starts ``own``, or else reads the state.

    Without a state it is the one app that this user runs; if there is none, an empty one.
    """
    session = _on_state(state, own) if state is not None else _anywhere(own)
    try:
        yield session
    finally:
        session.close()


def _on_state(state: Path, own: Callable[[], App] | None) -> Session:
    deadline = time.monotonic() + PATIENCE
    reported = False
    while True:
        client = Client.of(state)
        if client is not None:
            return RemoteSession(state, client)
        try:
            return LocalSession(own() if own else _read(state))
        except StateLocked:
            if time.monotonic() > deadline:
                raise
        if not reported:
            say(f"waiting for the app on {state} to be ready")
            reported = True
        time.sleep(0.1)


def _read(state: Path) -> App:
    from millpond.app.app import App

    return App(state=state, _read_only=True)


def _anywhere(own: Callable[[], App] | None) -> Session:
    deadline = time.monotonic() + PATIENCE
    reported = False
    while True:
        apps = running_apps()
        if len(apps) > 1:
            names = ", ".join(str(a) if a else "one that is still loading" for a in apps)
            raise SqlError(f"{len(apps)} apps are running: {names}", hint="choose one with --state DIR")
        if not apps:
            break
        if apps[0] is not None:
            # A shell shows which app it uses before anything is typed; a single query could change the wrong app.
            client = Client.of(apps[0], only_reads=own is None)
            if client is not None:
                say(f"asking the app that runs on {apps[0]}")
                return RemoteSession(apps[0], client)
        if time.monotonic() > deadline:
            raise SqlError("an app is running but not ready", hint="see what millpond run says")
        if not reported:
            say("waiting for the app to be ready")
            reported = True
        time.sleep(0.1)
    if own is not None:
        return LocalSession(own())
    from millpond.app.app import App

    return LocalSession(App(), hint="no app is running: start one with millpond run, or name its --state DIR")
