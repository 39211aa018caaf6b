"""Reads the files of Spark's SQL tests out of their jar."""

from __future__ import annotations

import re
import zipfile
from functools import cache
from pathlib import Path

from millpond.engine import jars

JAR = "org.apache.spark:spark-sql_2.13:4.2.0:tests"
INPUTS, DATA = "sql-tests/inputs/", "test-data/postgresql/"
LEFT_OUT = re.compile(r"^((udf|udaf|udtf|scripting|nonansi|timestampNTZ)/|charvarchar$)")
"""Files that are others again with functions of Spark's test code or with other settings; scripts; tables of CHAR(n),
which are of STRING here."""
_STATEMENT = re.compile(r"(?<=[^\\]);")
_TOGETHER = re.compile(r"^--QUERY-DELIMITER-START$(.*?)^--QUERY-DELIMITER-END$", re.MULTILINE | re.DOTALL)


def jar() -> Path:
    """Where the jar is, once it is fetched."""
    return jars.cache() / "spark-tests-4.2.0" / "spark-sql_2.13-4.2.0-tests.jar"


@cache
def _texts() -> dict[str, str]:
    assert jar().is_file(), "Spark's SQL tests are not there: run make setup"
    with zipfile.ZipFile(jar()) as opened:
        return {
            name.removeprefix(INPUTS).removesuffix(".sql"): opened.read(name).decode()
            for name in sorted(opened.namelist())
            if name.startswith(INPUTS) and name.endswith(".sql")
        }


def data(name: str) -> bytes:
    """A file of rows that the tests have beside them."""
    with zipfile.ZipFile(jar()) as opened:
        return opened.read(f"{DATA}{name}.data")


def names() -> list[str]:
    """The files, but for those that only run others with other settings."""
    return [n for n, text in _texts().items() if not LEFT_OUT.match(n) and "--IMPORT" not in text]


def statements(name: str) -> list[str]:
    """The statements of a file, cut as Spark's own runner cuts them."""
    text, found, at = _texts()[name], [], 0
    for whole in _TOGETHER.finditer(text):
        found += _cut(text[at : whole.start()])
        found += [part for part in [_plain(whole[1]).rstrip("; \n")] if part]
        at = whole.end()
    return found + _cut(text[at:])


def _cut(text: str) -> list[str]:
    parts = (part.strip().replace("\\;", ";") for part in _STATEMENT.split(_plain(text)))
    return [part for part in parts if part]


def _plain(text: str) -> str:
    """The text without lines of comments."""
    return "\n".join(line for line in text.splitlines() if not line.strip().startswith("--")).strip()
