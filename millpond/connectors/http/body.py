"""Converts the body of a response to a file in a known format, in UTF-8, that contains only the rows."""

from __future__ import annotations

import codecs
import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa

from millpond.connectors.http.client import CHUNK, Answer, too_large
from millpond.errors import BadData, InvalidOption
from millpond.formats.base import COMPRESSIONS, find_format, has_known_suffix, suffix_of
from millpond.formats.jsonpick import NotThere, Picked, pick
from millpond.types import Column, Schema

_TYPES = {
    "application/json": ".json",
    "text/json": ".json",
    "application/x-ndjson": ".jsonl",
    "application/ndjson": ".jsonl",
    "application/jsonl": ".jsonl",
    "application/x-jsonlines": ".jsonl",
    "application/jsonlines": ".jsonl",
    "text/csv": ".csv",
    "application/csv": ".csv",
    "text/tab-separated-values": ".tsv",
    "application/vnd.apache.parquet": ".parquet",
    "application/vnd.apache.avro": ".avro",
}
_PACKED = {"application/gzip": "gzip", "application/x-gzip": "gzip", "application/zstd": "zstd"}
_MAGIC = {"gzip": b"\x1f\x8b", "zstd": b"\x28\xb5\x2f\xfd"}
_CHARSET = re.compile(r"charset\s*=\s*\"?([\w.:-]+)", re.IGNORECASE)
_START = 512


@dataclass(frozen=True, slots=True)
class Body:
    """Contains the file, its identity, its rows if they were counted, and the whole JSON if it was requested."""

    path: Path
    digest: str
    size: int
    text: str | None = None
    picked: Picked | None = None


def settle_body(
    raw: Path,
    answer: Answer,
    values: Mapping[str, Any],
    path: tuple[str, ...],
    most: int,
    *,
    whole: bool,
    first: bool,
) -> Body:
    """Writes the file of a response's raw body, next to it. ``path`` is where the rows are in its JSON, ``whole``
    requests its text. An empty body means no rows only after the ``first`` page.
    """
    _unpack(raw, answer, most)
    suffix = _suffix(raw, answer, values["format"])
    if first and suffix != ".jsonl" and not raw.stat().st_size:
        raise BadData(
            f'"{answer.url}" answers without content, which is no {suffix[1:]}',
            hint="no rows are [] in JSON, and the header alone in CSV",
        )
    if suffix in (".json", ".jsonl", ".csv", ".tsv"):
        _to_utf8(raw, answer)
    text: str | None = None
    picked: Picked | None = None
    if path and suffix != ".json":
        raise InvalidOption(f'option "rows.path" is for JSON: "{answer.url}" answers {suffix[1:]}')
    if suffix == ".json" and (path or whole):
        text = _text(raw, answer)
        if path and text.strip():
            picked = _rows(text, path, answer)
            raw.write_text(
                text[picked.start : picked.end] if picked.value is not None else "", encoding="utf-8"
            )
    made = raw.with_suffix(suffix)
    os.replace(raw, made)
    with open(made, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return Body(made, digest, made.stat().st_size, text, picked)


def count_rows(body: Body, values: Mapping[str, Any]) -> int:
    if body.picked is not None and isinstance(body.picked.value, list):
        return len(body.picked.value)
    path = str(body.path)
    form = find_format(path)(values)
    columns = form.discover(path).columns
    if not columns:
        return 0
    schema = Schema((Column(columns[0].name, pa.string()),))
    return sum(batch.num_rows for batch in form.read(path, schema))


def _unpack(raw: Path, answer: Answer, most: int) -> None:
    """Removes the transfer compression of the body, and if it is a compressed file itself, that too."""
    encoding = answer.headers.get("content-encoding", "identity").strip().lower()
    if encoding in ("gzip", "x-gzip"):
        _unpack_as("gzip", raw, answer, most)
    elif encoding not in ("identity", ""):
        raise BadData(f'"{answer.url}" answers in the encoding "{encoding}", which was not requested')
    path = urlsplit(answer.url).path.lower()
    codec = _PACKED.get(_type(answer)) or next((c for s, c in COMPRESSIONS.items() if path.endswith(s)), None)
    if codec is not None and _start(raw).startswith(_MAGIC[codec]):
        _unpack_as(codec, raw, answer, most)


def _unpack_as(codec: str, raw: Path, answer: Answer, most: int) -> None:
    made, size = raw.with_suffix(".unpacked"), 0
    try:
        with pa.CompressedInputStream(pa.OSFile(str(raw)), codec) as packed, open(made, "wb") as out:
            while chunk := packed.read(CHUNK):
                size += len(chunk)
                if size > most:
                    raise too_large(answer.url, most)
                out.write(chunk)
    except OSError as error:
        raise BadData(f'the answer of "{answer.url}" cannot be unpacked: {error}') from None
    os.replace(made, raw)


def _suffix(raw: Path, answer: Answer, named: str | None) -> str:
    """Returns the suffix that identifies the format: by its name, the type of the response, the address, or its
    beginning.
    """
    start = _start(raw).removeprefix(codecs.BOM_UTF8).lstrip()
    is_json = start[:1] in (b"{", b"[")
    if start[:1] == b"<" or (_type(answer) == "text/html" and not (named and is_json)):
        wanted = f" where {named} is expected" if named else ""
        kind = (
            "HTML" if re.match(rb"<(!doctype\s+)?html", start, re.IGNORECASE) else _type(answer) or "markup"
        )
        raise BadData(
            f'"{answer.url}" answers {kind}{wanted}',
            hint="check the address; it may be a web page, or require a login",
        )
    path = urlsplit(answer.url).path
    if named is not None:
        known = find_format(path, named)
        tabs = _type(answer) == "text/tab-separated-values" or suffix_of(path) == ".tsv"
        return ".tsv" if tabs and ".tsv" in known.suffixes else known.suffixes[0]
    found = _TYPES.get(_type(answer)) or (".json" if _type(answer).endswith("+json") else None)
    if found is not None:
        return found
    if has_known_suffix(path):
        return suffix_of(path)
    if is_json or not start:
        return ".json"
    raise BadData(
        f'"{answer.url}" answers {_type(answer) or "no content type"}: its format is not known',
        hint="say it: WITH ('format' = 'csv'), or 'json', 'jsonl'",
    )


def _type(answer: Answer) -> str:
    return answer.headers.get("content-type", "").partition(";")[0].strip().lower()


def _start(raw: Path) -> bytes:
    with open(raw, "rb") as file:
        return file.read(_START)


def _to_utf8(raw: Path, answer: Answer) -> None:
    charset = _CHARSET.search(answer.headers.get("content-type", ""))
    if charset is None:
        return
    try:
        name = codecs.lookup(charset[1]).name
    except LookupError:
        raise BadData(f'the answer of "{answer.url}" is in "{charset[1]}", which is not known') from None
    if name in ("utf-8", "ascii"):
        return
    made = raw.with_suffix(".utf8")
    try:
        with (
            open(raw, encoding=name, newline="") as file,
            open(made, "w", encoding="utf-8", newline="") as out,
        ):
            while text := file.read(CHUNK):
                out.write(text)
    except UnicodeError as error:
        raise BadData(f'the answer of "{answer.url}" is not {charset[1]}: {error}') from None
    os.replace(made, raw)


def _text(raw: Path, answer: Answer) -> str:
    try:
        return raw.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadData(f'the answer of "{answer.url}" is not UTF-8: {error}') from None


def _rows(text: str, path: tuple[str, ...], answer: Answer) -> Picked:
    shown = ".".join(path)
    try:
        picked = pick(text, path)
    except NotThere as there:
        raise BadData(
            f'the answer of "{answer.url}" has no "{shown}": {there}', hint="correct 'rows.path'"
        ) from None
    except BadData as error:
        raise BadData(f'the answer of "{answer.url}": {error.message}') from None
    if picked.value is not None and not isinstance(picked.value, list | dict):
        raise BadData(
            f'"{shown}" in the answer of "{answer.url}" is neither an array nor an object',
            hint="'rows.path' leads to the array of rows",
        )
    return picked
