"""Runs test cases that are files: SQL, input rows, expected rows.

    === a match brings the columns of the table

    --- app
    CREATE STREAM trades (id STRING, user_id BIGINT);
    CREATE TABLE users (user_id BIGINT PRIMARY KEY, name STRING);
    SELECT t.id, u.name FROM trades t JOIN users u ON t.user_id = u.user_id;

    --- insert users
    user_id | name
    1       | Alice

    --- send trades
    id | user_id
    T1 | 1

    --- emits
    id | name
    T1 | Alice

`cases` has the whole form, `values` the text of a value, `run` the modes in which a case runs.
"""

from __future__ import annotations

from millpond.testing.cases import Case, parse_cases, read_cases
from millpond.testing.run import CaseFailed, Mode, modes_of, run_case

__all__ = ["Case", "CaseFailed", "Mode", "modes_of", "parse_cases", "read_cases", "run_case"]
