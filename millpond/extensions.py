"""Finds extensions by name: sources, sinks, tables, formats and functions.

Those of this package are files in folders, with no list to edit. Those of other packages are entry points, which the
package of each declares in its ``pyproject.toml``:

    [project.entry-points."millpond.sources"]
    weather = "millpond_weather:WeatherSource"

The groups are ``millpond.sources`` and ``millpond.sinks``, by the scheme of a URI, ``millpond.tables``, by the name of
the extension, ``millpond.formats`` and ``millpond.messages``, by the name of the format, and ``millpond.functions``, by
the name in SQL. They are looked up when a name is not one of Millpond's, and imported when their own name is requested.
"""

from __future__ import annotations

import errno
import importlib
import pkgutil
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.util import find_spec
from inspect import isabstract
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol, TypeVar

from millpond.errors import BadExtension, NotSupported, did_you_mean

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

T = TypeVar("T")
Role = Literal["source", "sink", "table", "format", "message", "function"]

CONNECTORS = "millpond.connectors"
"""The package that has a folder for each outside system."""


def classes_in(package: str, base: type[T]) -> list[type[T]]:
    """Finds the complete classes of a package's modules that derive from ``base``."""
    return [c for info in _modules(package) for c in _classes(f"{package}.{info.name}", base)]


def classes_of(file: str, base: type[T]) -> list[type[T]]:
    """Finds the classes that connectors have in their files of that name."""
    return [c for module in modules_of(file).values() for c in _classes(module, base)]


@cache
def modules_of(file: str) -> Mapping[str, str]:
    """Finds the modules of that name in the folders of connectors, by the name of the folder. Imports none of them."""
    modules = {f.name: f"{CONNECTORS}.{f.name}.{file}" for f in _modules(CONNECTORS) if f.ispkg}
    return {name: module for name, module in modules.items() if find_spec(module) is not None}


def _modules(package: str) -> list[pkgutil.ModuleInfo]:
    """Lists the modules of one of our packages. pkgutil treats a folder that cannot be read as an empty one."""
    found = list(pkgutil.iter_modules(importlib.import_module(package).__path__))
    if not found:
        raise OSError(errno.EMFILE, f"the modules of {package} cannot be listed")
    return found


def _classes(name: str, base: type[T]) -> list[type[T]]:
    module = importlib.import_module(name)
    own = [c for c in vars(module).values() if isinstance(c, type) and c.__module__ == name]
    return [c for c in own if issubclass(c, base) and not isabstract(c)]


@cache
def offered(role: Role) -> Mapping[str, tuple[EntryPoint, ...]]:
    """Lists the extensions of other packages, by name in lower case. Imports nothing of them."""
    from importlib.metadata import entry_points

    found: dict[str, tuple[EntryPoint, ...]] = {}
    for point in entry_points(group=f"millpond.{role}s"):
        name = point.name.lower()
        found[name] = (*found.get(name, ()), point)
    return found


def offered_object(role: Role, name: str) -> object | None:
    """Imports what another package offers under that name; None if no package does. Raises BadExtension."""
    points = offered(role).get(name.lower(), ())
    if not points:
        return None
    if len({p.value for p in points}) > 1:
        raise BadExtension(
            f'{role} "{name.lower()}" is offered by several packages: {", ".join(_packages(points))}',
            hint="uninstall all but one of them",
        )
    try:
        found: object = points[0].load()
    except Exception as error:
        raise BadExtension(f"{what_is_offered(role, name)} cannot be imported: {error}") from error
    return found


def what_is_offered(role: Role, name: str) -> str:
    """Returns how errors name an extension of another package."""
    points = offered(role)[name.lower()]
    return f'the {role} "{name.lower()}" of package "{[*_packages(points), points[0].value][0]}"'


def _packages(points: Iterable[EntryPoint]) -> list[str]:
    return sorted({p.dist.name for p in points if p.dist is not None})


def offered_class(role: Role, name: str, base: type[T]) -> type[T] | None:
    """Imports the extension of another package with that name; None if there is none. Raises BadExtension."""
    found = offered_object(role, name)
    if found is None:
        return None
    if not (isinstance(found, type) and issubclass(found, base)):
        raise BadExtension(
            f"{what_is_offered(role, name)} is no {base.__name__}",
            hint=f"its entry point names {offered(role)[name.lower()][0].value}",
        )
    if isabstract(found):
        missing = ", ".join(sorted(getattr(found, "__abstractmethods__", ())))
        raise BadExtension(f"{what_is_offered(role, name)} is not complete: {found.__name__} lacks {missing}")
    return found


def offered_classes(role: Role, base: type[T]) -> list[type[T]]:
    """Imports all extensions of other packages that can be used."""
    found: dict[type[T], None] = {}
    for name in offered(role):
        try:
            known = offered_class(role, name, base)
        except BadExtension:
            continue  # whoever requests it by its name gets the error
        if known is not None:
            found[known] = None
    return list(found)


class HasSchemes(Protocol):
    schemes: ClassVar[tuple[str, ...]]


S = TypeVar("S", bound=HasSchemes)


def by_scheme(uri: str, role: Role, base: type[S], kinds: Iterable[type[S]], refusal: str) -> type[S]:
    """Finds the class for the scheme of a URI: one of ``kinds``, or an extension of another package. ``refusal`` is the
    message for an unknown scheme.
    """
    scheme = uri.partition(":")[0].lower()
    known: Mapping[str, type[S]] = {s: kind for kind in kinds for s in kind.schemes}
    found = known.get(scheme) or offered_class(role, scheme, base)
    if found is None:
        names = sorted({*known, *offered(role)})
        listed = "known: " + ", ".join(f"{s}://" for s in names)
        near = did_you_mean(scheme, names)
        raise NotSupported(refusal.format(scheme=scheme), hint=f"{near} ({listed})" if near else listed)
    if scheme not in found.schemes:
        raise BadExtension(
            f'the {role} "{scheme}" is {found.__name__}, whose schemes are {", ".join(found.schemes)}',
            hint=f'name the entry point "{found.schemes[0]}", or add "{scheme}" to the schemes of the class',
        )
    return found
