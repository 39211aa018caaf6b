"""Makes up SELECT statements of every shape over a few small tables.

``statement(seed)`` is the same for the same seed. What runs the statements and what compares the answers stands beside
this package, so that anything that evaluates queries can be tried with it.
"""

from __future__ import annotations

from tests.oracle.shapes.choices import Choices, minimise
from tests.oracle.shapes.lookups import INDEXES, lookup_statement
from tests.oracle.shapes.query import Statement, statement, stream_statement
from tests.oracle.shapes.tables import SCHEMAS, World

__all__ = [
    "INDEXES",
    "SCHEMAS",
    "Choices",
    "Statement",
    "World",
    "lookup_statement",
    "minimise",
    "statement",
    "stream_statement",
]
