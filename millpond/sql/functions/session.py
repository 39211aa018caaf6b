"""What depends on who runs the app, where, and with which version."""

from __future__ import annotations

from millpond.sql.functions.base import Function

# fmt: off
FUNCTIONS: tuple[Function, ...] = (
    Function("collations", "The collations that Spark knows.", kind="session", arity="any"),
    Function("current_catalog", "The name of Spark's catalog.", "current_catalog() IS NOT NULL",
        kind="session", arity="0"),
    Function("current_database", "The name of Spark's schema.", "current_database() IS NOT NULL",
        also=("current_schema",), kind="session", arity="0"),
    Function("current_path", "The path by which Spark finds functions.", "current_path() IS NOT NULL",
        kind="session", arity="0"),
    Function("current_timezone", "The time zone of the session: UTC.", "current_timezone() = 'UTC'",
        kind="session", arity="0"),
    Function("current_user", "Who runs the app.", "current_user() IS NOT NULL", also=("user", "session_user"),
        kind="session", arity="0"),
    Function("input_file_block_length", "The length of the block of a file that Spark reads.",
        "input_file_block_length() IS NOT NULL", kind="session", arity="0"),
    Function("input_file_block_start", "The start of the block of a file that Spark reads.",
        "input_file_block_start() IS NOT NULL", kind="session", arity="0"),
    Function("input_file_name", "The name of the file that Spark reads.", "input_file_name() IS NOT NULL",
        kind="session", arity="0"),
    Function("sql_keywords", "The words of Spark's grammar.", kind="session", arity="any"),
    Function("version", "The version of Spark.", "version() IS NOT NULL", kind="session", arity="0"),
)
# fmt: on
