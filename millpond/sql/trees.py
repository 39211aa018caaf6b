"""Finds the expression trees of a statement."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from sqlglot import exp

from millpond.errors import Place


def trees_in(value: Any) -> Iterator[exp.Expr]:
    """Yields the trees in a statement, at any depth, as parsed: does not search the views that it names."""
    if isinstance(value, exp.Expr):
        yield value
    elif isinstance(value, tuple | list):
        for item in value:
            yield from trees_in(item)
    elif is_dataclass(value) and not isinstance(value, Place | type):
        for field in fields(value):
            yield from trees_in(getattr(value, field.name))
