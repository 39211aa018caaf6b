"""Implements sources whose columns are discovered from what they read, and that may get more."""

from __future__ import annotations

import logging
import threading
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from millpond.connectors.abilities import Drifts
from millpond.connectors.source import Split
from millpond.errors import BadData
from millpond.formats.merge import settle_schema
from millpond.types import Schema, type_name

log = logging.getLogger("millpond")
MOST_COLUMNS = 1_000
"""Maximum number of columns that a source may get."""
_WIDENING = threading.Lock()


class DriftingSource(Drifts):
    def __init__(self, uri: str, values: Mapping[str, Any], declared: Schema | None):
        super().__init__(uri, values, declared)
        self._schema = declared

    @abstractmethod
    def _discover(self) -> Schema:
        """Returns the columns, from a sample of the data."""

    @abstractmethod
    def _fresh(self, split: Split) -> Schema:
        """Returns those of the columns of a split that are not known."""

    def schema(self) -> Schema:
        """Returns the columns: declared, or discovered, before or now."""
        if self._schema is None:
            self._schema = self.found or settle_schema(self._named(self._discover()))
        return self._schema

    def _named(self, found: Schema) -> Schema:
        """Returns the columns without one that has no name: no statement could name it."""
        if "" not in found.names:
            return found
        log.warning('"%s" has a column without a name, which is left out', self.address)
        named = tuple(c for c in found if c.name)
        if not named:
            raise BadData(f'"{self.address}" has no column with a name')
        return Schema(named)

    @property
    def drifts(self) -> bool:
        return self.declared is None

    def notice(self, splits: Sequence[Split]) -> None:
        for split in splits if self.drifts else ():
            try:
                fresh = self._fresh(split)
            except BadData:
                continue  # whoever reads it gets the error
            self._widen(fresh)

    def _widen(self, fresh: Schema) -> None:
        """Adds new columns. One that is NULL everywhere has no type yet, and one without a name is left out."""
        with _WIDENING:
            known = self.schema()
            typed = tuple(c for c in fresh if c.type != pa.null() and c.name and c.name not in known)
            if not typed:
                return
            if len(known) + len(typed) > MOST_COLUMNS:
                log.warning(
                    '"%s" has more than %s columns: new ones are left out', self.address, MOST_COLUMNS
                )
                return
            for column in (settled := settle_schema(Schema(typed))):
                log.info('"%s" has a new column: %s %s', self.address, column.name, type_name(column.type))
            self._schema = self.found = Schema((*known, *settled))
