"""Defines statements: what a SQL text asks for, as frozen data.

Names are as written; comparisons elsewhere ignore case. Two statements are equal if they say the same, whatever their
``place`` and ``text``. Offsets in the ``meta`` of expressions are those of the expanded script.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, get_args

import pyarrow as pa
from sqlglot import exp

from millpond.errors import Place
from millpond.options import Setting

DropKind = Literal["stream", "table", "view", "materialized view", "query", "index"]
WindowKind = Literal["tumbling", "hopping", "session"]
ExplainFormat = Literal["text", "json", "mermaid", "svg"]
EXPLAIN_FORMATS: tuple[ExplainFormat, ...] = get_args(ExplainFormat)


@dataclass(frozen=True, kw_only=True)
class Statement:
    """Represents a statement. ``text`` is its original text, without the semicolon."""

    place: Place | None = field(default=None, compare=False, repr=False)
    text: str = field(default="", compare=False, repr=False)


@dataclass(frozen=True)
class ColumnDef:
    name: str
    type: pa.DataType
    nullable: bool = True
    primary_key: bool = False
    place: Place | None = field(default=None, compare=False, repr=False)
    default: exp.Expression | None = None


@dataclass(frozen=True)
class Watermark:
    """Represents ``WATERMARK FOR column AS column - delay``; ``delay`` is an Interval and ``seconds`` its length."""

    column: str
    delay: exp.Expression
    seconds: float


@dataclass(frozen=True)
class WindowClause:
    """Represents ``WINDOW TUMBLING(…)``: sizes in seconds; ``size`` is the gap of a session."""

    kind: WindowKind
    time: exp.Expression | None
    size: float
    slide: float | None = None


@dataclass(frozen=True)
class Query:
    """Represents a Select or SetOperation with its CTEs, and what our language adds to it."""

    expression: exp.Expression
    window: WindowClause | None = None
    emit: Literal["changes", "final"] | None = None


@dataclass(frozen=True)
class CreateStream(Statement):
    name: str
    columns: tuple[ColumnDef, ...] = ()
    watermark: Watermark | None = None
    query: Query | None = None
    settings: tuple[Setting, ...] = ()
    if_not_exists: bool = False
    or_replace: bool = False
    errors_into: str | None = None


@dataclass(frozen=True)
class CreateTable(Statement):
    name: str
    columns: tuple[ColumnDef, ...] = ()
    key: tuple[str, ...] = ()
    query: Query | None = None
    settings: tuple[Setting, ...] = ()
    if_not_exists: bool = False
    or_replace: bool = False
    errors_into: str | None = None


@dataclass(frozen=True)
class CreateView(Statement):
    """Represents a named query, or with ``materialized`` a live table. ``names`` rename its columns."""

    name: str
    names: tuple[str, ...]
    query: Query
    materialized: bool = False
    settings: tuple[Setting, ...] = ()
    or_replace: bool = False
    if_not_exists: bool = False
    key: tuple[str, ...] = ()
    errors_into: str | None = None


@dataclass(frozen=True)
class CreateIndex(Statement):
    name: str
    table: str
    columns: tuple[str, ...]
    if_not_exists: bool = False


@dataclass(frozen=True)
class Drop(Statement):
    kind: DropKind
    name: str
    if_exists: bool = False
    cascade: bool = False


@dataclass(frozen=True)
class Truncate(Statement):
    name: str


@dataclass(frozen=True)
class AddColumn:
    column: ColumnDef
    if_not_exists: bool = False


@dataclass(frozen=True)
class RenameColumn:
    old: str
    new: str


@dataclass(frozen=True)
class DropColumn:
    name: str
    if_exists: bool = False


@dataclass(frozen=True)
class RenameTable:
    name: str


@dataclass(frozen=True)
class RetypeColumn:
    name: str
    type: pa.DataType


@dataclass(frozen=True)
class SetDefault:
    """Represents ALTER COLUMN … SET DEFAULT, or DROP DEFAULT without a ``value``."""

    name: str
    value: exp.Expression | None = None


@dataclass(frozen=True)
class SetOptions:
    settings: tuple[Setting, ...]


@dataclass(frozen=True)
class SwapTable:
    """Represents SWAP WITH: what was built beside the table takes its place."""

    name: str


AlterAction = (
    AddColumn | RenameColumn | DropColumn | RetypeColumn | SetDefault | RenameTable | SetOptions | SwapTable
)


@dataclass(frozen=True)
class AlterTable(Statement):
    """Represents ALTER TABLE. With ``cascade``, what uses a renamed column or table follows, and what uses a dropped
    column is dropped.
    """

    name: str
    action: AlterAction
    cascade: bool = False


@dataclass(frozen=True)
class Insert(Statement):
    """Represents INSERT, with either ``query`` or ``values``. ``target`` is a name or, with ``target_is_uri``,
    a URI.
    """

    target: str
    target_is_uri: bool = False
    columns: tuple[str, ...] = ()
    query: Query | None = None
    values: tuple[tuple[exp.Expression, ...], ...] = ()
    settings: tuple[Setting, ...] = ()
    errors_into: str | None = None


@dataclass(frozen=True)
class Upsert(Statement):
    target: str
    query: Query
    on: exp.Expression
    settings: tuple[Setting, ...] = ()
    errors_into: str | None = None
    columns: tuple[str, ...] = ()


@dataclass(frozen=True)
class Update(Statement):
    """Represents UPDATE. ``source`` is a Table or Subquery, with ``joins`` after it; assignments are (column,
    value).
    """

    target: str
    alias: str | None
    assignments: tuple[tuple[str, exp.Expression], ...]
    source: exp.Expression | None = None
    joins: tuple[exp.Join, ...] = ()
    where: exp.Expression | None = None
    returning: tuple[exp.Expression, ...] = ()
    returning_into: str | None = None
    settings: tuple[Setting, ...] = ()
    errors_into: str | None = None


@dataclass(frozen=True)
class Delete(Statement):
    target: str
    alias: str | None = None
    source: exp.Expression | None = None
    joins: tuple[exp.Join, ...] = ()
    where: exp.Expression | None = None
    returning: tuple[exp.Expression, ...] = ()
    returning_into: str | None = None
    settings: tuple[Setting, ...] = ()
    errors_into: str | None = None


@dataclass(frozen=True)
class Merge(Statement):
    target: str
    expression: exp.Merge
    settings: tuple[Setting, ...] = ()
    errors_into: str | None = None


WRITES = (Insert, Upsert, Update, Delete, Merge)
"""Statements that change rows once, or, over a stream, for as long as the app runs."""


@dataclass(frozen=True)
class Select(Statement):
    query: Query
    settings: tuple[Setting, ...] = ()
    errors_into: str | None = None


@dataclass(frozen=True)
class Begin(Statement):
    pass


@dataclass(frozen=True)
class Commit(Statement):
    pass


@dataclass(frozen=True)
class Rollback(Statement):
    pass


@dataclass(frozen=True)
class Block(Statement):
    """Represents BEGIN … COMMIT or ROLLBACK with the statements between them."""

    begin: Begin
    statements: tuple[Statement, ...]
    end: Commit | Rollback


@dataclass(frozen=True)
class Show(Statement):
    what: Literal["streams", "tables", "queries", "functions"]


@dataclass(frozen=True)
class ShowCreate(Statement):
    name: str


@dataclass(frozen=True)
class Describe(Statement):
    """Represents DESCRIBE; ``name`` may be a URI."""

    name: str
    extended: bool = False


@dataclass(frozen=True)
class DescribeHistory(Statement):
    """Represents DESCRIBE HISTORY; ``name`` may be a URI."""

    name: str


@dataclass(frozen=True)
class Optimize(Statement):
    name: str


@dataclass(frozen=True)
class Vacuum(Statement):
    """Represents VACUUM. ``hours`` is how old a version must be that is removed."""

    name: str
    hours: int | None = None


@dataclass(frozen=True)
class Explain(Statement):
    statement: Statement
    analyze: bool = False
    format: ExplainFormat = "text"


@dataclass(frozen=True)
class NamedQuery(Statement):
    """Represents a running statement by its name: ``EXPLAIN ANALYZE QUERY q``."""

    name: str


@dataclass(frozen=True)
class ExplainUpgrade(Statement):
    """Represents EXPLAIN UPGRADE; with ``shadow`` that of a start that keeps what is rebuilt beside the old tables."""

    path: str
    shadow: bool = False


@dataclass(frozen=True)
class ControlQuery(Statement):
    action: Literal["stop", "start", "pause", "resume"]
    name: str


@dataclass(frozen=True)
class Replay(Statement):
    name: str


def only_reads(statement: Statement) -> bool:
    """Returns whether the statement returns something and changes nothing."""
    if isinstance(statement, Explain) and statement.analyze:
        return only_reads(statement.statement)
    return isinstance(
        statement, (Select, Show, ShowCreate, Describe, DescribeHistory, Explain, ExplainUpgrade, NamedQuery)
    )
