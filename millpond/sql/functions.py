"""The names of all functions of the language; ``functions.txt`` beside this file lists them."""

from __future__ import annotations

from functools import cache
from importlib.resources import files


@cache
def known_functions() -> frozenset[str]:
    """Lower-case names of Spark's built-in functions and of our own."""
    text = files("millpond.sql").joinpath("functions.txt").read_text(encoding="utf-8")
    return frozenset(text.split())
