"""Writes the files of a batch in tasks of executors, hidden: the driver publishes them."""

from __future__ import annotations

import posixpath
import uuid
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from millpond.connectors.files.layout import Layout, Part
from millpond.connectors.files.manifest import Storage
from millpond.connectors.sink import TaskWriter
from millpond.types import Schema

_MOST = 64 << 20
"""Bytes of rows that become files at a time: a task has them in memory, and the files too."""


@dataclass(frozen=True, slots=True)
class TaskFiles(TaskWriter):
    """Writes hidden files to the folder of a manifest, whose owner they name."""

    layout: Layout
    storage: Storage
    folder: str
    owner: str

    schema: ClassVar[Schema] = Schema.of(
        pa.schema(
            [
                ("folder", pa.string()),
                ("hidden", pa.string()),
                ("rows", pa.int64()),
                ("bytes", pa.int64()),
            ]
        )
    )

    @property
    def most(self) -> int:
        return min(self.layout.size, _MOST)

    @property
    def by(self) -> tuple[str, ...]:
        return self.layout.by

    def write(self, rows: pa.Table) -> pa.Table:
        written = []
        left = rows.num_rows
        for part, data in self.layout.files(rows):
            # A task may run twice, and both write: the names are never the same.
            hidden = f".{self.owner}-{uuid.uuid4().hex}"
            self.storage.write(posixpath.join(self.folder, hidden), data)
            written.append({"folder": part.folder, "hidden": hidden, "rows": left, "bytes": len(data)})
            left = 0
        return pa.Table.from_pylist(written, self.schema.arrow())


def parts_of(written: pa.Table) -> list[tuple[str, Part]]:
    """Returns the hidden name of each file that tasks have written, and which of the files it is."""
    pairs = zip(written["hidden"].to_pylist(), written["folder"].to_pylist(), strict=True)
    return [(hidden, Part(folder, number)) for number, (hidden, folder) in enumerate(pairs)]
