"""The functions of the language, each with its class and how many arguments it takes; ``functions.txt`` beside this
file lists them.

=========  =====================================================================================  ====================
class      what the value depends on                                                              who may call it
=========  =====================================================================================  ====================
pure       on the arguments alone                                                                 everybody
volatile   also on the time, on chance, or on how rows are divided                                everybody
session    on who runs the app, where, and with which version                                     not HTTP clients
outside    on files, the network, the JVM, the environment or logs                                nobody
=========  =====================================================================================  ====================

Numbers of arguments are written ``1``, ``1-2``, ``2+``, ``2,6``, ``even`` or ``any``.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Literal, cast, get_args

FunctionClass = Literal["pure", "volatile", "session", "outside"]
FOR_CLIENTS: frozenset[FunctionClass] = frozenset(("pure", "volatile"))
"""What a client over HTTP may call."""


@cache
def _listed() -> Mapping[str, tuple[FunctionClass, str]]:
    text = files("millpond.sql").joinpath("functions.txt").read_text(encoding="utf-8")
    found: dict[str, tuple[FunctionClass, str]] = {}
    for line in text.splitlines():
        name, kind, counts = line.split()
        if kind not in get_args(FunctionClass):
            raise ValueError(f'functions.txt: "{kind}" is no class of a function')
        found[name] = cast(FunctionClass, kind), counts
    return found


@cache
def function_classes() -> Mapping[str, FunctionClass]:
    """The class of each function by its lower-case name: Spark's built-in functions and our own."""
    return MappingProxyType({name: kind for name, (kind, _) in _listed().items()})


@cache
def known_functions() -> frozenset[str]:
    """Lower-case names of Spark's built-in functions and of our own."""
    return frozenset(function_classes())


def wrong_number(name: str, count: int) -> str | None:
    """What is wrong with calling a function with so many arguments; None if nothing is, or it is not known."""
    _, counts = _listed().get(name.lower(), ("pure", "any"))
    if counts == "any" or any(_holds(part, count) for part in counts.split(",")):
        return None
    return f"{name.upper()} takes {_said(counts)}, here {'is' if count == 1 else 'are'} {count or 'none'}"


def _holds(part: str, count: int) -> bool:
    if part == "even":
        return count % 2 == 0
    low, _, high = part.partition("-")
    if low.endswith("+"):
        return count >= int(low[:-1])
    return int(low) <= count <= int(high or low)


def _said(counts: str) -> str:
    if counts == "even":
        return "an even number of arguments"
    if counts == "0":
        return "no arguments"
    words = " or ".join(_part_said(part) for part in counts.split(","))
    return f"{words} argument{'' if counts == '1' else 's'}"


def _part_said(part: str) -> str:
    low, between, high = part.replace("+", " or more").partition("-")
    return f"{low} {'or' if int(high) == int(low) + 1 else 'to'} {high}" if between else low
