"""Compares a statement of a state directory with the one of a changed file by what both mean, and says what becomes of
what is stored. Nothing here reads or changes anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from millpond.options import Option, find_option
from millpond.plan.plans import GroupsPlan
from millpond.plan.statement_plan import own_target, plan_statement
from millpond.sql.aggregate.reuse import reused_columns
from millpond.sql.catalog import Relation
from millpond.sql.checked import (
    Checked,
    CheckedAs,
    CheckedCapture,
    CheckedCreate,
    CheckedQuery,
    CheckedRunnable,
    CheckedStream,
    CheckedStreamAs,
    CheckedTable,
    CheckedTableAs,
    CheckedView,
)
from millpond.sql.checked_commands import CheckedIndex
from millpond.sql.meaning import OptionsOf, described, meaning, same_schema
from millpond.sql.options import RUNNING_OPTIONS
from millpond.sql.printer import print_name
from millpond.sql.written_rows import around_of, queries_of
from millpond.store.catalog import table_options, without_secrets
from millpond.types import Schema
from millpond.upgrade.columns import ValueOf, compare_columns
from millpond.upgrade.decisions import Altered, Difference, Kept, Rebuilt, Refused, Regrouped

_FREE = frozenset(o.name for o in RUNNING_OPTIONS if o.free)
"""Options of running statements that do not decide which rows they have made."""


@dataclass(frozen=True)
class Stored:
    """Describes what is stored of a statement: its columns and options now, the statement as it was checked, None if it
    cannot be any more, and whether there are rows. ``outside`` says that a database has them, ``failed`` that rows of
    its query have failed, or may have.
    """

    kind: str
    name: str
    schema: Schema
    options: Mapping[str, Any]
    checked: Checked | None
    rows: bool
    outside: bool = False
    renamed: bool = False
    failed: bool = False


@dataclass(frozen=True)
class Context:
    """Contains what a comparison needs beside the statements: the options of sources before and after, those of the
    table's backend, the names of streams that are rebuilt and of tables whose rows are made in another way, and the
    values of new columns.
    """

    options_before: OptionsOf
    options_after: OptionsOf
    declared: tuple[Option, ...]
    rebuilt: frozenset[str]
    remade: frozenset[str]
    value_of: ValueOf


def compare(before: Stored, after: Checked, context: Context) -> Difference:
    """Returns what becomes of what is stored if the file has ``after`` in the place of the statement."""
    if isinstance(after, CheckedIndex):
        return Altered("it is made again")
    if not isinstance(after, CheckedCreate):
        return Kept()
    if after.relation.kind != before.kind or isinstance(after, CheckedAs) != _has_query(before):
        return _another_kind(before, after)
    match after:
        case CheckedView():
            same = same_query(before.checked, after, context) and same_schema(
                before.schema, after.relation.schema
            )
            return Kept("it means the same") if same else Altered("nothing is stored of it")
        case CheckedTable():
            return _table(before, after, context)
        case CheckedStream():
            return _stream(before, after, context)
        case CheckedTableAs() | CheckedStreamAs():
            return _derived(before, after, context)


def _has_query(before: Stored) -> bool:
    return isinstance(before.checked, CheckedAs)


def _another_kind(before: Stored, after: CheckedCreate) -> Difference:
    filled = "filled by a query" if isinstance(after, CheckedAs) else "not filled by a query"
    what = f"{after.relation.kind}, {filled}" if after.relation.kind == before.kind else after.relation.kind
    return Refused(
        f"the {before.kind} becomes a {what}",
        f"DROP {before.kind.upper()} {print_name(before.name)} before, or give it another name in the file",
    )


def _table(before: Stored, after: CheckedTable, context: Context) -> Difference:
    wanted = without_secrets(after.table_options)
    options = _changed_options(before, wanted, context.declared)
    if isinstance(options, Refused) and before.rows:
        return options
    columns = compare_columns(before.schema, after.relation.schema, context.value_of)
    if not before.rows and not before.outside:
        same = described(before.schema) == described(after.relation.schema) and not options
        return Kept("it means the same") if same else Rebuilt("it has no rows")
    if isinstance(options, Refused):
        return options
    if isinstance(columns, Altered) and before.outside and (len(columns.changes) != 1 or options):
        return Refused(
            "several things change of a table that a database stores",
            "change one at a time: a column, or options",
        )
    match columns, options:
        case Kept(), ():
            return Kept("it means the same")
        case Kept(), names:
            return Altered(f"it has other options: {', '.join(names)}")
        case Altered(why, changes, loses), names if names:
            return Altered(f"{why}, it has other options: {', '.join(names)}", changes, loses)
    return columns


def _changed_options(
    before: Stored, wanted: Mapping[str, Any], declared: tuple[Option, ...]
) -> tuple[str, ...] | Refused:
    """Returns the names of options that change and may; else why one may not."""
    ignored = {"primary.key", "null_keys"} | ({"table"} if before.renamed else set())
    there = before.options
    names = sorted(
        n for n in wanted.keys() | there.keys() if wanted.get(n) != there.get(n) and n not in ignored
    )
    for name in names:
        option = find_option(declared, name)
        stays = option is None or name == "extension" or (before.outside and not (option.live or option.free))
        if stays:
            return Refused(
                f"option '{name}' changes, and what is stored depends on it",
                "leave the option as it was, or give the table another name in the file",
            )
        if name == "ttl" and not there.get("ttl") and not wanted.get("ttl.column"):
            return Refused(
                "option 'ttl' is new, and the times of the rows that are there are not known",
                "name a column with the time: 'ttl.column'",
            )
    return tuple(names)


def _stream(before: Stored, after: CheckedStream, context: Context) -> Difference:
    known, made = before.checked, after.relation
    if isinstance(after, CheckedCapture) or isinstance(known, CheckedCapture):
        if (
            isinstance(known, CheckedCapture)
            and _same_source(known, after, context)
            and known.relation == made
        ):
            return Kept("it means the same")
        return Refused("it follows the changes of a database", _drop_first(before))
    if not isinstance(known, CheckedStream):
        return Refused("it cannot be compared with the one of the file", _drop_first(before))
    if (known.relation.uri is None) != (made.uri is None):
        return Refused("it begins, or ends, to read a connector", _drop_first(before))
    if made.uri is None:
        if _plain(before.schema) != _plain(made.schema):
            if not before.rows:
                return Rebuilt("it has no rows")
            return Refused(
                "it has rows with the columns that it had",
                "give the new stream another name in the file: CREATE STREAM … AS SELECT … FROM this one",
            )
    elif not _same_source(known, after, context) or _plain(before.schema) != _plain(made.schema):
        return Rebuilt("it reads its source differently")
    same = known.relation.limits == made.limits and known.relation.retention == made.retention
    same = same and repr(known.relation.watermark) == repr(made.watermark)
    return Kept("it means the same") if same else Altered("it has other options")


def _derived(before: Stored, after: CheckedTableAs | CheckedStreamAs, context: Context) -> Difference:
    """Compares what a query fills."""
    known = before.checked
    assert isinstance(known, CheckedAs)
    if any(i.relation.captured for i in (*known.inputs, *after.inputs)):
        same = same_query(known, after, context) and same_schema(before.schema, after.relation.schema)
        return (
            Kept("it means the same")
            if same
            else Refused("it follows the changes of a database", _drop_first(before))
        )
    reads = {n.lower() for n in after.reads}
    again, remade = sorted(reads & context.rebuilt), sorted(reads & context.remade)
    if after.form is not None and remade:
        return Refused(follows(remade[0]), _drop_first(before))
    options = _changed_options(before, without_secrets(table_options(after)), context.declared)
    if before.kind == "table" and isinstance(options, Refused):
        return options
    moved = tuple(n for n in options if n != "refresh") if not isinstance(options, Refused) else ()
    why = None
    if again:
        why = f'it reads "{again[0]}", which is rebuilt'
    elif not same_query(known, after, context):
        why = "its query is another"
    elif not same_schema(before.schema, after.relation.schema):
        why = "its columns are others"
    elif _telling(known) != _telling(after) or (not isinstance(options, Refused) and "refresh" in options):
        why = "its options are others"
    if why is None:
        if (
            moved
            or known.query_options != after.query_options
            or _limits(known.relation) != _limits(after.relation)
        ):
            return Altered("it has other options")
        if after.running and remade:
            return Kept(f'rows that are there have the values that "{remade[0]}" had before')
        return Kept("it means the same")
    if after.form is not None or known.form is not None:
        return Refused(f"{why}, and its rows are the changes of a table", _drop_first(before))
    if before.outside:
        return Refused(f"{why}, and a database stores its rows", _drop_first(before))
    whole = not again and not options and not before.failed and around_of(known) == around_of(after)
    columns = _state_columns(known, after, context) if whole else None
    return Rebuilt(why) if columns is None else Regrouped(columns)


def _state_columns(before: CheckedAs, after: CheckedAs, context: Context) -> tuple[str, ...] | None:
    """Returns the columns of the state of a live aggregate that another one needs; None if it needs more."""
    if (
        not isinstance(after, CheckedTableAs)
        or after.relation.ttl is not None
        or not after.relation.schema.key
    ):
        return None
    if not before.running or not after.running or _telling(before) != _telling(after):
        return None
    plans = [plan_statement(c, "", own_target(c)) for c in (before, after)]
    groups = [p.aggregation for p in plans if isinstance(p, GroupsPlan)]
    if len(groups) != 2:
        return None
    return reused_columns(groups[0], groups[1], context.options_before, context.options_after)


def same_query(before: Checked | None, after: Checked, context: Context) -> bool:
    """Returns whether two statements write the same rows of the same inputs."""
    if not isinstance(before, CheckedQuery) or type(before) is not type(after):
        return False
    if around_of(before) != around_of(after):
        return False
    one = [meaning(q, context.options_before) for q in queries_of(before)]
    return one == [meaning(q, context.options_after) for q in queries_of(after)]


def follows(table: str) -> str:
    """Returns why a statement cannot go on that writes the changes of a table."""
    return f'it writes the changes of "{table}", whose rows would be others without a change'


def _same_source(before: CheckedStream, after: CheckedStream, context: Context) -> bool:
    one, other = before.relation, after.relation
    return one.uri == other.uri and context.options_before(one) == context.options_after(other)


def _telling(checked: CheckedRunnable) -> dict[str, Any]:
    return {name: value for name, value in checked.query_options.items() if name not in _FREE}


def _limits(relation: Relation) -> tuple[object, ...]:
    return relation.limits, relation.retention, relation.ttl


def _plain(schema: Schema) -> list[tuple[str, object, bool]]:
    return [(c.name.lower(), c.type, c.nullable) for c in schema if not c.hidden]


def _drop_first(before: Stored) -> str:
    return (
        f"DROP {before.kind.upper()} {print_name(before.name)} with the old file, then start with the new one"
    )
