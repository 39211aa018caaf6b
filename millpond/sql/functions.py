"""The functions of the language, each with its class; ``functions.txt`` beside this file lists them.

=========  =====================================================================================  ====================
class      what the value depends on                                                              who may call it
=========  =====================================================================================  ====================
pure       on the arguments alone                                                                 everybody
volatile   also on the time, on chance, or on how rows are divided                                everybody
session    on who runs the app, where, and with which version                                     not HTTP clients
outside    on files, the network, the JVM, the environment or logs                                nobody
=========  =====================================================================================  ====================
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Literal, cast, get_args

FunctionClass = Literal["pure", "volatile", "session", "outside"]


@cache
def function_classes() -> Mapping[str, FunctionClass]:
    """The class of each function by its lower-case name: Spark's built-in functions and our own."""
    text = files("millpond.sql").joinpath("functions.txt").read_text(encoding="utf-8")
    found: dict[str, FunctionClass] = {}
    for line in text.splitlines():
        name, kind = line.split()
        if kind not in get_args(FunctionClass):
            raise ValueError(f'functions.txt: "{kind}" is no class of a function')
        found[name] = cast(FunctionClass, kind)
    return MappingProxyType(found)


@cache
def known_functions() -> frozenset[str]:
    """Lower-case names of Spark's built-in functions and of our own."""
    return frozenset(function_classes())
