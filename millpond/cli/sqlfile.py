"""Reads the SQL file that a command names."""

from __future__ import annotations

from pathlib import Path

from millpond.errors import FileMissing


def read_sql(path: Path) -> str:
    """Returns the text of the file. One that does not exist or is not text is an error of the app: exit code 1."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise FileMissing(f'there is no file "{path}"', hint="check the path") from None
    except UnicodeDecodeError:
        raise FileMissing(f'the file "{path}" is not UTF-8 text', hint="save it as UTF-8") from None
    except OSError as error:
        raise FileMissing(
            f'the file "{path}" cannot be read: {error.strerror}', hint="check the path"
        ) from None
