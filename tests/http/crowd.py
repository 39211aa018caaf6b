"""Many clients that follow changes, in a process of their own: what each has seen in the end.

    python -m tests.http.crowd PORT TABLE KEYS ALL

``KEYS`` clients follow one key each (k0, k1, …), ``ALL`` follow everything. When the row "end" comes to those that
follow all, each says what it has, as one line of JSON in all: {"keys": {key: value}, "all": [{key: value}, …],
"events": n, "dropped": n}.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

END = "end"


class Client:
    def __init__(self) -> None:
        self.rows: dict[str, int] = {}
        self.events = 0
        self.dropped = False
        self.ready = asyncio.Event()

    async def follow(self, port: int, path: str) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 26)
        writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        kind = ""
        while line := await reader.readline():
            if line.startswith(b"event: "):
                kind = line[7:].strip().decode()
                self.dropped = self.dropped or kind == "dropped"
                self.ready.set()
            elif line.startswith(b"data: ") and kind in ("change", "rows"):
                self.events += 1
                data: dict[str, Any] = json.loads(line[6:])
                self.rows.update((r["k"], r["v"]) for r in data["rows"])
                if END in self.rows:
                    break
        writer.close()


async def main(port: int, table: str, keys: int, everything: int) -> None:
    followers = {f"k{i}": Client() for i in range(keys)}
    watchers = [Client() for _ in range(everything)]
    path = f"/tables/{table}/changes?rows=true"
    tasks = [asyncio.create_task(c.follow(port, f"{path}&key={k}")) for k, c in followers.items()]
    ends = [asyncio.create_task(c.follow(port, path)) for c in watchers]
    await asyncio.gather(*(c.ready.wait() for c in (*followers.values(), *watchers)))
    print("following", flush=True)
    await asyncio.gather(*ends)
    for _ in range(100):  # what was sent before the end is on its way
        if all(c.rows.get(k) == watchers[0].rows.get(k) for k, c in followers.items()):
            break
        await asyncio.sleep(0.1)
    for task in tasks:
        task.cancel()
    said = {
        "keys": {k: c.rows.get(k) for k, c in followers.items()},
        "all": [c.rows for c in watchers],
        "events": sum(c.events for c in (*followers.values(), *watchers)),
        "dropped": sum(c.dropped for c in (*followers.values(), *watchers)),
    }
    print(json.dumps(said), flush=True)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
