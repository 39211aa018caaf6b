"""Reads Spark's own file of settings, to add to lists in it what would otherwise replace them."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from millpond.engine import internals

_LISTS = ("spark.jars", "spark.jars.packages", "spark.sql.extensions")


def with_defaults(settings: Mapping[str, str]) -> dict[str, str]:
    """Returns our settings, with the jars and extensions of the file: Spark takes only ours, if there are any."""
    own = spark_defaults()
    lists = {name: f"{own[name]},{settings[name]}" for name in _LISTS if name in own and name in settings}
    return {**settings, **lists}


def spark_defaults() -> dict[str, str]:
    """Returns what ``spark-defaults.conf`` sets."""
    folder = os.environ.get("SPARK_CONF_DIR") or internals.spark_home() / "conf"
    try:
        text = Path(folder, "spark-defaults.conf").read_text(encoding="utf-8")
    except OSError:
        return {}
    lines = (line.strip() for line in text.splitlines())
    pairs = (re.split(r"\s*=\s*|\s+", line, maxsplit=1) for line in lines if line and line[0] not in "#!")
    return {pair[0]: pair[1] for pair in pairs if len(pair) == 2}
