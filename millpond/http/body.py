"""Reads the body of a request: JSON, no larger than allowed, and in time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable
from decimal import Decimal
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive

from millpond.formats.jsondepth import MAX_DEPTH, is_deeper
from millpond.http.failures import Refused, bad_request
from millpond.http.settings import Limits


async def read_body(request: Request, limits: Limits, most: int | None = None) -> bytes:
    """Returns the body, of at most ``most`` bytes, by default the general limit. Raises Refused if it is too large or
    does not arrive.
    """
    most = limits.body if most is None else min(most, limits.body)
    length = request.headers.get("content-length", "")
    if length.isascii() and length.isdigit() and (len(length) > 18 or int(length) > most):
        raise _too_large(most)
    if request.headers.get("content-encoding", "identity") != "identity":
        raise Refused(415, "unsupported", "a compressed body is not read", hint="send it as it is")
    return await _in_time(_read(request, most), limits)


async def read_parts(receive: Receive, limits: Limits) -> bytes:
    """Returns the body of a request whose length is known to be small. Raises Refused if it does not arrive."""
    return await _in_time(_received(receive), limits)


async def _in_time(body: Awaitable[bytes], limits: Limits) -> bytes:
    try:
        async with asyncio.timeout(limits.body_seconds):
            return await body
    except TimeoutError:
        raise Refused(
            408, "timed_out", f"the body did not come within {limits.body_seconds:g} s", hint="send it again"
        ) from None
    except ClientDisconnect:
        raise Refused(400, "bad_request", "the client has gone") from None


async def _received(receive: Receive) -> bytes:
    body, more = b"", True
    while more:
        message = await receive()
        if message["type"] != "http.request":
            raise ClientDisconnect
        body += message.get("body", b"")
        more = message.get("more_body", False)
    return body


async def _read(request: Request, most: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > most:
            raise _too_large(most)
        parts.append(part)
    return b"".join(parts)


def _too_large(most: int) -> Refused:
    return Refused(
        413,
        "too_large",
        f"the body is larger than {most:,} bytes",
        hint="send it in several requests",
    )


def parse_object(body: bytes, known: dict[str, type | tuple[type, ...]]) -> dict[str, Any]:
    """Returns a JSON object with these fields and no others. Numbers with a fraction are Decimals."""
    if is_deeper(body, MAX_DEPTH):
        raise bad_request(f"the body is nested too deeply: at most {MAX_DEPTH} levels are read")
    try:
        found = json.loads(body, parse_float=Decimal, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise bad_request(f"the body is not JSON: {error}", f"send {_example(known)}") from None
    if not isinstance(found, dict):
        raise bad_request("the body is not a JSON object", f"send {_example(known)}")
    for name, value in found.items():
        if name not in known:
            raise bad_request(f'the field "{name}" is not known', f"known fields: {', '.join(known)}")
        if value is not None and not isinstance(value, known[name]):
            raise bad_request(f'the field "{name}" has a wrong type', f"send {_example(known)}")
    return found


def check_values(params: Any, limits: Limits) -> None:
    """Raises Refused for parameters that contain too many values: each becomes a part of the statement."""
    waiting, count = [params], 0
    while waiting:
        value = waiting.pop()
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        count += len(inner)
        if count > limits.values:
            raise Refused(
                413,
                "too_large",
                f"the parameters hold more than {limits.values:,} values",
                hint="send rows to a stream, or in several requests",
            )
        waiting += [v for v in inner if isinstance(v, list | dict)]


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")


def _example(known: dict[str, type | tuple[type, ...]]) -> str:
    return "{" + ", ".join(f'"{name}": …' for name in known) + "}"
