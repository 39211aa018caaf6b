"""Sends rows of programs to embedded streams."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from millpond.errors import UnknownName
from millpond.journal.responses import Answer
from millpond.query.table import Record
from millpond.records import to_arrow
from millpond.sql.catalog import Catalog, Relation
from millpond.statements.lifetime import Lifetime
from millpond.statements.secrets import Secrets
from millpond.store.store import Store


class Sender:
    """Appends rows to streams."""

    def __init__(self, lifetime: Lifetime, catalog: Catalog, store: Store, secrets: Secrets):
        self._lifetime = lifetime
        self._catalog = catalog
        self._store = store
        self._secrets = secrets

    def send(
        self,
        stream: str,
        rows: Record | Sequence[Record] | pa.Table | pa.RecordBatch,
        answer: Answer | None = None,
    ) -> int:
        """Appends rows, all or none, and returns how many; ``answer`` is stored in the same commit."""
        self._lifetime.check_open()
        relation = self._receiver(stream)
        records = [rows] if isinstance(rows, Mapping) else rows
        table = to_arrow(relation.schema, records, what=f'stream "{relation.name}"')
        self._store.commit(sent={relation.name: table}, answer=answer)
        return int(table.num_rows)

    def send_together(self, parts: Sequence[tuple[str, pa.Table]]) -> None:
        """Appends rows to streams, by their names, in one commit."""
        self._lifetime.check_open()
        sent: dict[str, list[pa.Table]] = {}
        for stream, rows in parts:
            relation = self._receiver(stream)
            table = to_arrow(relation.schema, rows, what=f'stream "{relation.name}"')
            sent.setdefault(relation.name, []).append(table)
        self._store.commit(sent={name: pa.concat_tables(tables) for name, tables in sent.items()})

    def _receiver(self, stream: str) -> Relation:
        relation = self._catalog.find(stream)
        if relation is None or relation.kind != "stream":
            raise self._catalog.unknown(stream, "stream")
        if relation.uri:
            raise UnknownName(
                f'stream "{relation.name}" reads {self._secrets.mask(relation.uri)}: rows cannot be sent to it',
                hint="a stream without a connector takes rows",
            )
        return relation
