"""Finds the files that the path of a ``file://`` URI matches."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable, Iterator
from urllib.parse import unquote

from millpond.errors import InvalidOption
from millpond.formats.base import has_known_suffix

_LONE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_BRACES = re.compile(r"\{([^{}]*,[^{}]*)\}")


def path_of(uri: str) -> str:
    """Returns the path of ``file:///abs/path`` or ``file://relative/path``, made absolute. ``%20`` is a space, unless
    there is a file whose name has exactly these characters.
    """
    path = uri.partition("://")[2]
    if not path:
        raise InvalidOption(f'"{uri}" names no file', hint="file:///absolute/path or file://relative/path")
    if "%" in path and not os.path.exists(path):
        path = unquote(path, errors="strict") if _is_encoded(path) else path
    return os.path.abspath(path)


def _is_encoded(path: str) -> bool:
    """Returns whether every ``%`` begins a UTF-8 character, and none of them is a NUL."""
    try:
        return _LONE.search(path) is None and "\0" not in unquote(path, errors="strict")
    except UnicodeDecodeError:
        return False


def is_pattern(path: str) -> bool:
    return not os.path.exists(path) and (glob.has_magic(path) or _BRACES.search(path) is not None)


def matching_files(path: str, *, any_suffix: bool = False) -> list[str]:
    """Returns the files of a path, directory or pattern (``*``, ``**``, ``?``, ``[…]``, ``{a,b}``), sorted by name.

    An existing path is never treated as a pattern. A directory means the files in it that have a known suffix, or any.
    Names that begin with ``.`` or ``_`` are left out unless the pattern begins so.
    """
    if os.path.isfile(path):
        return [path]
    if os.path.isdir(path):
        return sorted(
            entry.path
            for entry in os.scandir(path)
            if entry.name[0] not in "._" and (any_suffix or has_known_suffix(entry.name)) and entry.is_file()
        )
    found: set[str] = set()
    for pattern in expand_braces(path):
        marked = os.path.basename(pattern).startswith("_")
        matches = glob.glob(pattern, recursive=True)
        found.update(f for f in matches if marked or not os.path.basename(f).startswith("_"))
    return _each_once(f for f in found if os.path.isfile(f))


def _each_once(paths: Iterable[str]) -> list[str]:
    """Returns the paths without those that lead to a file of another one through links; of these the shortest stays, a
    file rather than a link to it.
    """
    kept: dict[str, str] = {}
    for path in sorted(paths, key=lambda p: (os.path.islink(p), p.count(os.sep), p)):
        kept.setdefault(os.path.realpath(path), path)
    return sorted(kept.values())


def expand_braces(pattern: str) -> Iterator[str]:
    """Expands ``x.{a,b}`` to ``x.a`` and ``x.b``; braces may be nested."""
    match = _BRACES.search(pattern)
    if match is None:
        yield pattern
        return
    for choice in match[1].split(","):
        yield from expand_braces(pattern[: match.start()] + choice + pattern[match.end() :])
