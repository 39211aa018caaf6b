"""Declares the options of statements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import get_args

from millpond.engine_rule import SMALL_BYTES, SMALL_ROWS, Engine
from millpond.errors import InvalidOption, NotSupported
from millpond.options import Option, Setting, find_option, read_options
from millpond.sql.catalog import Limits

ON_CONFLICT = Option(
    "on.conflict",
    "choice",
    "What INSERT does with a primary key that is there, or comes twice. upsert: the last row wins. error: the"
    " statement fails and changes nothing.",
    default="upsert",
    choices=("upsert", "error"),
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
        "live: the table follows its inputs. once: it is a copy, made when the statement runs.",
        default="live",
        choices=("live", "once"),
    ),
    ON_CONFLICT,
)

RUNNING_OPTIONS: tuple[Option, ...] = (
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
    ),
    Option(
        "engine",
        "choice",
        "The engine that evaluates batches. auto: a batch of at most 'process.max.rows' rows and"
        " 'process.max.bytes' bytes is evaluated in process, a larger one by Spark. spark: all by Spark. process: all"
        " in process. Without this option the app's setting applies.",
        choices=get_args(Engine),
    ),
    Option(
        "process.max.rows",
        "int",
        "The maximum rows of a batch that is evaluated in process.",
        SMALL_ROWS,
        least=0,
    ),
    Option(
        "process.max.bytes", "size", "The maximum bytes of a batch that is evaluated in process.", SMALL_BYTES
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

BATCH_OPTIONS: tuple[Option, ...] = (
    Option(
        "batch.max.rows",
        "int",
        "The maximum number of rows in one batch, if the source can tell.",
        1_000_000,
    ),
    Option(
        "batch.max.time",
        "duration",
        "The target for the maximum time of a batch: the number of rows adapts to it.",
        2.0,
    ),
)
"""Options of every stream: how much of it is read at once."""

STREAM_OPTIONS: tuple[Option, ...] = (
    Option(
        "connector", "text", "The URI that the stream reads. Without it programs send rows to the stream."
    ),
    *BATCH_OPTIONS,
)


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


LATER: Mapping[str, str] = {
    "retention": "store rows for a limited time",
    "ttl": "store rows for a limited time",
}
"""Options of the language that this version cannot support: they are refused by name."""


def named(settings: Sequence[Setting], name: str) -> Setting | None:
    return next((s for s in settings if s.name.lower() == name), None)
