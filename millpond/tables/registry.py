"""Finds the backends of tables by their names, in this package and in others."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

from millpond.errors import UnknownName, did_you_mean
from millpond.extensions import modules_of, offered, offered_class, offered_classes
from millpond.tables.base import Backend

_OTHERS = ("base", "bounded_rows", "flushed_table", "versioned_table", "registry", "ttl")
"""Files of this folder that are no backends."""


def backend_names() -> dict[str, str]:
    """Returns the backend of this package for each name, its aliases included, in lower case."""
    names: dict[str, str] = {}
    for name in _modules():
        names[name] = name
        names.update({alias.lower(): name for alias in _load(name).aliases})
    return names


@cache
def _modules() -> dict[str, str]:
    """Returns the modules of backends, by name: files of this folder, and files ``table`` of connectors."""
    files = [m.name for m in iter_modules([str(Path(__file__).parent)]) if not m.ispkg]
    own = {f: f"{__package__}.{f}" for f in files if not f.startswith("_") and f not in _OTHERS}
    return {**own, **modules_of("table")}


def every_backend() -> list[type[Backend]]:
    """Returns every backend of this package and of others."""
    return [*(_load(name) for name in _modules()), *offered_classes("table", Backend)]


def find_backend(name: str) -> type[Backend]:
    """Returns the backend of that name, ignoring case. Raises UnknownName."""
    if name.lower() in _modules():
        return _load(name.lower())  # the others are not loaded for their aliases
    names = backend_names()
    found = names.get(name.lower())
    if found is not None:
        return _load(found)
    other = offered_class("table", name, Backend)
    if other is not None:
        return other
    every = sorted({*names, *offered("table")})
    known = ", ".join(every)
    near = did_you_mean(name, every)
    raise UnknownName(
        f'there is no table extension "{name}"',
        hint=f"{near} (known: {known})" if near else f"known: {known}",
    )


def backend_of_scheme(scheme: str) -> str:
    """Returns the name of the backend whose URLs have that scheme; the scheme itself if none says so."""
    if scheme.lower() in _modules():
        return scheme
    return next((name for name in _modules() if scheme.lower() in _load(name).schemes), scheme)


def _load(name: str) -> type[Backend]:
    backend = import_module(_modules()[name]).BACKEND
    assert isinstance(backend, type) and issubclass(backend, Backend)
    return backend
