"""Queries on tables, answered without the lock of the app: one that takes long keeps nobody else waiting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from millpond.app import describe
from millpond.app.analyze import answer_analyzed
from millpond.app.gate import Gate
from millpond.app.script import needed, raise_all
from millpond.errors import Error
from millpond.query.result import Result
from millpond.sql import statements as st
from millpond.sql.check import Checker
from millpond.sql.checked import Checked
from millpond.sql.outside import named_outside
from millpond.sql.text import Script

if TYPE_CHECKING:
    from millpond.app.app import App


def answer_query(
    app: App, statements: Sequence[st.Statement], script: Script, gate: Gate | None
) -> Result | None:
    """The answer of a query, or of EXPLAIN of one, that reads nothing but tables which are there; None for any other
    text. It sees all tables as of one commit, and names as they were then."""
    if len(statements) != 1:
        return None
    (statement,) = statements
    query = statement.statement if isinstance(statement, st.Explain) else statement
    if not isinstance(query, st.Select) or any(n.option is None for n in named_outside(query)):
        return None
    with app._lock:
        app._check_open()
        if app._transaction is not None:
            return None
        catalog, moment, loading = app._catalog.copy(), app._store.moment(), app._loader.running()
        functions, streams = dict(app._functions), dict(app._source_values)
    checker = Checker(catalog, app._rooms, locate=script.place, functions=functions, streams=streams)
    checked = checker.check(statement)
    if checker.errors:
        raise_all(checker.errors)
    if checked is None or not _reads_tables(checked) or loading & {name.lower() for name in needed(checked)}:
        return None
    if gate is not None:
        gate.checked([checked])
    try:
        if isinstance(statement, st.Explain) and statement.analyze:
            return Result(answer_analyzed(app, checked, lambda inner: Result(app._answer(inner, moment))))
        if isinstance(statement, st.Explain):
            return Result(describe.explain(app, checked))
        return Result(app._answer(checked, moment))
    except Error as error:
        error.place = error.place or statement.place
        raise


def _reads_tables(checked: Checked) -> bool:
    if checked.running or checked.live or checked.resolved is None:
        return False
    return all(i.relation.kind == "table" and i.relation.uri is None for i in checked.resolved.inputs)
