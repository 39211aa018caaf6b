"""Reads the SQL file of an app."""

from __future__ import annotations

import os
from pathlib import Path

from millpond.errors import FileMissing


def sql_of(path_or_sql: str | os.PathLike[str] | None) -> str | None:
    """Returns the SQL of an app, which is given as the path of a file or as a text."""
    if path_or_sql is None:
        return None
    is_path = isinstance(path_or_sql, os.PathLike) or (
        "\n" not in path_or_sql and ";" not in path_or_sql and path_or_sql.strip().lower().endswith(".sql")
    )
    return read_sql_file(Path(path_or_sql)) if is_path else str(path_or_sql)


def read_sql_file(path: Path) -> str:
    """Returns the text of a SQL file."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise FileMissing(f'there is no file "{path}"', hint="check the path") from None
    except (OSError, UnicodeDecodeError) as error:
        raise FileMissing(
            f'the file "{path}" cannot be read: {error}', hint="it must be UTF-8 text"
        ) from None
