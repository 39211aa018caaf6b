"""Says which batches of a Structured Streaming job a Delta table has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from millpond.connectors.delta.client import exists, explained, library, place_of, storage_options
from millpond.connectors.delta.places import spelled
from millpond.connectors.delta.sink import DeltaSink
from millpond.connectors.job_progress import AdoptedTables
from millpond.errors import TableMissing, without_passwords
from millpond.types import Schema

_SCHEME = "delta://"


class DeltaTables(AdoptedTables):
    """Finds the Delta tables that sinks and tables write to."""

    kind = "Delta table"
    example = "INSERT INTO delta://… SELECT …"

    def place(self, path: str) -> str:
        return place_of(path.removeprefix(_SCHEME))

    def is_at(self, place: str, path: str) -> bool:
        return spelled(place) == spelled(self.place(path))

    def of_sink(self, uri: str, values: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]] | None:
        if not uri.lower().startswith(_SCHEME):
            return None
        values = {**values, **DeltaSink.named_in(uri)}
        return DeltaSink.target(uri, values)[0], values

    def of_table(self, options: Mapping[str, Any]) -> str | None:
        named = options.get("extension") == "delta" and options.get("path")
        return place_of(str(options["path"])) if named else None

    def has_key(self, values: Mapping[str, Any], schema: Schema) -> bool:
        return bool(DeltaSink.columns_of(values, schema).key)

    def last_batch(self, place: str, values: Mapping[str, Any], transactions: str) -> int | None:
        storage = storage_options(values)
        if not exists(place, storage):
            raise TableMissing(
                f'there is no Delta table at "{without_passwords(place)}"',
                hint="name the folder that the job writes to",
            )
        with explained(place):
            table = library().DeltaTable(place, storage_options=storage)
            found: int | None = table.transaction_version(transactions)
        return found
