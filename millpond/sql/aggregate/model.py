"""What a live aggregate is made of."""

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
    """A table of the values of each group, for functions that cannot be merged from less.

    Its key is the grouping columns and the values v0, v1, …, with ``s``, the place in the stream, where the order
    counts; ``n`` is how often they came. The batch brings them as arrays of structs in the column ``column``.
    ``fresh`` is for DISTINCT: over values that no earlier batch had, as the view ``FRESH``, it gives what is merged
    into the state. Without it the functions read all values of a group, as the view ``view``.
    """

    column: str
    view: str
    schema: Schema
    fresh: Resolved | None


@dataclass(frozen=True, slots=True)
class WindowKey:
    """Where the window of an aggregate is: ``key`` is the grouping column with its start, ``last`` the value with the
    highest time of a session. Batches also have the column ``ROWS``, how many rows a group has."""

    window: Window
    key: str
    last: str | None


@dataclass(frozen=True, slots=True)
class Aggregation:
    """``state`` has the grouping columns k0, k1, … as its key, and the values of the functions a0, a1, …

    ``partial`` gives over a batch rows of that shape, and then the columns of ``kept``. ``merge`` reads rows of that
    shape as the view ``PARTIAL`` and gives one row a group; ``final`` reads those as the view ``MERGED``, beside the
    kept values and tables of the query, and gives the columns of the query, and as its last one whether HAVING holds.
    ``keys`` are the output columns that are grouping columns, None for one that is not among them.
    """

    state: Schema
    partial: Resolved
    merge: Resolved
    final: Resolved
    keys: tuple[str | None, ...]
    kept: tuple[Kept, ...] = ()
    window: WindowKey | None = None
    once: bool = False
    """A group is shown only when it comes for the first time: DISTINCT."""
