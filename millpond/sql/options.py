"""Declares the options of statements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast, get_args

from millpond.engine_rule import SMALL_BYTES, SMALL_ROWS, Engine
from millpond.errors import InvalidOption, NotSupported
from millpond.options import Option, Retention, Setting, find_option, read_options
from millpond.sql.catalog import Limits, Ttl

ON_CONFLICT = Option(
    "on.conflict",
    "choice",
    "What INSERT does with a primary key that is there, or comes twice. upsert: the last row wins. error: the"
    " statement fails and changes nothing.",
    default="upsert",
    choices=("upsert", "error"),
    live=True,
)

COMMON_TABLE_OPTIONS: tuple[Option, ...] = (
    Option("extension", "text", "The backend that stores the rows.", default="memory"),
    Option(
        "primary.key",
        "text",
        "The key columns of CREATE TABLE … AS, separated by commas; '' for none: every row of a topic whose"
        " messages have keys is then appended.",
    ),
    Option(
        "refresh",
        "choice",
        "auto: the table follows its inputs, by their changes or by evaluating its query again, whichever is cheaper."
        " incremental: by changes; refused if a part of the query cannot be kept so, and evaluated again only after"
        " changes that are too many or that operators cannot follow. full: the query is evaluated"
        " again after each change. live: as auto. once: it is a copy, made when the statement runs.",
        default="auto",
        choices=("auto", "incremental", "full", "live", "once"),
    ),
    Option(
        "consistency",
        "choice",
        "When a table that follows tables changes. after: after each commit of its inputs, which does not wait for it."
        " commit: in that commit, so that a reader sees both or neither; whoever writes to the inputs waits for it, and"
        " an error in its query refuses the commit.",
        default="after",
        choices=("after", "commit"),
    ),
    Option(
        "state.max_memory",
        "size",
        "The bytes that the state of a table that follows tables by changes may take in memory. If it grows beyond it,"
        " the table is recomputed after each change until the app starts again; with 'refresh' = 'incremental' it"
        " fails. Without this option there is no limit.",
    ),
    ON_CONFLICT,
)

TTL_OPTIONS: tuple[Option, ...] = (
    Option(
        "ttl",
        "duration",
        "How long a row stays. Without it: until it is deleted.",
        aliases=("retention",),
        live=True,
    ),
    Option(
        "ttl.column",
        "text",
        "The column with the time from which 'ttl' counts; a TIMESTAMP or DATE. Without it 'ttl' counts from the last"
        " change of the row, where the backend stores it.",
    ),
)
"""Options of tables whose backend removes no rows by itself."""

RUNNING_OPTIONS: tuple[Option, ...] = (
    Option(
        "start",
        "choice",
        "Where a new query begins. earliest: at the first row that its stream keeps. latest: at its end, with rows that"
        " arrive later. Without this option the stream decides; an embedded one begins with its first row.",
        choices=("earliest", "latest"),
    ),
    Option(
        "query.name", "text", "The name of the query in SHOW QUERIES, and for PAUSE, STOP and DROP QUERY."
    ),
    Option(
        "on.error",
        "choice",
        "What happens to a row that cannot be processed. table: it goes to the error table of "
        "the query, and the query continues. fail: the query stops.",
        default="table",
        choices=("table", "fail"),
        free=True,
    ),
    Option(
        "on.miss",
        "choice",
        "What happens to a row without a match in a joined table. null: the columns of the table "
        "are NULL, as with LEFT JOIN. drop: the row is dropped, as with INNER JOIN. default: the "
        "columns have the values of 'default.<column>'. error: the row goes to the error table. "
        "fail: the query stops. retry: the row waits for a match. Without this option the kind "
        "of join decides, and rows without a match are not counted.",
        choices=("null", "drop", "default", "error", "fail", "retry"),
    ),
    Option("on.miss.timeout", "duration", "How long a row waits with 'on.miss' = 'retry'; 60s by default."),
    Option(
        "on.miss.fallback",
        "choice",
        "What happens to a row after 'on.miss.timeout', as in 'on.miss'; error by default.",
        choices=("null", "drop", "default", "error", "fail"),
    ),
    Option(
        "table.wait.timeout",
        "duration",
        "How long the query waits for its tables to be loaded before it starts without them, or, "
        "with 'on.miss' = 'fail', fails.",
        default=60.0,
        free=True,
    ),
    Option(
        "engine",
        "choice",
        "The engine that evaluates batches. auto: a batch of at most 'process.max.rows' rows and"
        " 'process.max.bytes' bytes is evaluated in process, a larger one by Spark. spark: all by Spark. process: all"
        " in process. Without this option the app's setting applies.",
        choices=get_args(Engine),
        free=True,
    ),
    Option(
        "process.max.rows",
        "int",
        "The maximum rows of a batch that is evaluated in process.",
        SMALL_ROWS,
        least=0,
        free=True,
    ),
    Option(
        "process.max.bytes",
        "size",
        "The maximum bytes of a batch that is evaluated in process.",
        SMALL_BYTES,
        free=True,
    ),
)
"""Options of every running statement."""
ENGINE_OPTIONS = ("engine", "process.max.rows", "process.max.bytes")
"""Those of them that a load of files may have too."""

SELECT_OPTIONS: tuple[Option, ...] = (
    Option(
        "op.column",
        "text",
        "The name of an additional first column with the operation of each row: insert or "
        "delete. An update is a delete of the old row and an insert of the new one. Groups of a "
        "stream are upsert, where each version replaces the previous one, and delete.",
    ),
)
"""Options of SELECT."""

CHANGES_OPTIONS: tuple[Option, ...] = (
    Option(
        "envelope",
        "choice",
        "The form of a change. rows: the row, in a database or a topic by its key, elsewhere with a first column _op"
        " (insert, update, delete). old-new: _op, and the row before and after it as old and new. debezium: Debezium's"
        " before, after, op, ts_ms and source. Databases have rows.",
        "rows",
        ("rows", "old-new", "debezium"),
    ),
)
"""Options of statements that write the changes of a table: EMIT CHANGES."""

BATCH_OPTIONS: tuple[Option, ...] = (
    Option(
        "batch.max.rows",
        "int",
        "The maximum number of rows in one batch, if the source can tell.",
        1_000_000,
        free=True,
    ),
    Option(
        "batch.max.time",
        "duration",
        "The target for the maximum time of a batch: the number of rows adapts to it. For batches that Spark evaluates "
        "it is at least four seconds, unless it is less than two.",
        2.0,
        free=True,
    ),
)
"""Options of every stream: how much of it is read at once."""

STREAM_OPTIONS: tuple[Option, ...] = (
    Option(
        "connector", "text", "The URI that the stream reads. Without it programs send rows to the stream."
    ),
    *BATCH_OPTIONS,
    Option(
        "retention",
        "duration or size",
        "How long rows are kept after they were sent, or how many bytes of the newest; for ever without it. Only for"
        " streams that the app itself stores.",
        free=True,
    ),
)


def options_of_tables(own: Sequence[Option]) -> tuple[Option, ...]:
    """Returns the options of tables whose backend declares its ``own``."""
    return (*COMMON_TABLE_OPTIONS, *own, *(() if find_option(own, "ttl") else TTL_OPTIONS))


def only_spark(why: str) -> NotSupported:
    """Returns the error of a statement with 'engine' = 'process' that only Spark can evaluate."""
    return NotSupported(
        f"only Spark can evaluate this statement ({why}), and its engine is 'process'",
        hint="use 'engine' = 'auto', or write it in another form",
    )


def limits_of(owner: str, settings: Sequence[Setting]) -> Limits:
    """Returns the limits that a stream sets for its batches. Raises InvalidOption."""
    values = read_options(owner, BATCH_OPTIONS, [x for x in settings if find_option(BATCH_OPTIONS, x.name)])
    limits = Limits(values["batch.max.rows"], values["batch.max.time"])
    if limits.rows < 1 or limits.seconds <= 0:
        wrong = "batch.max.rows" if limits.rows < 1 else "batch.max.time"
        raise InvalidOption(f'option "{wrong}" of {owner} must be greater than 0')
    return limits


def retention_of(owner: str, settings: Sequence[Setting]) -> Retention | None:
    """Returns how much a stream keeps; None for everything. Raises InvalidOption."""
    setting = named(settings, "retention")
    if setting is None:
        return None
    values = read_options(owner, STREAM_OPTIONS, [setting])
    return cast(Retention, values["retention"])


def ttl_of(values: Mapping[str, Any]) -> Ttl | None:
    """Returns how long the rows of a table with these options stay; None for ever, or if its backend sees to that."""
    seconds, column = values.get("ttl"), values.get("ttl.column")
    return Ttl(seconds, column) if seconds and "ttl.column" in values else None


def named(settings: Sequence[Setting], name: str) -> Setting | None:
    return next((s for s in settings if s.name.lower() == name), None)
