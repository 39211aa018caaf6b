"""Finds a value in a JSON text by its path, and returns its original text: numbers keep all their digits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from json.decoder import WHITESPACE, scanstring  # type: ignore[attr-defined]
from typing import Any

from millpond.errors import BadData
from millpond.formats.jsonvalues import DECODER


@dataclass(frozen=True, slots=True)
class Picked:
    """Contains a value, and where its text begins and ends."""

    value: Any
    start: int
    end: int


class NotThere(Exception):
    """Reports that the path does not exist, and what is there instead."""


def pick(text: str, path: Sequence[str]) -> Picked:
    """Returns the value at a path: names of fields, and places in arrays from 0. Raises NotThere, or BadData if it is
    not JSON.
    """
    try:
        at = _skip(text, 0)
        for number, name in enumerate(path):
            at = _inside(text, at, name, ".".join(path[:number]))
        value, end = DECODER.raw_decode(text, at)
    except RecursionError:
        raise BadData("it is nested too deep") from None
    except (ValueError, IndexError) as error:
        raise BadData(f"it is not JSON: {error}") from None
    return Picked(value, at, end)


def _inside(text: str, at: int, name: str, above: str) -> int:
    """Returns where the field or element called ``name`` of the value at ``at`` begins."""
    where = f'"{above}"' if above else "the answer"
    opening = text[at : at + 1]
    if opening not in ("{", "["):
        raise NotThere(f"{where} is neither an object nor an array")
    at = _skip(text, at + 1)
    seen: list[str] = []
    place = 0
    while text[at] not in "}]":
        key = str(place)
        if opening == "{":
            key, at = scanstring(text, at + 1, True)
            at = _skip(text, at)
            if text[at] != ":":
                raise ValueError(f"a colon is missing at character {at}")
            at = _skip(text, at + 1)
        if key == name:
            return at
        seen.append(key)
        place += 1
        _, at = DECODER.raw_decode(text, at)
        at = _skip(text, at)
        if text[at] == ",":
            at = _skip(text, at + 1)
        elif text[at] not in "}]":
            raise ValueError(f"a comma is missing at character {at}")
    has = ", ".join(seen[:20]) if opening == "{" else f"{place} elements"
    raise NotThere(f"{where} has {has or 'no fields'}")


def _skip(text: str, at: int) -> int:
    return int(WHITESPACE.match(text, at).end())
