"""Declares the handler of a checked statement."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

import pyarrow as pa

from millpond.query.result import Result
from millpond.sql.checked import Checked
from millpond.store.undo import Undo

C = TypeVar("C", bound=Checked)
Handler = Callable[[Any, Undo], Result]
Handlers = Mapping[type[Checked], Handler]
NOTHING = pa.table({})


def handle(kind: type[C], run: Callable[[C, Undo], Result]) -> tuple[type[Checked], Handler]:
    """Returns the handler of a kind of statements, by that kind."""
    return kind, run


class WithTypes(Protocol):
    """Returns a statement with the types that only Spark's analyser knows."""

    def __call__(self, checked: C, /) -> C: ...
