"""Defines the operators of a view that is kept by changes, as frozen data. ``views/operators`` runs them.

A row is a tuple, and a column is its place in it. In the queries of an operator the rows of its input are the view
``IN`` with the columns c0, c1, …
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

import pyarrow as pa

from millpond.predicates import Predicate
from millpond.sql.resolve import Resolved

IN = "__in"
PLACE = "__n"
"""The output with the place of the row that an output row was computed from."""


def column_at(place: int) -> str:
    return f"c{place}"


@dataclass(frozen=True, slots=True)
class Outputs:
    """Describes the columns that are computed from a row, and the condition on it.

    ``query`` does all of it. If each output is a column, ``picks`` are their places; ``condition`` is the condition, if
    it can be tested without an evaluator.
    """

    query: Resolved
    types: tuple[pa.DataType, ...]
    picks: tuple[int | None, ...]
    conditioned: bool
    condition: Predicate | None


@dataclass(frozen=True, slots=True)
class ScanNode:
    """Reads columns of a table, the view ``view`` of the query."""

    view: str
    table: str
    names: tuple[str, ...]
    types: tuple[pa.DataType, ...]

    @property
    def inputs(self) -> tuple[Node, ...]:
        return ()

    def __str__(self) -> str:
        return f"changes of table {self.table}: old and new rows, net; keeps nothing"


@dataclass(frozen=True, slots=True)
class _OverOne:
    """Describes what operators over one other have in common."""

    child: Node

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.child,)


@dataclass(frozen=True, slots=True)
class StepNode(_OverOne):
    """Filters rows and computes columns."""

    outputs: Outputs

    @property
    def types(self) -> tuple[pa.DataType, ...]:
        return self.outputs.types

    def __str__(self) -> str:
        what = "filter and columns" if self.outputs.conditioned else "columns"
        return f"{what}: row by row; keeps nothing"


@dataclass(frozen=True, slots=True)
class Kept:
    """Describes an aggregate whose values can be taken back: ``function`` names it in the table of functions, with
    ``argument`` the column of its argument, None for rows. ``values`` returns the values of its argument in each group
    and how often they occur, for a function that keeps them, or an exact sum of them. A percentile has a ``share``.
    """

    function: str
    distinct: bool
    argument: int | None
    type: pa.DataType | None
    values: Resolved | None
    share: float | None = None

    @property
    def sizes(self) -> bool:
        """Returns whether it needs the sum of the sizes of its values, without their signs."""
        return self.function == "avg" and self.type is not None and pa.types.is_integer(self.type)

    @property
    def squares(self) -> bool:
        """Returns whether it needs the sum of the squares of its values."""
        return self.values is None and self.function.startswith(("stddev", "var"))

    @property
    def floating(self) -> bool:
        """Returns whether its values have a floating point."""
        return self.type is not None and pa.types.is_floating(self.type)


@dataclass(frozen=True, slots=True)
class Regrouped:
    """Describes aggregates that are computed again from the rows of a touched group: ``child`` finds them by its
    columns ``keys``, and ``query`` returns the keys and the values.
    """

    child: Node
    keys: tuple[int, ...]
    query: Resolved


@dataclass(frozen=True, slots=True)
class GroupNode(_OverOne):
    """Groups the rows of its input, which are the keys and then the arguments of the aggregates.

    ``aggregates`` are in the order of the values; None for one of ``regrouped``. ``load`` returns all groups: their
    keys, their number of rows, for each kept aggregate without ``values`` the count and the sums, for a regrouped one
    its value. ``outputs`` are computed from the keys and the values.
    """

    keys: int
    aggregates: tuple[Kept | None, ...]
    regrouped: Regrouped | None
    load: Resolved
    key_types: tuple[pa.DataType, ...]
    value_types: tuple[pa.DataType, ...]
    outputs: Outputs

    @property
    def types(self) -> tuple[pa.DataType, ...]:
        return self.outputs.types

    def __str__(self) -> str:
        what = "groups" if self.keys else "total"
        exact = ("sum", "avg")  # of numbers with a floating point: their values only set the state
        multisets = any(a is not None and a.values and a.function not in exact for a in self.aggregates)
        kept = "the values of each group" if multisets else "counts and sums of each group"
        again = "; some aggregates from all rows of a touched group" if self.regrouped is not None else ""
        return f"{what}: touched groups; keeps {kept}{again}"


JoinKind = Literal["inner", "left", "semi", "anti"]


@dataclass(frozen=True, slots=True)
class JoinNode:
    """Joins rows with equal ``pairs`` of columns, left and right; without pairs all rows. ``residual`` says which pairs
    match, of those. A row of the left side matches at most one of the right side if that is ``single``.
    """

    kind: JoinKind
    left: Node
    right: Node
    pairs: tuple[tuple[int, int], ...]
    residual: Outputs | None
    single: bool = False

    @property
    def types(self) -> tuple[pa.DataType, ...]:
        return self.left.types if self.kind in ("semi", "anti") else self.left.types + self.right.types

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.left, self.right)

    def __str__(self) -> str:
        how = "finds the other by index" if self.pairs else "reads all rows of the other"
        return f"{self.kind} join: a change of a side {how}; keeps nothing besides the indexes"


@dataclass(frozen=True, slots=True)
class DistinctNode(_OverOne):
    """Returns each row once. ``load`` returns the rows and how often each occurs."""

    load: Resolved

    @property
    def types(self) -> tuple[pa.DataType, ...]:
        return self.child.types

    def __str__(self) -> str:
        return "distinct: touched rows; keeps a count of each different row"


@dataclass(frozen=True, slots=True)
class UnionNode:
    """Returns the rows of all its inputs."""

    children: tuple[Node, ...]

    @property
    def types(self) -> tuple[pa.DataType, ...]:
        return self.children[0].types

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.children

    def __str__(self) -> str:
        return "union all: passes changes; keeps nothing"


@dataclass(frozen=True, slots=True)
class IndexNode(_OverOne):
    """Keeps the rows of its input, to find them by any columns. ``load`` returns them."""

    load: Resolved

    @property
    def types(self) -> tuple[pa.DataType, ...]:
        return self.child.types

    def __str__(self) -> str:
        return "index: touched rows; keeps all rows of what is below"


@dataclass(frozen=True, slots=True)
class SortKey:
    """Describes a column that rows are sorted by."""

    column: int
    descending: bool
    nulls_first: bool


@dataclass(frozen=True, slots=True)
class TopNode(_OverOne):
    """Returns the first rows of its input, ``limit`` of them after ``offset``; of each the first ``width`` columns.
    ``load`` returns the first ``kept`` rows of the input.
    """

    keys: tuple[SortKey, ...]
    limit: int
    offset: int
    width: int
    kept: int
    load: Resolved

    @property
    def types(self) -> tuple[pa.DataType, ...]:
        return self.child.types[: self.width]

    def __str__(self) -> str:
        return f"first {self.limit:,} rows: touched rows; keeps the first {self.kept:,} in order"


@dataclass(frozen=True, slots=True)
class WindowNode(_OverOne):
    """Evaluates ``query`` over all rows of its input with equal ``columns``: window functions that divide by them.
    Without columns it is evaluated over all rows.
    """

    columns: tuple[int, ...]
    query: Resolved
    types: tuple[pa.DataType, ...]

    def __str__(self) -> str:
        rows = (
            "all rows of touched partitions, found by index" if self.columns else "all rows of what is below"
        )
        return f"windows: {rows}, before and after; keeps nothing"


@dataclass(frozen=True, slots=True)
class SetNode:
    """Returns the rows of INTERSECT or EXCEPT, each once or with ``every`` as often as it occurs. ``loads`` return the
    rows of both sides, and how often each occurs.
    """

    kind: Literal["intersect", "except"]
    every: bool
    sides: tuple[Node, Node]
    loads: tuple[Resolved, Resolved]

    @property
    def types(self) -> tuple[pa.DataType, ...]:
        return self.sides[0].types

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.sides

    def __str__(self) -> str:
        return f"{self.kind}: touched rows; keeps a count of each different row of both sides"


Node: TypeAlias = (
    ScanNode
    | StepNode
    | GroupNode
    | JoinNode
    | DistinctNode
    | UnionNode
    | IndexNode
    | TopNode
    | WindowNode
    | SetNode
)


@dataclass(frozen=True, slots=True)
class ByChanges:
    """Describes how a view is kept by changes: its operators; or, without them, ``reason``: the operator that
    is recomputed.
    """

    root: Node | None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Visit:
    """Contains an operator of a tree, and how deep it is; one that several others read is met ``again``."""

    node: Node
    depth: int
    again: bool


def walk(root: Node) -> Iterator[Visit]:
    """Yields an operator and those below it; what is below one that is met again only the first time."""
    seen: set[int] = set()
    pending = [(root, 0)]
    while pending:
        node, depth = pending.pop()
        again = id(node) in seen
        yield Visit(node, depth, again)
        if not again:
            seen.add(id(node))
            pending += [(child, depth + 1) for child in reversed(node.inputs)]


def is_key(dtype: pa.DataType) -> bool:
    """Returns whether an index compares values of the type as SQL does."""
    return not pa.types.is_nested(dtype) and not pa.types.is_floating(dtype) and not pa.types.is_null(dtype)


def is_plain(dtype: pa.DataType | None) -> bool:
    """Returns whether operators pass values of the type."""
    t = pa.types
    kinds = (
        t.is_integer,
        t.is_floating,
        t.is_decimal128,
        t.is_string,
        t.is_boolean,
        t.is_date32,
        t.is_timestamp,
    )
    return dtype is not None and any(kind(dtype) for kind in kinds)
