"""Kinds of things that are found because their file is in a folder: formats, sources, sinks, tables."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.util import find_spec
from inspect import isabstract
from typing import ClassVar, Protocol, TypeVar

from millpond.errors import NotSupported, did_you_mean

T = TypeVar("T")

CONNECTORS = "millpond.connectors"
"""The package that has a folder for each system outside."""


def classes_in(package: str, base: type[T]) -> list[type[T]]:
    """Finds the classes of a package's modules that are complete and derive from ``base``."""
    modules = pkgutil.iter_modules(importlib.import_module(package).__path__)
    return [c for info in modules for c in _classes(f"{package}.{info.name}", base)]


def classes_of(role: str, base: type[T]) -> list[type[T]]:
    """Finds the classes that connectors have in their files of that name: ``source``, ``sink``."""
    return [c for module in modules_of(role).values() for c in _classes(module, base)]


@cache
def modules_of(role: str) -> Mapping[str, str]:
    """Finds the modules of that name in the folders of connectors, by the name of the folder. Imports none of them."""
    folders = pkgutil.iter_modules(importlib.import_module(CONNECTORS).__path__)
    modules = {f.name: f"{CONNECTORS}.{f.name}.{role}" for f in folders if f.ispkg}
    return {name: module for name, module in modules.items() if find_spec(module) is not None}


def _classes(name: str, base: type[T]) -> list[type[T]]:
    module = importlib.import_module(name)
    own = [c for c in vars(module).values() if isinstance(c, type) and c.__module__ == name]
    return [c for c in own if issubclass(c, base) and not isabstract(c)]


class HasSchemes(Protocol):
    schemes: ClassVar[tuple[str, ...]]


S = TypeVar("S", bound=HasSchemes)


def by_scheme(uri: str, kinds: Iterable[type[S]], refusal: str) -> type[S]:
    """The one of ``kinds`` for the scheme of a URI. ``refusal`` is said of a scheme that none of them has."""
    scheme = uri.partition(":")[0].lower()
    known: Mapping[str, type[S]] = {s: kind for kind in kinds for s in kind.schemes}
    if scheme in known:
        return known[scheme]
    listed = "known: " + ", ".join(f"{s}://" for s in sorted(known))
    near = did_you_mean(scheme, known)
    raise NotSupported(refusal.format(scheme=scheme), hint=f"{near} ({listed})" if near else listed)
