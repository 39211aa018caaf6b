"""Streaming SQL with live tables, on Spark."""

__version__ = "0.1.0"
