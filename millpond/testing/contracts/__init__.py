"""The contracts of extensions, as tests: a package that has a source or a table of its own runs them over it."""

from __future__ import annotations

from millpond.testing.contracts.rows import TablePlace
from millpond.testing.contracts.source import SourceContract, SourcePlace
from millpond.testing.contracts.table import TableContract

__all__ = ["SourceContract", "SourcePlace", "TableContract", "TablePlace"]
