"""Says which lookups of a cache are by the key."""

from __future__ import annotations

from collections.abc import Sequence

from millpond.types import Schema


def has_key(schema: Schema, columns: Sequence[str]) -> bool:
    return bool(schema.key) and {c.lower() for c in columns} >= {k.lower() for k in schema.key}


def is_key(schema: Schema, columns: Sequence[str]) -> bool:
    return bool(schema.key) and {c.lower() for c in columns} == {k.lower() for k in schema.key}
