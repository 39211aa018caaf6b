"""Defines a row of the table of functions, and the table: all rows of the modules in this folder.

A function is one row, ``Function(…)``, ``Aggregate(…)``, ``WindowFunction(…)`` or ``Generator(…)``, in ``FUNCTIONS`` of
the module of its family. Other packages read this table: the parser finds how many arguments it takes and which
expression it becomes, the checker its types, the renderer its DuckDB form, live aggregates what they store, the
reference its line and its example. Rules that need code are functions that the row names.

=========  =====================================================================================  ====================
class      what the value depends on                                                              who may call it
=========  =====================================================================================  ====================
pure       on the arguments alone                                                                 everyone
volatile   also on the time, on chance, or on how rows are divided                                everyone
session    on who runs the app, where, and with which version                                     not HTTP clients
outside    on files, the network, the JVM, the environment or logs                                no one
=========  =====================================================================================  ====================
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    import pyarrow as pa
    from sqlglot import exp

FunctionClass = Literal["pure", "volatile", "session", "outside"]
FOR_CLIENTS: frozenset[FunctionClass] = frozenset(("pure", "volatile"))
"""The classes that a client may call over HTTP."""

Node: TypeAlias = "type[exp.Expr]"
Builder: TypeAlias = "Callable[[list[exp.Expr]], exp.Expr]"
Rule: TypeAlias = "Callable[[exp.Expr, Any], pa.DataType | None]"
"""(the call, the type of an operand) → the type of the call; None if only Spark knows it (``sql/typing``)."""
Form: TypeAlias = "Callable[[Any, exp.Expr], Any]"
"""(the renderer, the call) → DuckDB's SQL (``sql/render/duckdb``)."""
Fold: TypeAlias = "Callable[[pa.DataType | None], Callable[[Any], Any]]"
"""The type of a column → the function that aggregates its values that are not NULL."""


EXAMPLE_COLUMNS = "k INT PRIMARY KEY, g STRING, x INT, d DOUBLE, b BOOLEAN, s STRING"
EXAMPLE_ROWS = (
    "(1, 'a', 10, 1.0D, TRUE, 'one'), (2, 'a', 20, 2.0D, TRUE, 'two'), "
    "(3, 'b', 20, 3.0D, FALSE, 'three'), (4, 'b', NULL, 4.0D, NULL, NULL)"
)
"""The table ``t`` that examples of aggregates and window functions read."""


@dataclass(frozen=True, slots=True)
class Function:
    """Declares a scalar function."""

    name: str
    doc: str
    """One sentence or two for the reference."""
    example: str = ""
    """A condition that is true in each row of ``t``, or in the one group of all rows; or a query that returns one such
    value.
    """
    also: tuple[str, ...] = ()
    """Its other names."""
    ours: tuple[str, ...] = ()
    """Those of its other names that Spark does not know."""
    kind: FunctionClass = "pure"
    steady: bool = False
    """Whether it is pure when it has an argument."""
    takes: str = ""
    """``(parameter, parameter[, optional, optional][, more...]) result``. A parameter is a type to which an argument is
    cast as Spark does it, or a kind of types (``typing/implicit.py``); ``a|b`` is either. A result that is a number is
    the type of that argument; ``?`` stands for a rule in ``type``.
    """
    arity: str = ""
    """How many arguments, if ``takes`` does not say: ``1``, ``1-2``, ``2+``, ``2,6``, ``even`` or ``any``."""
    type: Rule | None = None
    """The type of the result, where ``takes`` is not enough to determine it."""
    duckdb: Form | str | None = None
    """The DuckDB form; a text is a template of the arguments, ``{0}``, …, as ``takes`` casts them. Without it, Spark
    runs the call.
    """
    node: Node | None = None
    """The expression that a call becomes, if other parts of Millpond look for it. Otherwise it is an
    ``exp.Anonymous``.
    """
    keys: tuple[str, ...] = ("this",)
    """The keys of its arguments in that expression, in order."""
    build: Builder | None = None
    """Builds the expression from the arguments, where ``keys`` is not enough."""
    operator: Callable[..., exp.Expr] | None = None
    """The operator that it is another name of, built from its arguments."""
    total: bool = False
    """Whether it has a value for all texts, so it cannot raise."""
    eager: bool = False
    """Whether it evaluates all arguments, also those after one that is NULL."""
    grows: Callable[..., Any] | Literal["joined", "folded"] | None = None
    """How large the result can be (``sql/growth.py``): a measure; ``joined``: as large as the arguments together;
    ``folded``: by its lambda. By default no larger than the arguments.
    """
    outside: tuple[int, str] | None = None
    """The argument that contains options, and the option that would name a file or a host."""

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name, *self.also)

    @property
    def counts(self) -> str:
        """Returns how many arguments it takes."""
        return self.arity or counts_of(self.takes)


@dataclass(frozen=True, slots=True)
class Aggregate(Function):
    """Declares an aggregate. Its DuckDB form is a ``Call``, to which FILTER and OVER are added.

    Over a stream, it is stored either as a few values, built by ``keeps`` (``sql/aggregate/parts.py``: *partial* over a
    batch, *merge* with the state, *final* for a reader); or, without it, as the values of the group. Over tables,
    a view takes values back with ``retracts``; or computes a touched group again, if that is ``by_group``.
    """

    keeps: Callable[[Any, exp.Expr], Any] | None = None
    lowers: Callable[..., Any] | None = None
    """(the call, its FILTER) → the aggregate that is stored in its place, and its condition."""
    repeatable: bool = False
    """Whether the number of times that a value occurs makes no difference, so that DISTINCT has no effect."""
    ordered: bool = False
    """Whether the values of a group are stored in the order of the stream."""
    few: Fold | None = None
    """How a lookup computes it over a few values, without an evaluator (``records/aggregates.py``)."""
    by_group: bool = False
    """Whether a view may compute it again from the rows of one group: their order makes no difference."""
    retracts: Callable[..., Any] | None = None
    """How a view adds values and takes them back (``records/retraction.py``)."""


@dataclass(frozen=True, slots=True)
class WindowFunction(Function):
    """Declares a function that requires OVER."""

    frame: Literal["counted", "whole", "any"] = "counted"
    """Which frame it takes: it starts at the first row of the window; it reads the whole window, and takes none; or
    any. In the first two cases it needs an order.
    """


@dataclass(frozen=True, slots=True)
class Generator(Function):
    """Declares a function that returns rows; ``columns`` returns the columns of a call
    (``sql/resolve/generators.py``).
    """

    columns: Callable[..., Any] | None = None


FAMILIES = (
    "aggregates arrays binary casts conditionals dates generators json maps math outside patterns random session "
    "sketches strings windows"
).split()
"""The modules of this folder with rows. They are listed, not searched for: a folder that cannot be read looks empty."""


@cache
def families() -> Mapping[str, tuple[Function, ...]]:
    """Returns the rows of each family, by its name."""
    return {name: importlib.import_module(f"{__package__}.{name}").FUNCTIONS for name in FAMILIES}


def functions() -> tuple[Function, ...]:
    """Returns every row, in the order of the families."""
    return tuple(row for rows in families().values() for row in rows)


@cache
def by_name() -> Mapping[str, Function]:
    """Returns the rows by each of their lower-case names."""
    return MappingProxyType({name: row for row in functions() for name in row.names})


@cache
def by_node() -> Mapping[Node, Function]:
    """Returns the rows by the expressions that they become. Rows of one expression share the type and DuckDB form."""
    found: dict[Node, Function] = {}
    for row in functions():
        if row.node is not None:
            found.setdefault(row.node, row)
    return MappingProxyType(found)


@cache
def folds() -> Mapping[Node, str]:
    """Returns the aggregates that can be computed over a few values, and over paths: their names by their
    expressions.
    """
    return MappingProxyType(
        {row.node: row.name for row in functions() if isinstance(row, Aggregate) and row.few and row.node}
    )


def fold_of(name: str) -> Fold:
    """Returns how one of these is computed over a few values."""
    row = by_name()[name]
    assert isinstance(row, Aggregate) and row.few is not None
    return row.few


@cache
def function_classes() -> Mapping[str, FunctionClass]:
    """Returns the class of each function by its lower-case name: Spark's built-in functions and our own."""
    return MappingProxyType({name: by_name()[name].kind for name in sorted(by_name())})


@cache
def known_functions() -> frozenset[str]:
    """Returns the lower-case names of Spark's built-in functions and of our own."""
    return frozenset(by_name())


def counts_of(takes: str) -> str:
    """Returns the number of arguments of ``(a, b[, c]) result``."""
    needed, _, optional = takes[1 : takes.rindex(")")].partition("[")
    least, more = (len([p for p in part.split(",") if p.strip(" ]")]) for part in (needed, optional))
    if "..." in optional:
        return f"{least}+"
    return f"{least}-{least + more}" if more else str(least)


def wrong_number(name: str, count: int) -> str | None:
    """Returns what is wrong with calling a function with this many arguments; None if nothing is, or it is unknown."""
    row = by_name().get(name.lower())
    counts = "any" if row is None else row.counts
    if counts == "any" or any(_holds(part, count) for part in counts.split(",")):
        return None
    return f"{name.upper()} takes {_said(counts)}, here {'is' if count == 1 else 'are'} {count or 'none'}"


def _holds(part: str, count: int) -> bool:
    if part == "even":
        return count % 2 == 0
    low, _, high = part.partition("-")
    if low.endswith("+"):
        return count >= int(low[:-1])
    return int(low) <= count <= int(high or low)


def _said(counts: str) -> str:
    if counts == "even":
        return "an even number of arguments"
    if counts == "0":
        return "no arguments"
    words = " or ".join(_part_said(part) for part in counts.split(","))
    return f"{words} argument{'' if counts == '1' else 's'}"


def _part_said(part: str) -> str:
    low, between, high = part.replace("+", " or more").partition("-")
    return f"{low} {'or' if int(high) == int(low) + 1 else 'to'} {high}" if between else low
