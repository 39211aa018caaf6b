"""Opens versions of a Delta table, and lists them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millpond.connectors.delta.client import explained, library
from millpond.errors import InvalidOption, without_passwords

if TYPE_CHECKING:
    from deltalake import DeltaTable

_HISTORY = pa.schema(
    [
        ("version", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("operation", pa.string()),
        ("operation_parameters", pa.string()),
        ("operation_metrics", pa.string()),
        ("engine", pa.string()),
    ]
)


def table_at(place: str, storage: Mapping[str, str], at: int | datetime | None) -> DeltaTable:
    """Opens a table at a version, or at the one that was the newest at a time; None is the newest now."""
    library()
    from deltalake.exceptions import DeltaError

    what = f'Delta table "{without_passwords(place)}"'
    with explained(place):
        if isinstance(at, int):
            try:
                return _opened(place, storage, at)
            except DeltaError:
                newest = _opened(place, storage).version()
                if at <= newest:
                    raise
            raise InvalidOption(f"{what} has no version {at}", hint=f"its newest version is {newest}")
        table = _opened(place, storage)
        if at is not None:
            first = _time(table.history()[-1])
            if first is not None and at < first:
                raise InvalidOption(
                    f"{what} has no version as of {at.isoformat()}",
                    hint=f"its first one is of {first.isoformat()}",
                )
            table.load_as_version(at)
        return table


def _opened(place: str, storage: Mapping[str, str], version: int | None = None) -> DeltaTable:
    found: DeltaTable = library().DeltaTable(place, version=version, storage_options=dict(storage))
    return found


def history_of(table: DeltaTable) -> pa.Table:
    """Returns the versions that the log has, the newest first."""
    rows = [
        {
            "version": commit.get("version"),
            "timestamp": _time(commit),
            "operation": commit.get("operation"),
            "operation_parameters": _text(commit.get("operationParameters")),
            "operation_metrics": _text(commit.get("operationMetrics")),
            "engine": commit.get("engineInfo") or commit.get("clientVersion"),
        }
        for commit in table.history()
    ]
    return pa.Table.from_pylist(rows, _HISTORY)


def _time(commit: Mapping[str, Any]) -> datetime | None:
    milliseconds = commit.get("timestamp")
    return None if milliseconds is None else datetime.fromtimestamp(milliseconds / 1000, UTC)


def _text(values: Mapping[str, Any] | None) -> str | None:
    return json.dumps(values, sort_keys=True, default=str) if values else None
