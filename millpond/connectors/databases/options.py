"""The options that sources in databases share."""

from __future__ import annotations

from millpond.options import Option

ROWS_OPTIONS: tuple[Option, ...] = (
    Option("table", "text", "the table or view to read: name, or schema.name"),
    Option("schema", "text", "the schema of the table, where it is not in its name"),
    Option("where", "text", "a condition, in the SQL of the database, that rows must meet there"),
    Option("query", "text", "a SELECT in the SQL of the database, in the place of a table"),
    Option(
        "query.params",
        "text",
        "what the ? of the query stand for: a value, or several as a JSON array; they are bound",
    ),
    Option("order.by", "text", "the order in which rows are read: columns, each with ASC or DESC"),
    Option("limit", "int", "the most rows that are read", least=0),
)
POLLING_OPTIONS: tuple[Option, ...] = (
    Option(
        "poll.interval",
        "duration",
        "how often to look for what is new; without it, and without 'cdc', a table is read once",
    ),
    Option(
        "incremental.column",
        "text",
        "a column of times or numbers that grows with every change: only rows from its last value on are read."
        " Without it all rows are read each time, and compared",
    ),
    Option(
        "poll.query",
        "text",
        "a SELECT that gives what is new, in the place of the table; its ? is the last value of"
        " 'incremental.column' that was seen",
    ),
    Option(
        "compare.interval",
        "duration",
        "how often all rows are read and compared as well, which finds those that were deleted",
    ),
)
CAPTURE_OPTIONS: tuple[Option, ...] = (
    Option("cdc", "bool", "whether the table follows the changes that the database logs", False),
    Option(
        "cdc.start",
        "text",
        "where changes are read from when no rows are loaded before: earliest, latest, or a place as the database"
        " writes it",
        "latest",
        aliases=("cdc.start.position",),
    ),
    Option(
        "initial.load", "choice", "whether the rows that are there are loaded first", "full", ("full", "none")
    ),
    Option(
        "cdc.format",
        "choice",
        "what a stream of changes gives: rows as they become, or Debezium's envelopes",
        "native",
        ("native", "debezium"),
    ),
)
LOGIN_OPTIONS: tuple[Option, ...] = (
    Option("host", "text", "the host, where the URI names none"),
    Option("port", "int", "the port, where the URI names none", least=1),
    Option("database", "text", "the database, where the URI names none"),
    Option("username", "text", "who logs in, where the URI does not say", aliases=("user",)),
    Option("password", "secret", "the password of who logs in"),
    Option(
        "ssl.mode",
        "choice",
        "how the connection is secured: not, if the server can, always, with a certificate of a known authority,"
        " with one of this host",
        None,
        ("disable", "prefer", "require", "verify-ca", "verify-full"),
    ),
    Option("ssl.ca", "text", "a file with the certificates of authorities that are trusted"),
    Option("ssl.cert", "text", "a file with the certificate of who logs in"),
    Option("ssl.key", "text", "a file with the key of that certificate"),
)
CONNECTION_OPTIONS: tuple[Option, ...] = (
    Option("connect.timeout", "duration", "how long to wait for a connection", 10.0),
    Option(
        "retry.timeout", "duration", "how long a lost connection is tried again before that is an error", 10.0
    ),
    Option("query.timeout", "duration", "how long a query may take in the database; without it, any time"),
    Option(
        "pool.size",
        "int",
        "the most connections at a time, besides one for each reader",
        5,
        aliases=("connection.pool.size",),
        least=1,
    ),
    Option(
        "pool.max.idle",
        "int",
        "the most connections that are kept open while nothing is read; with 0 their number has no limit",
        2,
        least=0,
    ),
    Option("pool.validation.query", "text", "what is asked of a kept connection before it is used again"),
    Option("fetch.size", "int", "the rows that are fetched at a time", 10_000, least=1),
    Option("batch.size", "int", "the rows that are handed on at a time", 65_536, least=1),
    Option(
        "prefetch.count", "int", "the batches that each reader has read before they are asked for", 2, least=0
    ),
    Option("parallel.readers", "int", "how many connections read ranges of the key at once", 1, least=1),
    Option(
        "transaction.isolation",
        "choice",
        "what a reader sees of changes while it reads",
        "read committed",
        ("read uncommitted", "read committed", "repeatable read", "serializable"),
    ),
)
SOCKET_OPTION = Option(
    "socket.timeout", "duration", "how long an answer of the server may be outstanding; without it, any time"
)
SHARED_OPTIONS = (*ROWS_OPTIONS, *POLLING_OPTIONS, *CONNECTION_OPTIONS)
"""What every database has. Those with hosts have ``LOGIN_OPTIONS`` and ``SOCKET_OPTION`` too, those with a log
``CAPTURE_OPTIONS``."""
