"""Describes a change of a table as queries.

A part of a mutation is a query over the target and other tables. Its first columns identify the row of the target (the
key, or the row number of a table without one); the others are the new row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from millpond.sql.catalog import Relation
from millpond.sql.resolve import Resolved


@dataclass(frozen=True, slots=True)
class Part:
    """Describes one part. ``end``: deletes the rows found. ``put``: they replace the rows that their first columns
    identify or, if ``identified`` is false, are new.
    """

    action: Literal["put", "end"]
    query: Resolved
    identified: bool


@dataclass(frozen=True, slots=True)
class Mutation:
    """Describes what a statement does to one table, all parts at once."""

    target: Relation
    parts: tuple[Part, ...]
