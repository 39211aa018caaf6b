"""Decides from what time on the rows of a table count as old."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def goes_by_changes(values: Mapping[str, Any]) -> bool:
    """Returns whether the rows of a table with these options leave some time after their last change. The option
    'ttl' of a backend that has no 'ttl.column' is its own.
    """
    return bool(values.get("ttl")) and "ttl.column" in values and not values["ttl.column"]
