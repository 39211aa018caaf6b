"""Decodes the character sets of MySQL: bytes of a log to text."""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable
from typing import Any

from millpond.connectors.mysql.cells import Decode
from millpond.connectors.mysql.table_map import Field
from millpond.connectors.mysql.types import BINARY
from millpond.errors import NotSupported

_UTF8 = frozenset({"utf8", "utf8mb3", "utf8mb4", "ascii", "binary"})
_CODECS = {
    "ucs2": "utf-16-be",
    "utf16": "utf-16-be",
    "utf16le": "utf-16-le",
    "utf32": "utf-32-be",
    "gbk": "gbk",
    "gb2312": "gb2312",
    "gb18030": "gb18030",
    "big5": "big5",
    "sjis": "shift_jis",
    "cp932": "cp932",
    "ujis": "euc_jp",
    "eucjpms": "euc_jp",
    "euckr": "euc_kr",
}
_BYTES = bytes(range(256)).hex()


class Charsets:
    """Queries the names of the character sets of a server, and the letters of one that has a byte for each letter."""

    def __init__(self, ask: Callable[..., list[tuple[Any, ...]]]):
        self._ask = ask
        self._names: dict[int, str] | None = None
        self._found: dict[str, Decode | None] = {}

    def decoder(self, field: Field) -> Decode | None:
        """Returns a decoder; None for text that is UTF-8 already, and for bytes."""
        if field.charset == BINARY:
            return None
        if self._names is None:
            self._names = self._asked()
        name = self._names.get(field.charset, "utf8mb4")
        if name not in self._found:
            self._found[name] = self._made(name, field.name)
        return self._found[name]

    def _asked(self) -> dict[int, str]:
        columns = self._ask(
            "SELECT column_name FROM information_schema.columns WHERE table_schema = 'information_schema'"
            " AND table_name = 'COLLATION_CHARACTER_SET_APPLICABILITY' AND column_name = 'ID'"
        )
        table = "collation_character_set_applicability" if columns else "collations"
        found = self._ask(
            f"SELECT id, character_set_name FROM information_schema.{table} WHERE id IS NOT NULL"
        )
        return {int(number): str(name) for number, name in found}

    def _made(self, name: str, column: str) -> Decode | None:
        if name in _UTF8:
            return None
        if name in _CODECS:
            decode = codecs.getdecoder(_CODECS[name])
            return lambda data: decode(data)[0]
        assert re.fullmatch(r"\w+", name)
        letters = str(
            self._ask(f"SELECT CONVERT(CONVERT(UNHEX('{_BYTES}') USING {name}) USING utf8mb4)")[0][0]
        )
        if len(letters) != 256:
            raise NotSupported(
                f'column "{column}" has the character set {name}, which is not read from the log',
                hint="ALTER TABLE … CONVERT TO CHARACTER SET utf8mb4",
            )
        return lambda data: codecs.charmap_decode(data, "strict", letters)[0]
