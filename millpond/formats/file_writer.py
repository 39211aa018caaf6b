"""Encodes rows as whole files: CSV, JSON lines, Parquet and Avro. The same rows always give the same bytes."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import zlib
from collections.abc import Callable, Iterator, Mapping

import pyarrow as pa

from millpond.errors import InvalidOption
from millpond.formats.avroblocks import MAGIC
from millpond.formats.avroschema import parse_avro, to_avro
from millpond.formats.avrowrite import write_avro, write_long
from millpond.formats.jsontext import to_cells, to_json
from millpond.formats.messages.base import joined
from millpond.types import Schema

_BLOCK = 10_000
"""Records of a block of Avro."""
_CODECS: Mapping[str, Mapping[str, str]] = {
    "csv": {"none": "", "gzip": ".gz", "zstd": ".zst"},
    "jsonl": {"none": "", "gzip": ".gz", "zstd": ".zst"},
    "parquet": {"none": "none", "gzip": "gzip", "zstd": "zstd", "snappy": "snappy"},
    "avro": {"none": "null", "gzip": "deflate", "zstd": "zstandard"},
}
"""By format and compression: the suffix, or what the format itself calls it."""
WRITTEN = tuple(_CODECS)
"""The formats that can be written."""
COMPRESSIONS = ("none", "gzip", "zstd", "snappy")
TEXTS = ("csv", "jsonl")
"""The formats that are compressed as a whole."""
_SLICE = 64 << 20
"""Bytes of rows that are encoded as text at a time: Arrow holds at most 2 GB of it."""


def suffix_of(form: str, compression: str) -> str:
    """Returns how the names of such files end."""
    return f".{form}{_CODECS[form][compression] if form in TEXTS else ''}"


def check_compression(form: str, compression: str) -> None:
    if compression not in _CODECS[form]:
        raise InvalidOption(
            f'option "compression" cannot be "{compression}" for {form}',
            hint="it is one of " + ", ".join(f"'{c}'" for c in _CODECS[form]),
        )


def encode_file(
    rows: pa.Table, form: str, compression: str, *, header: bool = True, delimiter: str = ","
) -> bytes:
    """Returns the bytes of a file with these rows. Raises BadData."""
    codec = _CODECS[form][compression]
    if form == "parquet":
        return _parquet(rows, codec)
    if form == "avro":
        return _avro(rows, codec)
    if form == "jsonl":
        data = b"".join(joined(to_json(some)) for some in _slices(rows))
    else:
        parts = (_csv(some, header and not n, delimiter) for n, some in enumerate(_slices(rows)))
        data = b"".join(parts)
    return _COMPRESS[compression](data)


def _slices(rows: pa.Table) -> Iterator[pa.Table]:
    """Yields the rows in parts of about the same number; one part if there are none."""
    step = max(-(-rows.num_rows // (rows.nbytes // _SLICE + 1)), 1)
    for first in range(0, max(rows.num_rows, 1), step):
        yield rows.slice(first, step)


def _zstd(data: bytes) -> bytes:
    return bytes(pa.Codec("zstd").compress(data, asbytes=True))


def _deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


_COMPRESS: Mapping[str, Callable[[bytes], bytes]] = {
    "none": bytes,
    "gzip": lambda data: gzip.compress(data, mtime=0),
    "zstd": _zstd,
}
_IN_BLOCKS: Mapping[str, Callable[[bytes], bytes]] = {"null": bytes, "deflate": _deflate, "zstandard": _zstd}


def _csv(rows: pa.Table, header: bool, delimiter: str) -> bytes:
    """Texts have quotes, so that NULL, which is nothing, differs from a text without characters."""
    from pyarrow import csv

    out = io.BytesIO()
    plain = pa.table([to_cells(c) for c in rows.columns], names=rows.column_names)
    csv.write_csv(plain, out, csv.WriteOptions(include_header=header, delimiter=delimiter))
    return out.getvalue()


def _parquet(rows: pa.Table, codec: str) -> bytes:
    from pyarrow import parquet

    out = io.BytesIO()
    parquet.write_table(rows, out, compression=codec)
    return out.getvalue()


def _avro(rows: pa.Table, codec: str) -> bytes:
    text = to_avro(Schema.of(rows.schema), "row")
    node = parse_avro(text)
    found = {"avro.schema": json.dumps(json.loads(text)).encode(), "avro.codec": codec.encode()}
    parts = [MAGIC, write_long(len(found))]
    for name, value in found.items():
        parts += [write_long(len(name)), name.encode(), write_long(len(value)), value]
    mark = hashlib.md5(b"".join(parts), usedforsecurity=False).digest()
    parts += [write_long(0), mark]
    for first in range(0, rows.num_rows, _BLOCK):
        some = rows.slice(first, _BLOCK)
        data = _IN_BLOCKS[codec](b"".join(write_avro(some, node).to_pylist()))
        parts += [write_long(some.num_rows), write_long(len(data)), data, mark]
    return b"".join(parts)
