"""Answers queries on tables without the lock of the app, so that a long one delays nobody."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from millpond.app.analyze import Analysis
from millpond.app.answers import Answers
from millpond.app.describe import Descriptions
from millpond.app.lifetime import Lifetime
from millpond.app.permissions import Permissions
from millpond.app.script import needed, raise_all
from millpond.app.text_run import TextRun
from millpond.errors import Error
from millpond.loading.loader import Loader
from millpond.loading.open_sources import Sources
from millpond.plan.connectors import Connectors
from millpond.query.result import Result
from millpond.sql import statements as st
from millpond.sql.catalog import Catalog
from millpond.sql.check import Checker
from millpond.sql.checked import Checked
from millpond.sql.outside import named_outside
from millpond.sql.text import Script
from millpond.sql.userfunctions import UserFunction
from millpond.store.store import Store, StoreSnapshot


@dataclass(frozen=True, eq=False, repr=False)
class Selects:
    """Answers queries that read nothing but tables."""

    lock: threading.RLock
    lifetime: Lifetime
    text: TextRun
    catalog: Catalog
    store: Store
    loader: Loader
    connectors: Connectors
    sources: Sources
    functions: Mapping[str, UserFunction]
    answers: Answers
    descriptions: Descriptions
    analysis: Analysis

    def answer(
        self, statements: Sequence[st.Statement], script: Script, permissions: Permissions | None
    ) -> Result | None:
        """Returns the answer of queries, or of EXPLAIN of them, that read nothing but tables which are there; None
        for any other text. They see all tables as of one commit, and names as they were then; the answer is the last
        one's."""
        if not statements or not all(_asks(s) for s in statements):
            return None
        with self.lock:
            self.lifetime.check_open()
            if self.text.transaction is not None:
                return None
            catalog, snapshots, loading = self.catalog.copy(), self.store.snapshots(), self.loader.running()
            functions, streams = dict(self.functions), dict(self.sources.values)
        checker = Checker(catalog, self.connectors, locate=script.place, functions=functions, streams=streams)
        found = [checker.check(statement) for statement in statements]
        if checker.errors:
            raise_all(checker.errors)
        checked = [c for c in found if c is not None and _reads_tables(c)]
        if len(checked) < len(statements) or loading & {n.lower() for c in checked for n in needed(c)}:
            return None
        if permissions is not None:
            permissions.checked(checked)
        return [self._answer(c, snapshots) for c in checked][-1]

    def _answer(self, checked: Checked, snapshots: StoreSnapshot) -> Result:
        try:
            statement = checked.statement
            if isinstance(statement, st.Explain) and statement.analyze:
                return Result(
                    self.analysis.analyze_query(
                        checked, lambda inner: Result(self.answers.answer(inner, snapshots))
                    )
                )
            if isinstance(statement, st.Explain):
                return Result(self.descriptions.explain(checked))
            return Result(self.answers.answer(checked, snapshots))
        except Error as error:
            error.place = error.place or checked.statement.place
            raise


def _asks(statement: st.Statement) -> bool:
    query = statement.statement if isinstance(statement, st.Explain) else statement
    return isinstance(query, st.Select) and all(n.option is not None for n in named_outside(query))


def _reads_tables(checked: Checked) -> bool:
    if checked.running or checked.live or checked.resolved is None:
        return False
    return all(i.relation.kind == "table" and i.relation.uri is None for i in checked.resolved.inputs)
