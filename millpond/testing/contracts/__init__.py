"""Declares the contracts of extensions, as tests: a package with a source, a sink, a table, a format or a function of
its own runs them over it.
"""

from __future__ import annotations

from millpond.testing.contracts.format import FormatContract, FormatPlace
from millpond.testing.contracts.function import FunctionContract
from millpond.testing.contracts.messages import MessagesContract, MessagesPlace
from millpond.testing.contracts.rows import TablePlace
from millpond.testing.contracts.sink import SinkContract, SinkPlace
from millpond.testing.contracts.source import SourceContract, SourcePlace
from millpond.testing.contracts.table import TableContract

__all__ = [
    "FormatContract",
    "FormatPlace",
    "FunctionContract",
    "MessagesContract",
    "MessagesPlace",
    "SinkContract",
    "SinkPlace",
    "SourceContract",
    "SourcePlace",
    "TableContract",
    "TablePlace",
]
