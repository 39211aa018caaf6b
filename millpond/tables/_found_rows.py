"""Declares the rows that a lookup by key finds."""

from __future__ import annotations

from typing import Any, Protocol

import pyarrow as pa


class Found(Protocol):
    """Returns found rows in the form that a program or a pipeline needs."""

    def records(self) -> list[dict[str, Any]]: ...
    def table(self) -> pa.Table: ...
    def __len__(self) -> int: ...
