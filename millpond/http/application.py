"""Handles requests as an ASGI application: routes, checks and answers each; no request stops the server."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as StarletteRoute

from millpond.errors import known
from millpond.http import pages
from millpond.http.access import require, role_of
from millpond.http.failures import Refused, failed, not_found
from millpond.http.owner import SCOPE
from millpond.http.route import Route
from millpond.http.routes import ROUTES
from millpond.http.segments import Segments, names_of
from millpond.http.settings import is_loopback

if TYPE_CHECKING:
    from millpond.http.service import Service

Endpoint = Callable[[Request], Awaitable[Response]]


def application(service: Service) -> Starlette:
    routes = [
        StarletteRoute(
            route.path.replace("{key}", "{key:path}").replace("{query}", "{query:path}"),
            _endpoint(service, route),
            methods=[route.method],
        )
        for route in ROUTES
    ]
    routes += [StarletteRoute("/", pages.page), StarletteRoute("/assets/{name}", pages.asset)]
    cors = Middleware(
        CORSMiddleware,
        allow_origins=list(service.settings.origins),
        allow_methods=["GET", "POST"],
        allow_headers=["Authorization", "Content-Type", "Idempotency-Key", "Last-Event-ID"],
        expose_headers=["X-Next", "Idempotency-Replayed"],
    )
    return Starlette(
        routes=routes,
        middleware=[Middleware(Segments), *([cors] if service.settings.origins else [])],
        exception_handlers={HTTPException: _http_error},
    )


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 404:
        return failed(
            not_found(f'there is no "{request.url.path[:200]}"', "GET /openapi.json lists the routes")
        )
    if error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "")
        response = failed(
            Refused(
                405, "method_not_allowed", f"{request.method} is not for this path", hint=f"use {allowed}"
            )
        )
        response.headers["Allow"] = allowed
        return response
    return failed(Refused(error.status_code, "http", str(error.detail)))


def _endpoint(service: Service, route: Route) -> Endpoint:
    what = f"{route.method} {route.path}"

    async def answer(request: Request) -> Response:
        began = time.perf_counter()
        response = await respond(request)
        response.headers["X-Content-Type-Options"] = "nosniff"
        service.requests.note(what, response.status_code, time.perf_counter() - began)
        return response

    async def respond(request: Request) -> Response:
        try:
            check_request(service, request)
            role = role_of(service.settings.tokens, request.headers.get("authorization"))
            require(role, route.role, what)
            request.scope["millpond.role"] = role
            request.scope["path_params"] = names_of(request.path_params)
            return await route.handler(service, request)
        except Exception as error:
            found = known(error)
            service.secrets.mask_error(found)
            return failed(found, whole=SCOPE in request.scope)

    return answer


def check_request(service: Service, request: Request) -> None:
    """Raises Refused for a path that is too long, and for requests that only a page of another site would send: a page
    that a person has open must not send requests in their name.
    """
    scope: Any = request.scope
    if len(scope["raw_path"]) + len(scope["query_string"]) > service.limits.url:
        raise Refused(414, "too_long", f"the URL is longer than {service.limits.url:,} bytes")
    host = request.headers.get("host", "")
    if not service.settings.tokens and not is_own_host(host.encode("latin-1")):
        raise Refused(
            421, "misdirected", f'this server is not "{host[:100]}"', hint="use 127.0.0.1 or localhost"
        )
    origin = request.headers.get("origin")
    if origin is None or origin in service.settings.origins or "*" in service.settings.origins:
        return
    if urlsplit(origin).netloc != host:
        raise Refused(
            403,
            "cross_origin",
            f'pages of "{origin[:100]}" may not use this server',
            hint="allow them with --http-origin",
        )


def is_own_host(host: bytes) -> bool:
    """Returns whether a Host header names this machine. Without tokens another name can only come from a page that has
    tricked a browser into taking us for its own site (DNS rebinding).
    """
    try:
        return is_loopback(urlsplit(f"//{host.decode('latin-1')}").hostname or "")
    except ValueError:
        return False
