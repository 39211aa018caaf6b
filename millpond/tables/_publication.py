"""Shows readers of several memory tables the same commit: they see old rows until all tables have the new ones."""

from __future__ import annotations

from typing import Any


class Publication:
    """Is shared by the tables of a commit. Setting ``done`` shows the new rows of all of them in one step."""

    __slots__ = ("done",)

    def __init__(self) -> None:
        self.done = False


class Unsettled(dict[tuple[str, ...], Any]):
    """Is in the place of settled indexes while readers see old rows: stores none."""

    def __setitem__(self, columns: tuple[str, ...], index: Any) -> None:
        return None
