"""Parses what follows the name in ALTER TABLE."""

from __future__ import annotations

from millpond.sql.parser.columns import ColumnParser
from millpond.sql.statements import (
    AddColumn,
    AlterAction,
    DropColumn,
    RenameColumn,
    RenameTable,
    RetypeColumn,
    SetDefault,
    SetOptions,
    SwapTable,
)


def parse_action(parser: ColumnParser) -> AlterAction:
    """Parses what is to change."""
    if parser.match_words("ADD"):
        parser.match_words("COLUMN")
        if_not_exists = parser.match_words("IF", "NOT", "EXISTS")
        return AddColumn(parser.parse_column_def(), if_not_exists)
    if parser.match_words("RENAME", "TO"):
        return RenameTable(parser.parse_name("the name of a table"))
    if parser.match_words("RENAME"):
        parser.match_words("COLUMN")
        old = parser.parse_column_name()
        parser.expect_words("TO")
        return RenameColumn(old, parser.parse_column_name())
    if parser.match_words("DROP"):
        parser.match_words("COLUMN")
        if_exists = parser.match_words("IF", "EXISTS")
        return DropColumn(parser.parse_column_name(), if_exists)
    if parser.match_words("ALTER"):
        parser.match_words("COLUMN")
        column = parser.parse_column_name()
        if parser.match_words("DROP", "DEFAULT"):
            return SetDefault(column)
        if parser.match_words("SET", "DEFAULT"):
            return SetDefault(column, parser.expect_expression("a value"))
        parser.match_words("SET", "DATA")
        parser.expect_words("TYPE")
        return RetypeColumn(column, parser.parse_data_type())
    if parser.match_words("SET"):
        return SetOptions(tuple(parser.wrapped(parser.parse_setting)))
    if parser.match_words("SWAP", "WITH"):
        return SwapTable(parser.parse_name("the name of a table"))
    parser.fail_expected(
        "ADD COLUMN, RENAME COLUMN, DROP COLUMN, ALTER COLUMN, RENAME TO, SET (…) or SWAP WITH"
    )
