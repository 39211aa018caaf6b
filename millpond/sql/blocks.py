"""Checks BEGIN … COMMIT in a text: what is allowed between them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sqlglot import exp

from millpond.errors import NotSupported, SqlError, without_passwords
from millpond.options import find_option
from millpond.sql import statements as st
from millpond.sql.catalog import Relation
from millpond.sql.checked import Checked
from millpond.sql.events import column, named
from millpond.sql.joins import JoinedStreams
from millpond.sql.options import RUNNING_OPTIONS
from millpond.sql.resolve import Input, Resolved

_ALLOWED = (st.Insert, st.Update, st.Delete, st.Merge, st.Upsert, st.Truncate, st.Select, st.Explain)


def grouped(statements: Sequence[st.Statement]) -> list[st.Statement]:
    """Returns the statements with each BEGIN … COMMIT as one; a block that is not closed is left as it is."""
    found: list[st.Statement] = []
    inside: list[st.Statement] | None = None
    for s in statements:
        if isinstance(s, st.Begin):
            found += inside or []
            inside = [s]
        elif inside is None:
            found.append(s)
        else:
            inside.append(s)
            if isinstance(s, st.Commit | st.Rollback):
                found.append(_block(inside))
                inside = None
    return found + (inside or [])


def _block(statements: list[st.Statement]) -> st.Block:
    begin, *inner, end = statements
    assert isinstance(begin, st.Begin) and isinstance(end, st.Commit | st.Rollback)
    text = ";\n".join(s.text for s in statements)
    return st.Block(begin, tuple(inner), end, place=begin.place, text=text)


def whole_stream(stream: Relation) -> Resolved:
    """Returns the unchanged rows of a stream: what a block that it drives reads of it."""
    alias = exp.TableAlias(this=exp.to_identifier(stream.name, quoted=True))
    outputs: list[exp.Expr] = [named(column(stream.name, c), c.name) for c in stream.schema]
    table = exp.Table(this=exp.to_identifier("__t0"), alias=alias)
    select = exp.Select(expressions=outputs, from_=exp.From(this=table))
    return Resolved(select, stream.schema, (Input("__t0", stream.name, stream),))


def stream_of(checked: Checked) -> Relation | None:
    """Returns the stream that drives a statement."""
    inputs = (i for query in checked.queries for i in query.inputs)
    return next((i.relation for i in inputs if i.relation.running), None)


def _shown(table: Relation) -> str:
    return "the journal" if table.stored_in is None else without_passwords(table.stored_in)


def _own_clause(s: st.Statement) -> str | None:
    """Returns the clause of a statement that only a separate query can have."""
    if getattr(s, "errors_into", None):
        return "ERROR INTO"
    settings = getattr(s, "settings", ())
    found = next((x.name for x in settings if find_option(RUNNING_OPTIONS, x.name)), None)
    return f"option {found!r}" if found else None


class Blocks:
    """Follows the statements of one text. ``inside`` says that a transaction is already open."""

    def __init__(self, inside: bool = False):
        self._outer = inside
        self._begin: st.Statement | None = None
        self._changes: Relation | None = None
        self._stream: Relation | None = None
        self._once = False

    def check(self, s: st.Statement, checked: Checked | None) -> Iterator[SqlError]:
        """Yields what is wrong with a statement at this place. ``checked`` is None if it is itself wrong."""
        if isinstance(s, st.Begin):
            if self._begin is not None or self._outer:
                yield SqlError(
                    "a transaction is open already", hint="COMMIT or ROLLBACK it first", place=s.place
                )
            self._begin, self._changes, self._stream, self._once = s, None, None, False
        elif isinstance(s, st.Commit | st.Rollback):
            if self._begin is None:
                name = type(s).__name__.upper()
                where = (
                    "end the transaction by its methods"
                    if self._outer
                    else "write BEGIN before its statements"
                )
                yield SqlError(f"{name} without BEGIN", hint=where, place=s.place)
            elif isinstance(s, st.Rollback) and self._stream is not None:
                yield SqlError(
                    "a block that a stream drives ends with COMMIT: each batch is committed", place=s.place
                )
            self._begin = None
        elif self._begin is not None or self._outer:
            yield from self._inside(s, checked)

    def _inside(self, s: st.Statement, checked: Checked | None) -> Iterator[SqlError]:
        if not isinstance(s, _ALLOWED):
            yield NotSupported(
                "a transaction holds INSERT, UPDATE, DELETE, MERGE, UPSERT and SELECT on tables only",
                hint="put this statement before BEGIN or after COMMIT: it cannot be rolled back",
                place=s.place,
            )
        elif checked is not None and checked.running:
            yield from self._running(s, checked)
        elif checked is not None:
            self._once = True
            if self._stream is not None:
                yield self._mixed(s)
            if isinstance(s, st.Insert) and checked.changes is not None and checked.changes.kind == "stream":
                yield NotSupported(
                    "INSERT INTO a stream in a transaction is not supported yet",
                    hint="put it after COMMIT",
                    place=s.place,
                )
        yield from self._one_place(s, checked)

    def _running(self, s: st.Statement, checked: Checked) -> Iterator[SqlError]:
        """Checks a statement that a stream drives: with the others of its block it is one pipeline."""
        stream = stream_of(checked)
        assert stream is not None
        first = self._stream = self._stream or stream
        if self._outer:
            yield NotSupported(
                "a transaction of a program holds no running statements",
                hint="write BEGIN … COMMIT around them in the SQL of the app",
                place=s.place,
            )
        elif not isinstance(s, st.WRITES):
            yield NotSupported(
                "a running block holds INSERT, UPDATE, DELETE, MERGE and UPSERT",
                hint="put this statement before BEGIN or after COMMIT",
                place=s.place,
            )
        elif own := _own_clause(s):
            yield NotSupported(
                f"{own} in a block is not supported yet",
                hint="the block is one query, with one error table",
                place=s.place,
            )
        elif self._once:
            yield self._mixed(s)
        elif isinstance(stream, JoinedStreams):
            yield NotSupported(
                "a block reads one stream, not a join of streams",
                hint="make one of them first: CREATE STREAM s AS SELECT … FROM a JOIN b ON …",
                place=s.place,
            )
        elif first.name.lower() != stream.name.lower():
            yield NotSupported(
                f'the statements of a block read one stream: this one reads "{stream.name}", the first "{first.name}"',
                hint="make a block for each stream, or bring both into one stream with INSERT INTO",
                place=s.place,
            )

    def _mixed(self, s: st.Statement) -> SqlError:
        return SqlError(
            "a block is driven by a stream or runs once: its statements cannot be of both kinds",
            hint="name the stream in FROM, or put the statements that run once before BEGIN",
            place=s.place,
        )

    def _one_place(self, s: st.Statement, checked: Checked | None) -> Iterator[SqlError]:
        """Checks that all tables that a block changes can change in one commit."""
        target = None if checked is None else checked.changes
        sends = target is not None and target.kind == "stream"
        if sends and self._changes is not None and self._changes.stored_in is not None:
            yield NotSupported(
                f'table "{self._changes.name}" is in {_shown(self._changes)}: its commit cannot hold rows of a stream',
                place=s.place,
            )
        if target is None or target.kind != "table":
            return
        first = self._changes = self._changes or target
        if first.stored_in != target.stored_in:
            yield NotSupported(
                f'a transaction cannot change table "{first.name}", which is in {_shown(first)}, and table'
                f' "{target.name}", which is in {_shown(target)}: a crash in between would leave one behind',
                hint="change them in transactions of their own, or store both in one database, or both in memory",
                place=s.place,
            )

    def finish(self) -> Iterator[SqlError]:
        """Yields what is wrong at the end of the text."""
        if self._begin is not None:
            yield SqlError(
                "BEGIN without COMMIT or ROLLBACK in the same text",
                hint="a block stands in one text; programs use app.begin_transaction()",
                place=self._begin.place,
            )
