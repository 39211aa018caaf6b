"""Declares what Spark needs to read and write a system with a format of its own, and finds it.

A connector has it in its file ``spark.py``, as ``FORMAT``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module

from millpond.errors import Error
from millpond.extensions import modules_of


@dataclass(frozen=True, slots=True)
class SparkFormat:
    """Declares a format that PySpark does not include."""

    name: str
    package: str
    """What Spark downloads, with what it needs: ``group:name:version``."""
    jars: tuple[str, ...]
    """The package, and what it needs in addition to what Spark includes."""
    explain: Callable[[str], Error | None]
    """Returns the error that a person should see for the text of one of Spark's; None if it is not about this."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """What a session needs besides the jars. A format that has such settings is only there in a session that names it:
    they change what statements without it cost.
    """


@cache
def spark_formats() -> Mapping[str, SparkFormat]:
    """Returns the formats of all connectors, by name."""
    found: list[SparkFormat] = [import_module(module).FORMAT for module in modules_of("spark").values()]
    return {f.name: f for f in found}
