"""Defines how a route is declared."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from starlette.requests import Request
from starlette.responses import Response

from millpond.http.responses import JSON
from millpond.http.settings import Role

if TYPE_CHECKING:
    from millpond.http.service import Service

Handler = Callable[["Service", Request], Awaitable[Response]]
Where = Literal["path", "query", "header"]


@dataclass(frozen=True, slots=True)
class Param:
    """Declares a parameter. ``schema`` is its JSON Schema."""

    name: str
    where: Where
    help: str
    schema: dict[str, Any]
    required: bool = False


@dataclass(frozen=True, slots=True)
class Route:
    """Declares a route. ``body`` is the JSON Schema of the request, ``answer`` that of a response with 200; ``media``
    are its media types; ``errors`` the other statuses.
    """

    method: Literal["GET", "POST"]
    path: str
    role: Role
    help: str
    handler: Handler
    params: tuple[Param, ...] = ()
    body: dict[str, Any] | None = None
    body_media: tuple[str, ...] = (JSON,)
    answer: dict[str, Any] | None = None
    media: tuple[str, ...] = (JSON,)
    errors: tuple[int, ...] = ()
