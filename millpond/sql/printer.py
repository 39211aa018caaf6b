"""Prints statements as text: ``parse(print_statement(s))`` returns a statement equal to ``s``."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import singledispatch

from sqlglot import exp

from millpond.options import Setting
from millpond.sql.dialect import Millpond, sql_of
from millpond.sql.nodes import seconds_text
from millpond.sql.statements import (
    AddColumn,
    AlterAction,
    AlterTable,
    Begin,
    ColumnDef,
    Commit,
    ControlQuery,
    CreateIndex,
    CreateStream,
    CreateTable,
    CreateView,
    Delete,
    Describe,
    DescribeHistory,
    Drop,
    DropColumn,
    Explain,
    ExplainUpgrade,
    Insert,
    Merge,
    NamedQuery,
    Optimize,
    Query,
    RenameColumn,
    RenameTable,
    Replay,
    RetypeColumn,
    Rollback,
    Select,
    SetDefault,
    SetOptions,
    Show,
    ShowCreate,
    Statement,
    SwapTable,
    Truncate,
    Update,
    Upsert,
    Vacuum,
    Watermark,
    WindowClause,
)
from millpond.types import quote, type_name

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@singledispatch
def print_statement(statement: Statement) -> str:
    """Returns the text of a statement, on one line and without a semicolon."""
    raise TypeError(f"no text for {type(statement).__name__}")


def print_name(name: str) -> str:
    """Returns a name, in back-ticks if it needs them."""
    plain = _PLAIN.fullmatch(name) and name.upper() not in Millpond.Tokenizer.KEYWORDS
    return name if plain else quote(name)


def print_query(query: Query) -> str:
    """Returns a query with its window and EMIT."""
    expression = query.expression
    if query.window:
        expression = expression.copy()
        clause = exp.var(_window(query.window))
        expression.set("windows", [clause, *(expression.args.get("windows") or [])])
    return _join(sql_of(expression), query.emit and f"EMIT {query.emit.upper()}")


def print_settings(settings: Iterable[Setting]) -> str:
    """Returns ``WITH (…)``, or nothing."""
    inner = ", ".join(f"{_text(s.name)} = {_text(s.value)}" for s in settings)
    return f"WITH ({inner})" if inner else ""


def _join(*parts: str | None) -> str:
    return " ".join(p for p in parts if p)


def _text(value: str) -> str:
    return sql_of(exp.Literal.string(value))


def _names(names: Iterable[str]) -> str:
    return ", ".join(print_name(n) for n in names)


def _window(window: WindowClause) -> str:
    parts = [sql_of(window.time)] if window.time else []
    parts += [seconds_text(s) + "s" for s in (window.size, window.slide) if s is not None]
    return f"{window.kind.upper()}({', '.join(parts)})"


def _column(column: ColumnDef) -> str:
    default = "" if column.default is None else f"DEFAULT {sql_of(column.default)}"
    needed = "" if column.nullable else "NOT NULL"
    return _join(print_name(column.name), type_name(column.type), needed, default)


def _columns(
    columns: Iterable[ColumnDef], key: tuple[str, ...] = (), watermark: Watermark | None = None
) -> str:
    items = [_column(c) for c in columns]
    if key:
        items.append(f"PRIMARY KEY ({_names(key)})")
    if watermark:
        name = print_name(watermark.column)
        items.append(f"WATERMARK FOR {name} AS {name} - {sql_of(watermark.delay)}")
    return f"({', '.join(items)})" if items else ""


def _create(kind: str, statement: CreateStream | CreateTable | CreateView | CreateIndex) -> str:
    replaces = isinstance(statement, (CreateStream, CreateTable, CreateView)) and statement.or_replace
    return _join(
        "CREATE",
        "OR REPLACE" if replaces else "",
        kind,
        "IF NOT EXISTS" if statement.if_not_exists else "",
        print_name(statement.name),
    )


def _as(query: Query | None) -> str:
    return f"AS {print_query(query)}" if query else ""


def _errors(errors_into: str | None) -> str:
    return f"ERROR INTO {print_name(errors_into)}" if errors_into else ""


@print_statement.register
def _(s: CreateStream) -> str:
    tail = (print_settings(s.settings), _errors(s.errors_into))
    return _join(_create("STREAM", s), _columns(s.columns, (), s.watermark), *tail, _as(s.query))


@print_statement.register
def _(s: CreateTable) -> str:
    tail = (print_settings(s.settings), _errors(s.errors_into))
    return _join(_create("TABLE", s), _columns(s.columns, s.key), *tail, _as(s.query))


@print_statement.register
def _(s: CreateView) -> str:
    items = [print_name(n) for n in s.names] + ([f"PRIMARY KEY ({_names(s.key)})"] if s.key else [])
    kind = "MATERIALIZED VIEW" if s.materialized else "VIEW"
    tail = (print_settings(s.settings), _errors(s.errors_into))
    return _join(_create(kind, s), f"({', '.join(items)})" if items else "", *tail, _as(s.query))


@print_statement.register
def _(s: CreateIndex) -> str:
    return f"{_create('INDEX', s)} ON {print_name(s.table)} ({_names(s.columns)})"


@print_statement.register
def _(s: Drop) -> str:
    exists = "IF EXISTS" if s.if_exists else ""
    return _join("DROP", s.kind.upper(), exists, print_name(s.name), "CASCADE" if s.cascade else "")


@print_statement.register
def _(s: Truncate) -> str:
    return f"TRUNCATE TABLE {print_name(s.name)}"


@print_statement.register
def _(s: AlterTable) -> str:
    return _join(f"ALTER TABLE {print_name(s.name)} {_action(s.action)}", "CASCADE" if s.cascade else "")


def _action(action: AlterAction) -> str:
    match action:
        case AddColumn(column, if_not_exists):
            exists = "IF NOT EXISTS" if if_not_exists else ""
            return _join("ADD COLUMN", exists, _column(column), "PRIMARY KEY" if column.primary_key else "")
        case RenameColumn(old, new):
            return f"RENAME COLUMN {print_name(old)} TO {print_name(new)}"
        case DropColumn(name, if_exists):
            return _join("DROP COLUMN", "IF EXISTS" if if_exists else "", print_name(name))
        case RetypeColumn(name, dtype):
            return f"ALTER COLUMN {print_name(name)} TYPE {type_name(dtype)}"
        case SetDefault(name, value):
            default = "DROP DEFAULT" if value is None else f"SET DEFAULT {sql_of(value)}"
            return f"ALTER COLUMN {print_name(name)} {default}"
        case SetOptions(settings):
            return f"SET {print_settings(settings).removeprefix('WITH ')}"
        case RenameTable(name):
            return f"RENAME TO {print_name(name)}"
        case SwapTable(name):
            return f"SWAP WITH {print_name(name)}"


@print_statement.register
def _(s: Insert) -> str:
    columns = f"({_names(s.columns)})" if s.columns else ""
    rows = ", ".join(f"({', '.join(sql_of(v) for v in row)})" for row in s.values)
    what = print_query(s.query) if s.query else f"VALUES {rows}"
    tail = (print_settings(s.settings), _errors(s.errors_into))
    return _join("INSERT INTO", print_name(s.target), columns, what, *tail)


@print_statement.register
def _(s: Upsert) -> str:
    columns = f"({_names(s.columns)})" if s.columns else ""
    tail = (print_settings(s.settings), _errors(s.errors_into))
    on = f"ON {sql_of(s.on)}"
    return _join("UPSERT INTO", print_name(s.target), columns, print_query(s.query), on, *tail)


def _source(s: Update | Delete) -> str:
    """Returns ``[FROM source joins] [WHERE …] [RETURNING … INTO …] …``, which UPDATE and DELETE share."""
    source = f"FROM {sql_of(s.source)}" if s.source else ""
    joins = "".join(sql_of(j) if sql_of(j).startswith(",") else f" {sql_of(j).strip()}" for j in s.joins)
    where = f"WHERE {sql_of(s.where)}" if s.where else ""
    returning = ""
    if s.returning and s.returning_into:
        values = ", ".join(sql_of(r) for r in s.returning)
        returning = f"RETURNING {values} INTO {print_name(s.returning_into)}"
    return _join(source + joins, where, returning, print_settings(s.settings), _errors(s.errors_into))


def _target(s: Update | Delete) -> str:
    return _join(print_name(s.target), f"AS {print_name(s.alias)}" if s.alias else "")


@print_statement.register
def _(s: Update) -> str:
    assignments = ", ".join(f"{print_name(name)} = {sql_of(value)}" for name, value in s.assignments)
    return _join("UPDATE", _target(s), "SET", assignments, _source(s))


@print_statement.register
def _(s: Delete) -> str:
    return _join("DELETE FROM", _target(s), _source(s))


@print_statement.register
def _(s: Merge) -> str:
    return _join(sql_of(s.expression), print_settings(s.settings), _errors(s.errors_into))


@print_statement.register
def _(s: Select) -> str:
    return _join(print_query(s.query), print_settings(s.settings), _errors(s.errors_into))


@print_statement.register
def _(s: Begin) -> str:
    return "BEGIN"


@print_statement.register
def _(s: Commit) -> str:
    return "COMMIT"


@print_statement.register
def _(s: Rollback) -> str:
    return "ROLLBACK"


@print_statement.register
def _(s: Show) -> str:
    return f"SHOW {s.what.upper()}"


@print_statement.register
def _(s: ShowCreate) -> str:
    return f"SHOW CREATE TABLE {print_name(s.name)}"


@print_statement.register
def _(s: Describe) -> str:
    return _join("DESCRIBE", "EXTENDED" if s.extended else "", print_name(s.name))


@print_statement.register
def _(s: DescribeHistory) -> str:
    return f"DESCRIBE HISTORY {print_name(s.name)}"


@print_statement.register
def _(s: Optimize) -> str:
    return f"OPTIMIZE {print_name(s.name)}"


@print_statement.register
def _(s: Vacuum) -> str:
    return _join("VACUUM", print_name(s.name), "" if s.hours is None else f"RETAIN {s.hours} HOURS")


@print_statement.register
def _(s: Explain) -> str:
    form = f"FORMAT {s.format.upper()}" if s.format != "text" else ""
    return _join("EXPLAIN", "ANALYZE" if s.analyze else "", form, print_statement(s.statement))


@print_statement.register
def _(s: NamedQuery) -> str:
    return f"QUERY {print_name(s.name)}"


@print_statement.register
def _(s: ExplainUpgrade) -> str:
    return f"EXPLAIN {'SHADOW ' if s.shadow else ''}UPGRADE {_text(s.path)}"


@print_statement.register
def _(s: ControlQuery) -> str:
    return f"{s.action.upper()} QUERY {print_name(s.name)}"


@print_statement.register
def _(s: Replay) -> str:
    return f"REPLAY {print_name(s.name)}"
