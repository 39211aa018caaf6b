"""Runs queries without the lock of the app, so that a long one delays no other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from millpond.app.analyze import Analysis
from millpond.app.describe import Descriptions
from millpond.app.finite_queries import Answers
from millpond.app.permissions import Permissions
from millpond.connectors.source import find_source
from millpond.errors import Closed, Error
from millpond.loading.loader import Loader
from millpond.loading.open_sources import Sources
from millpond.plan.connectors import Connectors
from millpond.query.result import Result
from millpond.sql import statements as st
from millpond.sql.catalog import Catalog, CatalogVersion
from millpond.sql.check import Checker
from millpond.sql.checked import Checked, CheckedExplain, CheckedSelect
from millpond.sql.outside import Named, named_outside
from millpond.sql.statement_text import point_at_word
from millpond.sql.text import Script
from millpond.sql.userfunctions import UserFunction
from millpond.statements.lifetime import Lifetime
from millpond.statements.script import raise_all
from millpond.statements.text_run import TextRun
from millpond.store.snapshot import StoreSnapshot
from millpond.store.store import Store


@dataclass(frozen=True, eq=False, repr=False)
class Selects:
    """Runs queries that end."""

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
        """Returns the result of queries that end, or of EXPLAIN of them; None for any other text. They see all tables
        as of one commit, and the catalog as of then. The result is that of the last query.
        """
        if not statements or not all(map(_asks, statements)) or self.text.in_block():
            return None
        while True:
            self.lifetime.check_open()
            version, loading, snapshots = self._now()
            with self.connectors.apart() as connectors:
                sources = self.sources.apart(connectors)
                checker = Checker(
                    Catalog(version),
                    connectors,
                    locate=script.place,
                    functions=dict(self.functions),
                    streams=sources.values,
                )
                found = [checker.check(statement) for statement in statements]
                if checker.errors:
                    raise_all(checker.errors)
                checked = [c for c in found if isinstance(c, CheckedSelect | CheckedExplain) and _ends(c)]
                if len(checked) < len(statements):
                    return None
                names = {n for c in checked for n in c.needs}
                if not {n.lower() for n in names} & loading:
                    if permissions is not None:
                        permissions.checked(checked)
                    try:
                        return [self._answer(c, snapshots, sources) for c in checked][-1]
                    except Closed:
                        if self.catalog.version is version:
                            raise
                        continue  # a table was dropped meanwhile
            self.loader.wait_filled(names)

    def _now(self) -> tuple[CatalogVersion, set[str], StoreSnapshot]:
        """Returns the catalog, the tables that are still loading, and a snapshot of all tables, as of one commit."""
        while True:
            version, loading = self.catalog.version, self.loader.filled()
            snapshots = self.store.snapshots()
            if self.catalog.version is version:
                return version, loading, snapshots

    def _answer(
        self, checked: CheckedSelect | CheckedExplain, snapshots: StoreSnapshot, sources: Sources
    ) -> Result:
        answers = replace(self.answers, sources=sources)
        descriptions = replace(self.descriptions, sources=sources)

        def run(query: Checked) -> Result:
            assert isinstance(query, CheckedSelect)
            return Result(answers.answer(query, snapshots, in_turn=True))

        try:
            if isinstance(checked, CheckedSelect):
                return run(checked)
            if not checked.statement.analyze:
                return Result(descriptions.explain(checked))
            analysis = replace(self.analysis, descriptions=descriptions)
            return Result(analysis.analyze_query(checked, run))
        except Error as error:
            point_at_word(error, checked.statement)
            raise


def _asks(statement: st.Statement) -> bool:
    """Returns whether a statement is a query that may end."""
    query = statement.statement if isinstance(statement, st.Explain) else statement
    return isinstance(query, st.Select) and not any(map(_is_endless, named_outside(query)))


def _is_endless(named: Named) -> bool:
    try:
        return named.option is None and find_source(named.text).endless is True
    except Error:
        return False  # the check reports the error


def _ends(checked: Checked) -> bool:
    if checked.running or checked.live:
        return False
    relations = [i.relation for query in checked.queries for i in query.inputs]
    return all(r.kind == "source" or (r.kind == "table" and r.uri is None) for r in relations)
