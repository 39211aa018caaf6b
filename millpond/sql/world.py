"""Declares what the checker needs from the packages above it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from millpond.changelog import Style
from millpond.options import Option
from millpond.sql.catalog import Relation
from millpond.types import Schema


class World(Protocol):
    """Declares what the checker needs from the packages above it."""

    def source_options(self, uri: str) -> Sequence[Option]:
        """Returns the declared options of the source at a URI. Raises NotSupported."""

    def backend_options(self, extension: str) -> Sequence[Option]:
        """Returns the declared options of a table backend. Raises UnknownName or NotSupported."""

    def sink_options(self, uri: str) -> Sequence[Option]:
        """Returns the declared options of the sink at a URI. Raises NotSupported."""

    def sink_is_exact(self, uri: str, values: Mapping[str, Any]) -> bool:
        """Returns whether the sink at a URI stores its position together with the rows."""

    def sink_takes_changes(self, uri: str) -> Style:
        """Returns how the sink at a URI takes the changes of a table."""

    def check_sink(
        self,
        uri: str,
        values: Mapping[str, Any],
        schema: Schema,
        *,
        running: bool,
        groups: bool,
        changes: bool = False,
    ) -> None:
        """Raises an error if the sink at a URI cannot be written with these options and columns; ``groups`` says
        whether they are those of a live aggregate, ``changes`` whether they are the changes of a table.
        """

    def stored_in(self, values: Mapping[str, Any]) -> str | None:
        """Returns the database that stores a table with these options; None for the app's journal."""

    def times_rows(self, values: Mapping[str, Any]) -> bool:
        """Returns whether a table with these options can remember when each row was last changed."""

    def evicts(self, values: Mapping[str, Any]) -> bool:
        """Returns whether rows leave a table with these options without a change."""

    def keeps_versions(self, values: Mapping[str, Any]) -> bool:
        """Returns whether a table with these options can be read as of an earlier version."""

    def flushed_by(self, values: Mapping[str, Any]) -> str | None:
        """Returns who writes the changes of a table with these options to its store later; None if none does."""

    def divides(self, values: Mapping[str, Any], schema: Schema) -> bool:
        """Returns whether executors may write to a table with these options and columns."""

    def describe(
        self, uri: str, values: Mapping[str, Any], declared: Schema | None, *, table: bool = False
    ) -> Relation:
        """Describes what a URI returns, to a ``table`` or to a query. Raises an Error if it cannot be read."""

    def changes(self, uri: str, values: Mapping[str, Any], declared: Schema | None) -> Schema | None:
        """Returns the columns of a stream of the changes at a URI; None if it returns rows instead."""

    def keyed(self, uri: str, values: Mapping[str, Any], declared: Schema | None) -> str | None:
        """Returns why the messages at a URI identify rows by their keys, if they do. Raises an Error if that is
        unknown.
        """
