"""What the routes share: the app, the settings, and the threads in which everything runs that may wait."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from millpond.http.allowed import Allowed, Calls
from millpond.http.hub import Hub
from millpond.http.metrics import Requests, registry_of
from millpond.http.observing import Observer
from millpond.http.sampling import Sampler
from millpond.http.settings import Settings
from millpond.http.threads import Threads

if TYPE_CHECKING:
    from millpond.app.app import App


class Service:
    """One server of an app. The event loop only takes requests in and hands answers out: what takes longer than a
    lookup in memory runs in a thread."""

    def __init__(self, app: App, settings: Settings):
        self.app = app
        self.settings = settings
        self.limits = settings.limits
        self.allowed = Allowed(settings.allow)
        self.calls = Calls(app._functions)
        self._threads = Threads(settings.limits)
        self.run, self.in_thread = self._threads.run, self._threads.piece
        self.hub = Hub(app, settings.limits)
        self.observer = Observer(app)
        self.sampler = Sampler(self.observer)
        self.registry = registry_of(self)
        self.requests = Requests(self.registry)

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Called in the loop before the first request."""
        self.hub.begin(loop)

    async def end(self) -> None:
        """Called in the loop when the server stops, while answers are still being sent."""
        self.hub.end()

    def close(self) -> None:
        self.hub.close()
        self.sampler.close()
        self._threads.close()
