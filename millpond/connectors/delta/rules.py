"""Finds what a Delta table demands of those who write to it."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millpond.connectors.delta.client import library
from millpond.errors import ConfigurationIssue, NotSupported

if TYPE_CHECKING:
    from deltalake import DeltaTable

_CONSTRAINT = "delta.constraints."
_ENTRIES = "delta.setTransactionRetentionDuration"


def required_columns(table: DeltaTable) -> frozenset[str]:
    """Returns the columns that must not be NULL, in lower case."""
    return frozenset(f.name.lower() for f in pa.schema(table.schema().to_arrow()) if not f.nullable)


def constraints_of(table: DeltaTable) -> dict[str, str]:
    """Returns the CHECK constraints by their names, and the invariants of columns by those of the columns."""
    settings = table.metadata().configuration
    found = {n.removeprefix(_CONSTRAINT): text for n, text in settings.items() if n.startswith(_CONSTRAINT)}
    for name, noted in _noted(table):
        if invariant := noted.get("delta.invariants"):
            found[name] = str(json.loads(invariant)["expression"]["expression"])
    return found


def _noted(table: DeltaTable) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields the columns with what the table says about them."""
    for field in json.loads(table.schema().to_json())["fields"]:
        yield field["name"], field.get("metadata") or {}


def check_entries_stay(table: DeltaTable, what: str) -> None:
    """Raises ConfigurationIssue for a table that forgets transaction entries, which say what was written: Spark removes
    those of delta-rs, which have no time, with the next checkpoint, however long the property says.
    """
    said = table.metadata().configuration.get(_ENTRIES)
    if said is not None:
        raise ConfigurationIssue(
            f"{what} forgets after a while which changes were written to it: its property {_ENTRIES} is {said}",
            hint=f"ALTER TABLE … UNSET TBLPROPERTIES ('{_ENTRIES}')",
        )


def check_writable(table: DeltaTable, what: str) -> None:
    """Raises NotSupported for a table that no flush can write to, whatever its rows are."""
    if table.metadata().configuration.get("delta.appendOnly", "").lower() == "true":
        raise NotSupported(
            f"{what} takes no updates: its property delta.appendOnly is true",
            hint="INSERT INTO 'delta://…' adds rows to it; or set the property to false there",
        )
    for name, noted in _noted(table):
        if "delta.generationExpression" in noted:
            raise NotSupported(
                f'{what} computes the column "{name}" itself, and such tables are not written here'
            )
    for field in pa.schema(table.schema().to_arrow()):
        if _has_required(field.type):
            raise NotSupported(
                f'{what} has fields inside of column "{field.name}" that must not be NULL, which are not checked here'
            )
    if failed := _refused(table):
        raise NotSupported(f"{what} cannot be written here: {failed}")


def _has_required(dtype: pa.DataType) -> bool:
    if pa.types.is_map(dtype):
        return dtype.item_field.nullable is False or _has_required(dtype.item_type)
    parts = [dtype.field(at) for at in range(dtype.num_fields)]
    return any(not part.nullable or _has_required(part.type) for part in parts)


def _refused(table: DeltaTable) -> str | None:
    """Returns why delta-rs cannot append to such a table: it says so only when it writes, and so it writes nothing to
    an empty one with the same metadata.
    """
    from deltalake.exceptions import DeltaError

    protocol, metadata = table.protocol(), table.metadata()
    features = {"readerFeatures": protocol.reader_features, "writerFeatures": protocol.writer_features}
    versions = {
        "minReaderVersion": protocol.min_reader_version,
        "minWriterVersion": protocol.min_writer_version,
    }
    actions = [
        {"protocol": {**versions, **{name: known for name, known in features.items() if known is not None}}},
        {
            "metaData": {
                "id": str(metadata.id),
                "format": {"provider": "parquet", "options": {}},
                "schemaString": table.schema().to_json(),
                "partitionColumns": list(metadata.partition_columns),
                "configuration": dict(metadata.configuration),
                "createdTime": 0,
            }
        },
    ]
    with tempfile.TemporaryDirectory(prefix="millpond-") as folder:
        log = Path(folder, "_delta_log")
        log.mkdir()
        log.joinpath(f"{0:020}.json").write_text("\n".join(map(json.dumps, actions)))
        delta = library()
        try:
            like = delta.DeltaTable(folder)
            rows = pa.schema(like.schema().to_arrow()).empty_table()
            delta.write_deltalake(like, rows, mode="append")
        except DeltaError as error:
            return str(error).strip().partition("\n")[0]
    return None
