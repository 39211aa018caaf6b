"""Kinds of things that are found because their file is in a folder: formats, sources, sinks."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable, Mapping
from inspect import isabstract
from typing import ClassVar, Protocol, TypeVar

from millpond.errors import NotSupported, did_you_mean

T = TypeVar("T")


def classes_in(package: str, base: type[T]) -> list[type[T]]:
    """The classes of a package's modules that are complete and derive from ``base``."""
    found: list[type[T]] = []
    for info in pkgutil.iter_modules(importlib.import_module(package).__path__):
        module = importlib.import_module(f"{package}.{info.name}")
        classes = [
            c for c in vars(module).values() if isinstance(c, type) and c.__module__ == module.__name__
        ]
        found += [c for c in classes if issubclass(c, base) and not isabstract(c)]
    return found


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
