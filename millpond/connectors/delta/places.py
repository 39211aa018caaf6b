"""Says where the Delta tables of tables are, and which places are taken in this process."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import threading
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from millpond.connectors.delta.client import place_of
from millpond.errors import AlreadyExists, InvalidOption, without_passwords

_FOLDER = "delta"
"""The folder in the state directory that has the tables without a ``path``."""
_GONE = ".gone-"
"""How the folders begin that are being removed."""
_LONGEST = 120
_TAKEN: set[str] = set()
_TAKING = threading.Lock()


def place_for(name: str, values: Mapping[str, Any], home: Path | None) -> str:
    """Returns where the Delta table of a table is; ``anchor`` has the absolute path as of CREATE TABLE."""
    known, folder = values.get("anchor") or {}, values.get("table")
    if values.get("path"):
        if not known and folder is not None:
            raise InvalidOption(
                f"table \"{name}\" has the options 'path' and 'table': each says where its rows are",
                hint="leave one of them out: 'table' is for a folder in the state directory",
            )
        return str(known.get("path") or place_of(str(values["path"])))
    if home is None:
        raise InvalidOption(f'table "{name}" needs a folder', hint="WITH ('path' = 'lake/t')")
    if (
        not known
        and folder is not None
        and (folder.strip() in ("", ".", "..") or re.search(r"[/\\]", folder))
    ):
        raise InvalidOption(
            f"table \"{name}\": option 'table' is the name of a folder in the state directory, not {folder!r}",
            hint="a folder elsewhere is a 'path': WITH ('path' = '…')",
        )
    return str(own_folder(home, str(folder or name)))


def own_folder(home: Path, name: str) -> Path:
    """Returns the folder in the state directory for the table of that name, in which ``+2f`` is a character that names
    of folders do not have everywhere.
    """
    kept = "".join(
        chr(byte) if re.match(rb"[a-z0-9_-]", bytes([byte])) else f"+{byte:02x}"
        for byte in name.lower().encode("utf-8", "surrogatepass")
    )
    if len(kept) > _LONGEST:
        kept = f"{kept[:40]}+{hashlib.sha256(kept.encode()).hexdigest()}"
    folder = home.absolute() / _FOLDER / kept
    place_of(str(folder))
    return folder


def remove_folder(home: Path, folder: Path) -> None:
    """Removes a folder of ``own_folder`` in one step: whatever a kill leaves of it has another name, and goes with the
    next one that is removed.
    """
    root = home.absolute() / _FOLDER
    if folder.parent == root and not folder.is_symlink() and (folder / "_delta_log").is_dir():
        folder.rename(root / f"{_GONE}{uuid.uuid4().hex}")
    for left in root.glob(f"{_GONE}*"):
        shutil.rmtree(left, ignore_errors=True)


def take(place: str, table: str) -> None:
    """Records that a table of this process has its rows at the place. Raises AlreadyExists if another one has."""
    with _TAKING:
        if spelled(place) in _TAKEN:
            raise AlreadyExists(
                f'another table has its rows in "{without_passwords(place)}"',
                hint=f"give table \"{table}\" another place: WITH ('path' = '…')",
            )
        _TAKEN.add(spelled(place))


def leave(place: str) -> None:
    _TAKEN.discard(spelled(place))


def check_free(place: str) -> None:
    """Raises AlreadyExists if a table of this process has its rows at the place."""
    if _TAKEN and spelled(place) in _TAKEN:
        raise AlreadyExists(
            f'a table has its rows in "{without_passwords(place)}", and nothing else can write there',
            hint="INSERT INTO that table",
        )


def spelled(place: str) -> str:
    """Returns the place, spelled as all others that are the same."""
    if "://" in place:
        scheme, _, rest = place.partition("://")
        scheme = re.sub(r"(?<=\d)[an]$", "", scheme.lower())  # s3a and s3n are names that Hadoop has
        return f"{scheme}://{re.sub('/+', '/', rest).rstrip('/')}"
    return os.path.realpath(place)
