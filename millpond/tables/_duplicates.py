"""Reports a key that a table must not contain twice."""

from __future__ import annotations

import pyarrow as pa

from millpond.errors import DuplicateKey
from millpond.records.keys import key_list
from millpond.records.outgoing import to_rows


def refuse_doubles(keys: pa.Table, what: str) -> None:
    """Raises DuplicateKey if two of the keys are equal."""
    seen = key_list(keys.columns)
    first = dict(zip(reversed(seen), reversed(range(len(seen))), strict=True))
    if len(first) < len(seen):
        row = next(row for row, key in enumerate(seen) if first[key] != row)
        raise duplicate(keys.slice(row, 1), what, "comes twice")


def duplicate(keys: pa.Table, what: str, how: str) -> DuplicateKey:
    """Returns the error for the first of the keys."""
    named = ", ".join(f"{name} = {value!r}" for name, value in to_rows(keys.slice(0, 1))[0].items())
    return DuplicateKey(
        f"the key {named} {how} in {what}",
        hint="UPDATE or UPSERT INTO changes a row that is there; without 'on.conflict' = 'error' INSERT replaces it",
    )
