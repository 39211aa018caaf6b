"""Asks a server over and over, from a process of its own: 32 connections, each with one request at a time.

    python -m bench.httpclient PORT REQUESTS CONNECTIONS http|sql|post|redis PATH-OR-STATEMENT-OR-ROW-OR-KEY

It has ``{}`` for a number. Prints one line of JSON: {"seconds": …, "times": [seconds of each request]}.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from collections.abc import Awaitable, Callable

KEYS = 100_000


async def ask_http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, what: str) -> bytes:
    writer.write(f"GET {what} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    return await _answer(reader)


async def ask_sql(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, what: str) -> bytes:
    body = json.dumps({"sql": what}).encode()
    writer.write(
        b"POST /sql HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
    )
    return await _answer(reader)


async def ask_post(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, what: str) -> bytes:
    body = what.encode()
    writer.write(
        b"POST /streams/s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
    )
    return await _answer(reader)


async def _answer(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    body = await reader.readexactly(length)
    assert head.startswith(b"HTTP/1.1 200"), head
    return body


async def ask_redis(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, what: str) -> bytes:
    key = what.encode()
    writer.write(b"*2\r\n$7\r\nHGETALL\r\n$%d\r\n%b\r\n" % (len(key), key))
    count = int((await reader.readline())[1:])
    assert count == 8, count
    for _ in range(count):
        size = int((await reader.readline())[1:])
        await reader.readexactly(size + 2)
    return b""


Ask = Callable[[asyncio.StreamReader, asyncio.StreamWriter, str], Awaitable[bytes]]


async def main(port: int, requests: int, connections: int, ask: Ask, what: str) -> None:
    times: list[float] = []
    left = iter(range(requests))
    chance = random.Random(1)

    async def client() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in left:
            wanted = what.replace("{}", str(chance.randrange(KEYS)))
            began = time.perf_counter()
            await ask(reader, writer, wanted)
            times.append(time.perf_counter() - began)
        writer.close()

    began = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(connections)))
    print(json.dumps({"seconds": time.perf_counter() - began, "times": times}))


if __name__ == "__main__":
    import uvloop

    kinds: dict[str, Ask] = {"http": ask_http, "sql": ask_sql, "post": ask_post, "redis": ask_redis}
    port, requests, connections = map(int, sys.argv[1:4])
    uvloop.run(main(port, requests, connections, kinds[sys.argv[4]], sys.argv[5]))
