"""Declares the options that database sources share."""

from __future__ import annotations

from millpond.options import Option

ROWS_OPTIONS: tuple[Option, ...] = (
    Option("table", "text", "the table or view to read: name, or schema.name"),
    Option("schema", "text", "the schema of the table, if it is not part of its name"),
    Option("where", "text", "a condition in the SQL of the database, which the database evaluates"),
    Option("query", "text", "a SELECT in the SQL of the database, in place of a table"),
    Option(
        "query.params",
        "text",
        "the values that are bound to the ? of the query: one value, or a JSON array",
    ),
    Option("order.by", "text", "the order in which rows are read: columns, with ASC or DESC"),
    Option("limit", "int", "the maximum number of rows to read", least=0),
)
POLLING_OPTIONS: tuple[Option, ...] = (
    Option(
        "poll.interval",
        "duration",
        "how often to poll for new rows; without it, and without 'cdc', a table is read once",
    ),
    Option(
        "incremental.column",
        "text",
        "a column of times or numbers that grows with every change: a poll reads only rows from "
        "its last value on. Without it each poll reads all rows and compares them",
    ),
    Option(
        "poll.query",
        "text",
        "a SELECT that returns new rows, in place of the table; its ? is the last value of "
        "'incremental.column'",
    ),
    Option(
        "compare.interval",
        "duration",
        "how often to also read and compare all rows, which finds deleted rows",
    ),
)
CAPTURE_OPTIONS: tuple[Option, ...] = (
    Option("cdc", "bool", "whether to follow the change log of the database", False),
    Option(
        "cdc.start",
        "text",
        "where to start without an initial load: earliest, latest, or a position as the database writes it",
        "latest",
        aliases=("cdc.start.position",),
    ),
    Option("initial.load", "choice", "whether to load the existing rows first", "full", ("full", "none")),
    Option(
        "cdc.format",
        "choice",
        "the rows of a stream of changes: the new rows, or Debezium envelopes",
        "native",
        ("native", "debezium"),
    ),
)
LOGIN_OPTIONS: tuple[Option, ...] = (
    Option("host", "text", "the host, if the URI has none"),
    Option("port", "int", "the port, if the URI has none", least=1),
    Option("database", "text", "the database, if the URI has none"),
    Option("username", "text", "the user name, if the URI has none", aliases=("user",)),
    Option("password", "secret", "the password, if the URI has none"),
    Option(
        "ssl.mode",
        "choice",
        "use of TLS: disable, prefer (if the server supports it), require, verify-ca (with a "
        "certificate of a trusted authority), verify-full (with one for this host)",
        None,
        ("disable", "prefer", "require", "verify-ca", "verify-full"),
    ),
    Option("ssl.ca", "text", "a file with the certificates of trusted authorities"),
    Option("ssl.cert", "text", "a file with the client certificate"),
    Option("ssl.key", "text", "a file with the key of the client certificate"),
)
CONNECTION_OPTIONS: tuple[Option, ...] = (
    Option("connect.timeout", "duration", "the time to open a connection", 10.0),
    Option("retry.timeout", "duration", "how long a lost connection is retried before it is an error", 10.0),
    Option(
        "query.timeout", "duration", "the time limit for a query in the database; without it there is none"
    ),
    Option(
        "pool.size",
        "int",
        "the maximum number of connections, in addition to one for each reader",
        5,
        aliases=("connection.pool.size",),
        least=1,
    ),
    Option(
        "pool.max.idle",
        "int",
        "the maximum number of idle connections; 0 for no limit",
        2,
        least=0,
    ),
    Option(
        "pool.validation.query", "text", "the query that tests an idle connection before it is used again"
    ),
    Option("fetch.size", "int", "the number of rows to fetch at a time", 10_000, least=1),
    Option("batch.size", "int", "the number of rows in one batch from a reader", 65_536, least=1),
    Option("prefetch.count", "int", "the number of batches that each reader reads ahead", 2, least=0),
    Option(
        "parallel.readers",
        "int",
        "the number of connections that read ranges of the key in parallel",
        1,
        least=1,
    ),
    Option(
        "transaction.isolation",
        "choice",
        "the isolation level of the reading transactions",
        "read committed",
        ("read uncommitted", "read committed", "repeatable read", "serializable"),
    ),
)
SOCKET_OPTION = Option(
    "socket.timeout", "duration", "the time to wait for data from the server; without it there is no limit"
)
SHARED_OPTIONS = (*ROWS_OPTIONS, *POLLING_OPTIONS, *CONNECTION_OPTIONS)
"""The options of every database. Those with hosts have ``LOGIN_OPTIONS`` and ``SOCKET_OPTION`` too, those with a
changelog ``CAPTURE_OPTIONS``.
"""
