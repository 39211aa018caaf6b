"""What a row of the table of functions says, and the table: all rows of the modules in this folder.

A function is one row, ``Function(…)``, ``Aggregate(…)``, ``WindowFunction(…)`` or ``Generator(…)``, in ``FUNCTIONS`` of
the module of its family. Everybody else asks this table: the parser how many arguments it takes and which expression it
becomes, the checker its types, the renderer its DuckDB form, live aggregates what they keep, the reference its line and
its example. Rules that need code are functions that the row names.

=========  =====================================================================================  ====================
class      what the value depends on                                                              who may call it
=========  =====================================================================================  ====================
pure       on the arguments alone                                                                 everybody
volatile   also on the time, on chance, or on how rows are divided                                everybody
session    on who runs the app, where, and with which version                                     not HTTP clients
outside    on files, the network, the JVM, the environment or logs                                nobody
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
"""What a client over HTTP may call."""

Node: TypeAlias = "type[exp.Expr]"
Builder: TypeAlias = "Callable[[list[exp.Expr]], exp.Expr]"
Rule: TypeAlias = "Callable[[exp.Expr, Any], pa.DataType | None]"
"""(the call, the type of an operand) → the type of the call; None if only Spark knows it (``sql/typing``)."""
Form: TypeAlias = "Callable[[Any, exp.Expr], Any]"
"""(the renderer, the call) → DuckDB's SQL (``sql/render/duckdb``)."""
Fold: TypeAlias = "Callable[[pa.DataType | None], Callable[[Any], Any]]"
"""The type of a column → the function from its values that are not NULL to their aggregate."""


EXAMPLE_COLUMNS = "k INT PRIMARY KEY, g STRING, x INT, d DOUBLE, b BOOLEAN, s STRING"
EXAMPLE_ROWS = (
    "(1, 'a', 10, 1.0D, TRUE, 'one'), (2, 'a', 20, 2.0D, TRUE, 'two'), "
    "(3, 'b', 20, 3.0D, FALSE, 'three'), (4, 'b', NULL, 4.0D, NULL, NULL)"
)
"""The table ``t`` that examples of aggregates and window functions read."""


@dataclass(frozen=True, slots=True)
class Function:
    """A scalar function."""

    name: str
    doc: str
    """One sentence or two for the reference."""
    example: str = ""
    """A condition that holds in each row of ``t``, or in the one group of all of them; or a query of one such value."""
    also: tuple[str, ...] = ()
    """Its other names."""
    ours: tuple[str, ...] = ()
    """Those of its other names that Spark does not know."""
    kind: FunctionClass = "pure"
    steady: bool = False
    """Whether it is pure where it has an argument."""
    takes: str = ""
    """``(parameter, parameter[, optional, optional][, more...]) result``. A parameter is a type to which an argument is
    brought as Spark does it, or a kind of types (``typing/implicit.py``); ``a|b`` is either. A result that is a number
    is the type of that argument; ``?`` stands for a rule in ``type``."""
    arity: str = ""
    """How many arguments, if ``takes`` does not say it: ``1``, ``1-2``, ``2+``, ``2,6``, ``even`` or ``any``."""
    type: Rule | None = None
    """The type of the result, where it takes more than ``takes`` to tell."""
    duckdb: Form | str | None = None
    """How DuckDB says it; a text is a template of the arguments, ``{0}``, …, as ``takes`` brings them. Without it Spark
    is asked."""
    node: Node | None = None
    """The expression that a call becomes, if other parts of Millpond look for it. Else it is an ``exp.Anonymous``."""
    keys: tuple[str, ...] = ("this",)
    """Where its arguments are in that expression, in order."""
    build: Builder | None = None
    """Makes the expression of the arguments, where ``keys`` does not do."""
    operator: Callable[..., exp.Expr] | None = None
    """The operator that it is another name of, made of its arguments."""
    total: bool = False
    """Whether it has a value for all texts: it cannot raise."""
    eager: bool = False
    """Whether it looks at all arguments, also behind one that is NULL."""
    grows: Callable[..., Any] | Literal["joined", "folded"] | None = None
    """How large the result may become (``sql/growth.py``): a measure; ``joined`` as large as the arguments together;
    ``folded`` by its lambda. By default no larger than the arguments."""
    outside: tuple[int, str] | None = None
    """The argument that has options, and the one of them that would name a file or a host."""

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name, *self.also)

    @property
    def counts(self) -> str:
        """How many arguments it takes."""
        return self.arity or counts_of(self.takes)


@dataclass(frozen=True, slots=True)
class Aggregate(Function):
    """An aggregate. Its DuckDB form is a ``Call``, to which FILTER and OVER are put.

    Over a stream it is kept either as a few values, that ``keeps`` makes (``sql/aggregate/parts.py``: *partial* over a
    batch, *merge* with what is kept, *final* for a reader); or, without it, as the values of the group.
    """

    keeps: Callable[[Any, exp.Expr], Any] | None = None
    lowers: Callable[..., Any] | None = None
    """(the call, its FILTER) → the aggregate that is kept in its place, and its condition."""
    repeatable: bool = False
    """Whether it makes no difference how often a value comes: DISTINCT says nothing."""
    ordered: bool = False
    """Whether the values of a group are kept in the order of the stream."""
    few: Fold | None = None
    """How a lookup computes it over a few values, without an evaluator (``records/aggregates.py``)."""


@dataclass(frozen=True, slots=True)
class WindowFunction(Function):
    """A function that is there only with OVER."""

    frame: Literal["counted", "whole", "any"] = "counted"
    """Which frame it takes: it counts from the first row of the window; it looks at all of the window, and takes none;
    or any. In the first two cases it needs an order."""


@dataclass(frozen=True, slots=True)
class Generator(Function):
    """A function that gives rows; ``columns`` tells those of a call (``sql/resolve/generators.py``)."""

    columns: Callable[..., Any] | None = None


FAMILIES = (
    "aggregates arrays binary casts conditionals dates generators json maps math outside patterns random session "
    "sketches strings windows"
).split()
"""The modules of this folder with rows. They are named, not looked for: a folder that cannot be read looks empty."""


@cache
def families() -> Mapping[str, tuple[Function, ...]]:
    """The rows of each family, by its name."""
    return {name: importlib.import_module(f"{__package__}.{name}").FUNCTIONS for name in FAMILIES}


def functions() -> tuple[Function, ...]:
    """Every row, in the order of the families."""
    return tuple(row for rows in families().values() for row in rows)


@cache
def by_name() -> Mapping[str, Function]:
    """The rows by each of their lower-case names."""
    return MappingProxyType({name: row for row in functions() for name in row.names})


@cache
def by_node() -> Mapping[Node, Function]:
    """The rows by the expressions that they become. Rows of one expression have the same type and DuckDB form."""
    found: dict[Node, Function] = {}
    for row in functions():
        if row.node is not None:
            found.setdefault(row.node, row)
    return MappingProxyType(found)


@cache
def folds() -> Mapping[Node, str]:
    """The aggregates that are computed over a few values, and over paths: their names by their expressions."""
    return MappingProxyType(
        {row.node: row.name for row in functions() if isinstance(row, Aggregate) and row.few and row.node}
    )


def fold_of(name: str) -> Fold:
    """How one of these is computed over a few values."""
    row = by_name()[name]
    assert isinstance(row, Aggregate) and row.few is not None
    return row.few


@cache
def function_classes() -> Mapping[str, FunctionClass]:
    """The class of each function by its lower-case name: Spark's built-in functions and our own."""
    return MappingProxyType({name: by_name()[name].kind for name in sorted(by_name())})


@cache
def known_functions() -> frozenset[str]:
    """Lower-case names of Spark's built-in functions and of our own."""
    return frozenset(by_name())


def counts_of(takes: str) -> str:
    """The number of arguments of ``(a, b[, c]) result``."""
    needed, _, optional = takes[1 : takes.rindex(")")].partition("[")
    least, more = (len([p for p in part.split(",") if p.strip(" ]")]) for part in (needed, optional))
    if "..." in optional:
        return f"{least}+"
    return f"{least}-{least + more}" if more else str(least)


def wrong_number(name: str, count: int) -> str | None:
    """What is wrong with calling a function with so many arguments; None if nothing is, or it is not known."""
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
