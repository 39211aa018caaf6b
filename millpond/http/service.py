"""Contains what the routes share: parts of the app, the settings, and the threads for everything that may wait."""

from __future__ import annotations

import asyncio

from millpond.app.runtime import Runtime
from millpond.http.hub import Hub
from millpond.http.metrics import Requests, registry_of
from millpond.http.observation import Observer
from millpond.http.posts import Posts
from millpond.http.restrictions import Allowed, Calls
from millpond.http.samples import Sampler
from millpond.http.settings import Settings
from millpond.http.threads import Threads


class Service:
    """Serves one app. The event loop only receives requests and sends responses: what takes longer than a lookup in
    memory runs in a thread.
    """

    def __init__(self, app: Runtime, settings: Settings):
        self.ask, self.ask_now, self.send = app.texts.ask, app.texts.ask_now, app.sender.send
        self.begin_transaction, self.state = app.begin_transaction, app.state.path
        self.follow, self.cancel = app.tails.follow, app.tails.cancel
        self.table, self.ready = app.table, app.ready
        self.lifetime, self.lock, self.secrets = app.lifetime, app.lock, app.secrets
        self.catalog, self.store, self.loads = app.catalog, app.store, app.loads
        self.runner, self.queries = app.runner, app.queries
        self.evaluator, self.descriptions = app.evaluator, app.descriptions
        self.settings = settings
        self.limits = settings.limits
        self.allowed = Allowed(settings.allow)
        self.calls = Calls(app.functions)
        self._threads = Threads(settings.limits)
        self.posts = Posts(app.sender.send_together, settings.limits)
        self.run, self.in_thread = self._threads.run, self._threads.piece
        self.hub = Hub(app.store, app.catalog, app.secrets.mask_error, settings.limits)
        self.observer = Observer(
            app.catalog, app.journal, app.runner, app.views, app.table_names, app.table, app.secrets.mask
        )
        self.sampler = Sampler(self.observer)
        self.registry = registry_of(self.observer, self.hub, self.ready)
        self.requests = Requests(self.registry)
        self.stopping = asyncio.Event()
        """Set in the loop when the server stops; any thread may check it."""

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Starts the hub; called in the loop before the first request."""
        self.hub.begin(loop)

    async def end(self) -> None:
        """Stops the hub, and refuses posted rows that wait; called in the loop when the server stops, while responses
        are still being sent.
        """
        self.stopping.set()
        self.posts.stop()
        self.hub.end()

    def close(self) -> None:
        self.hub.close()
        self.sampler.close()
        self.posts.close()
        self._threads.close()
