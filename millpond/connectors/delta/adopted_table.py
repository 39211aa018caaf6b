"""Says which batches of a Structured Streaming job a Delta table has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from millpond.connectors.delta.client import exists, explained, library, place_of, storage_options
from millpond.connectors.delta.places import spelled
from millpond.errors import TableMissing, without_passwords


def is_at(place: str, path: str) -> bool:
    """Returns whether a place is that of a path, which may be written as a URI."""
    return spelled(place) == spelled(place_of(path.removeprefix("delta://")))


def last_batch(place: str, values: Mapping[str, Any], transactions: str) -> int | None:
    """Returns the last batch that was written under the name of some transactions (``txnAppId``). Raises TableMissing
    if there is no Delta table.
    """
    storage = storage_options(values)
    if not exists(place, storage):
        raise TableMissing(
            f'there is no Delta table at "{without_passwords(place)}"',
            hint="name the folder that the job writes to",
        )
    with explained(place):
        found: int | None = (
            library().DeltaTable(place, storage_options=storage).transaction_version(transactions)
        )
    return found
