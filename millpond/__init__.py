"""Streaming SQL with live tables, on Spark Structured Streaming."""

from __future__ import annotations

from millpond.app.app import App
from millpond.errors import Error
from millpond.query.result import Result
from millpond.query.table import Table

__version__ = "0.1.0"
__all__ = ["App", "Error", "Result", "Table", "__version__"]
