"""Declares the options of a cache."""

from __future__ import annotations

from millpond.options import Option

OPTIONS = (
    Option(
        "max_size",
        "int",
        "The number of rows in the cache; the least recently used one is evicted first.",
        default=10_000,
    ),
    Option(
        "max_memory",
        "size",
        "The number of bytes that the rows may use, including 200 for each row in addition to its values.",
        live=True,
    ),
    Option(
        "ttl",
        "duration",
        "How long a row stays in the cache after it was written or read from the backend.",
        aliases=("retention",),
    ),
    Option(
        "cache.over",
        "secret",
        "The backend behind the cache: the URL that its option `url` takes, or its name.",
    ),
    Option("table", "text", "The name of the table in the backend. By default its name here."),
    Option(
        "cdc",
        "bool",
        "Whether to follow the change log of the database behind the cache: rows that other "
        "programs change leave the cache.",
        default=False,
    ),
)
