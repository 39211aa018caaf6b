"""Imports packages that only some tables and sources need."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from millpond.errors import PackageMissing


def needed(package: str, by: str, extra: str) -> Any:
    """Imports the package, or reports the command that installs it."""
    try:
        return import_module(package)
    except ImportError:
        raise PackageMissing(
            f"{by} need the package {package}", hint=f"pip install 'millpond[{extra}]'"
        ) from None
