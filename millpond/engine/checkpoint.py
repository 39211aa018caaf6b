"""Spark's checkpoint beside the journal's position."""

from __future__ import annotations

import json
from pathlib import Path

from millpond.changes import Position


def is_ahead(directory: Path, position: Position | None) -> bool:
    """Whether the checkpoint has batches as done that the journal does not have: it is of a run whose commits are
    gone. Spark would go on behind them; without the checkpoint the query goes on from the position."""
    if position is None:
        return True
    done = max((int(p.name) for p in (directory / "commits").glob("*") if p.name.isdigit()), default=-1)
    if done < 0:
        return False
    same = json.loads((directory / "metadata").read_text())["id"] == position.checkpoint
    return not same or done > position.batch
