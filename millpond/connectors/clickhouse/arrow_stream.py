"""Reads rows of ClickHouse as an Arrow stream, in which an error may come after some rows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import DatabaseError
from urllib3.exceptions import HTTPError

SETTINGS = {
    "output_format_arrow_string_as_string": "0",
    "output_format_arrow_fixed_string_as_fixed_byte_array": "1",
    "output_format_arrow_low_cardinality_as_dictionary": "0",
    "output_format_arrow_compression_method": "lz4_frame",
}
CHUNK = 1 << 20
_SAID = re.compile(rb"Code: (\d+)\. (DB::Exception: .*)", re.DOTALL)


class _Body:
    """Wraps the body of a response as a file that is read once, forwards."""

    closed = False

    def __init__(self, chunks: Iterator[bytes]):
        self._chunks = chunks
        self._left = b""
        self.last = b""
        """The last bytes that were received."""

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        parts, wanted = [self._left], size - len(self._left)
        while wanted > 0 or size < 0:
            chunk = next(self._chunks, None)
            if chunk is None:
                break
            self.last = chunk if len(chunk) > 4096 else (self.last + chunk)[-65_536:]
            parts.append(chunk)
            wanted -= len(chunk)
        whole = parts[0] if len(parts) == 1 else b"".join(parts)
        if size < 0 or len(whole) <= size:
            self._left = b""
            return whole
        self._left = whole[size:]
        return whole[:size]


def stream(
    client: Client, sql: str, values: Mapping[str, Any], settings: Mapping[str, str]
) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a SELECT, as they arrive."""
    response: Any = client.raw_stream(sql, dict(values), {**SETTINGS, **settings}, fmt="ArrowStream")
    body = _Body(response.stream(CHUNK))
    try:
        reader = pa.ipc.open_stream(body)
        while True:
            try:
                yield reader.read_next_batch()
            except StopIteration:
                return
    except (pa.ArrowException, OSError, HTTPError):
        said = _SAID.search(body.last)
        if said is None:
            raise
        text = said[2].decode(errors="replace").partition("\n")[0]
        raise DatabaseError(f"Code: {int(said[1])}. {text}", code=int(said[1])) from None
    finally:
        response.close()
