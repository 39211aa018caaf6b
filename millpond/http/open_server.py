"""Opens the HTTP server, for ``App.serve`` and ``millpond run --http``. Loads the server's packages only then."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from millpond.http.settings import Limits, Settings, tokens_of

if TYPE_CHECKING:
    from millpond.app.runtime import Runtime
    from millpond.http.server import HttpServer


def open_server(
    app: Runtime,
    host: str,
    port: int,
    *,
    allow: Sequence[str] = (),
    origins: Sequence[str] = (),
    limits: Mapping[str, float] | None = None,
) -> HttpServer:
    """Returns the running server. ``limits`` replace those of ``Limits`` that they name."""
    settings = Settings(host, port, tokens_of(), tuple(allow), tuple(origins), Limits.of(limits or {}))
    from millpond.http.server import HttpServer

    return HttpServer(app, settings)
