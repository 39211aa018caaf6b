"""Runs streaming SQL with live tables: large batches on Spark, small ones in the process."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from millpond.version import __version__

if TYPE_CHECKING:
    from millpond.app.app import App as App
    from millpond.errors import Error as Error
    from millpond.query.result import Result as Result
    from millpond.query.table import Table as Table

__all__ = ["App", "Error", "Result", "Table", "__version__"]

_HOMES = {
    "App": "millpond.app.app",
    "Error": "millpond.errors",
    "Result": "millpond.query.result",
    "Table": "millpond.query.table",
}


def __getattr__(name: str) -> object:
    """Loads public names at first use: Spark's workers import this package for one subpackage of it."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
