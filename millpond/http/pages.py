"""Serves the dashboard: one page and its parts. These are files of this package without data; the page gets data from
the routes.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from millpond.http.failures import Refused, failed, not_found

_FOLDER = Path(__file__).parent / "assets"
_TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
_HEADERS = {
    # Nothing comes from another host, and only our own files run.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


async def page(request: Request) -> Response:
    return _sent("index.html")


async def asset(request: Request) -> Response:
    try:
        return _sent(request.path_params["name"])
    except Refused as error:
        return failed(error)


def _sent(name: str) -> Response:
    files = _files()
    if name not in files:
        raise not_found(f'there is no "/assets/{name[:100]}"')
    body, media = files[name]
    return Response(body, media_type=media, headers=_HEADERS)


@cache
def _files() -> dict[str, tuple[bytes, str]]:
    return {f.name: (f.read_bytes(), _TYPES[f.suffix]) for f in _FOLDER.iterdir() if f.suffix in _TYPES}
