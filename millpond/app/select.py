"""Queries on tables, answered without the lock of the app: one that takes long keeps nobody else waiting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from millpond.app import describe
from millpond.app.analyze import answer_analyzed
from millpond.app.permissions import Gate
from millpond.app.script import needed, raise_all
from millpond.errors import Error
from millpond.query.result import Result
from millpond.sql import statements as st
from millpond.sql.check import Checker
from millpond.sql.checked import Checked
from millpond.sql.outside import named_outside
from millpond.sql.text import Script
from millpond.store.store import Moment

if TYPE_CHECKING:
    from millpond.app.app import App


def answer_query(
    app: App, statements: Sequence[st.Statement], script: Script, gate: Gate | None
) -> Result | None:
    """The answer of queries, or of EXPLAIN of them, that read nothing but tables which are there; None for any other
    text. They see all tables as of one commit, and names as they were then; the answer is the last one's."""
    if not statements or not all(_asks(s) for s in statements):
        return None
    with app._lock:
        app._check_open()
        if app._transaction is not None:
            return None
        catalog, moment, loading = app._catalog.copy(), app._store.moment(), app._loader.running()
        functions, streams = dict(app._functions), dict(app._sources.values)
    checker = Checker(catalog, app._rooms, locate=script.place, functions=functions, streams=streams)
    found = [checker.check(statement) for statement in statements]
    if checker.errors:
        raise_all(checker.errors)
    checked = [c for c in found if c is not None and _reads_tables(c)]
    if len(checked) < len(statements) or loading & {n.lower() for c in checked for n in needed(c)}:
        return None
    if gate is not None:
        gate.checked(checked)
    return [_answer(app, c, moment) for c in checked][-1]


def _asks(statement: st.Statement) -> bool:
    query = statement.statement if isinstance(statement, st.Explain) else statement
    return isinstance(query, st.Select) and all(n.option is not None for n in named_outside(query))


def _answer(app: App, checked: Checked, moment: Moment) -> Result:
    try:
        statement = checked.statement
        if isinstance(statement, st.Explain) and statement.analyze:
            return Result(answer_analyzed(app, checked, lambda inner: Result(app._answer(inner, moment))))
        if isinstance(statement, st.Explain):
            return Result(describe.explain(app, checked))
        return Result(app._answer(checked, moment))
    except Error as error:
        error.place = error.place or checked.statement.place
        raise


def _reads_tables(checked: Checked) -> bool:
    if checked.running or checked.live or checked.resolved is None:
        return False
    return all(i.relation.kind == "table" and i.relation.uri is None for i in checked.resolved.inputs)
