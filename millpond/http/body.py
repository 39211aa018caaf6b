"""What a client sends: no more of it than is allowed, in time, and JSON."""

from __future__ import annotations

import asyncio
import json
from decimal import Decimal
from typing import Any

from starlette.requests import ClientDisconnect, Request

from millpond.http.failures import Refused, bad_request
from millpond.http.settings import Limits


async def read_body(request: Request, limits: Limits) -> bytes:
    """The body. Raises Refused if it is too large or does not come."""
    length = request.headers.get("content-length", "")
    if length.isdigit() and int(length) > limits.body:
        raise _too_large(limits)
    if request.headers.get("content-encoding", "identity") != "identity":
        raise Refused(415, "unsupported", "a compressed body is not read", hint="send it as it is")
    try:
        return await asyncio.wait_for(_read(request, limits), limits.body_seconds)
    except TimeoutError:
        raise Refused(
            408, "timed_out", f"the body did not come within {limits.body_seconds:g} s", hint="send it again"
        ) from None
    except ClientDisconnect:
        raise Refused(400, "bad_request", "the client has gone") from None


async def _read(request: Request, limits: Limits) -> bytes:
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > limits.body:
            raise _too_large(limits)
        parts.append(part)
    return b"".join(parts)


def _too_large(limits: Limits) -> Refused:
    return Refused(
        413,
        "too_large",
        f"the body is larger than {limits.body:,} bytes",
        hint="send it in several requests",
    )


def parse_object(body: bytes, known: dict[str, type | tuple[type, ...]]) -> dict[str, Any]:
    """A JSON object with these fields and no others. Numbers with a fraction are Decimals."""
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


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")


def _example(known: dict[str, type | tuple[type, ...]]) -> str:
    return "{" + ", ".join(f'"{name}": …' for name in known) + "}"
