"""Where tables keep their rows. A backend is one file here, found by its name."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from millpond.errors import NotSupported, UnknownName, did_you_mean
from millpond.tables.base import Backend, Snapshot

__all__ = ["Backend", "Snapshot", "backend_names", "find_backend"]

_PLANNED = ("cache", "sqlite", "postgresql", "mysql", "mongodb", "redis", "delta", "jdbc")


def backend_names() -> dict[str, str]:
    """The file that each name of a backend stands for, its other names included, in lower case."""
    names: dict[str, str] = {}
    for module in iter_modules(__path__):
        if module.ispkg or module.name.startswith("_") or module.name == "base":
            continue
        names[module.name] = module.name
        backend = _load(module.name)
        names.update({alias.lower(): module.name for alias in backend.aliases})
    return names


def find_backend(name: str) -> type[Backend]:
    """The backend of that name, ignoring case. Raises UnknownName, or NotSupported for one that is not
    there yet.
    """
    names = backend_names()
    found = names.get(name.lower())
    if found is not None:
        return _load(found)
    if name.lower() in _PLANNED:
        raise NotSupported(
            f'the table extension "{name}" is not in this version', hint=f"known: {', '.join(sorted(names))}"
        )
    known = ", ".join(sorted(names))
    near = did_you_mean(name, names)
    raise UnknownName(
        f'there is no table extension "{name}"',
        hint=f"{near} (known: {known})" if near else f"known: {known}",
    )


def _load(name: str) -> type[Backend]:
    backend = import_module(f"{__name__}.{name}").BACKEND
    assert isinstance(backend, type) and issubclass(backend, Backend)
    return backend
