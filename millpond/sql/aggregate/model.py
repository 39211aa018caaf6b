"""Defines the parts of a live aggregate."""

from __future__ import annotations

from dataclasses import dataclass

from millpond.sql.resolve import Resolved
from millpond.sql.windowing import Window
from millpond.types import Schema

PARTIAL = "__partial"
MERGED = "__merged"
FRESH = "__fresh"
SEQUENCE = "s"
COUNT = "n"
ROWS = "r"


@dataclass(frozen=True, slots=True)
class Kept:
    """Describes a table of the values of each group, for functions that cannot be merged from less.

    Its key is the grouping columns and the values v0, v1, …, plus ``s``, the place in the stream, where the order
    matters; ``n`` is how often they occurred. A batch delivers them as arrays of structs in the column ``column``.
    ``fresh`` is for DISTINCT: a query over the values that no earlier batch had (the view ``FRESH``), which returns
    what is merged into the state. Without it, the functions read all values of a group, as the view ``view``.
    """

    column: str
    view: str
    schema: Schema
    fresh: Resolved | None


@dataclass(frozen=True, slots=True)
class WindowKey:
    """Says where the window of an aggregate is: ``key`` is the grouping column with its start, ``last`` the value with
    the highest time of a session. Batches also have the column ``ROWS``, the number of rows of a group.
    """

    window: Window
    key: str
    last: str | None


@dataclass(frozen=True, slots=True)
class Aggregation:
    """Describes the state and the queries of a live aggregate.

    ``state`` has the grouping columns k0, k1, … as its key, and the function values a0, a1, … ``partial`` runs over a
    batch and returns rows of that shape, followed by the columns of ``kept``. ``merge`` reads rows of that shape as the
    view ``PARTIAL`` and returns one row per group. ``final`` reads those as the view ``MERGED``, together with the kept
    values and the tables of the query, and returns the columns of the query and, as the last column, whether HAVING is
    true. ``keys`` are the output columns that are grouping columns, None for a grouping column that is not an output.
    """

    state: Schema
    partial: Resolved
    merge: Resolved
    final: Resolved
    keys: tuple[str | None, ...]
    kept: tuple[Kept, ...] = ()
    window: WindowKey | None = None
    once: bool = False
    """A group is shown only when it first occurs: DISTINCT."""
