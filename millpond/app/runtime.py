"""Contains the parts of an app in one object."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from millpond.app.describe import Descriptions
from millpond.app.readiness import Readiness, readiness
from millpond.app.restore import Restorer
from millpond.app.send import Sender
from millpond.app.table_handles import TableHandles
from millpond.app.tail import Tails
from millpond.app.texts import OnAnswer, Texts
from millpond.changes import Offset
from millpond.clock import Clock
from millpond.engine_rule import Engine
from millpond.journal.journal import Journal
from millpond.journal.state import StateDirectory
from millpond.loading.discovered_columns import KeptColumns
from millpond.loading.followers import Followers
from millpond.loading.inputs import Inputs
from millpond.loading.loader import Loader
from millpond.loading.open_sources import Sources
from millpond.loading.progress import Load, Report
from millpond.plan.connectors import Connectors, StandIn
from millpond.plan.plans import PipelinePlan
from millpond.query.evaluate import Evaluator, Path
from millpond.query.plans import Plans
from millpond.query.result import Result
from millpond.query.table import Table
from millpond.query.transaction import Transaction
from millpond.sql.catalog import Catalog
from millpond.sql.reserved_names import is_own
from millpond.sql.userfunctions import UserFunction
from millpond.statements.lifetime import Lifetime
from millpond.statements.publications import Publications
from millpond.statements.queries import Queries
from millpond.statements.saved_statements import SavedStatements
from millpond.statements.script import Checks
from millpond.statements.secrets import Secrets
from millpond.statements.text_run import TextRun
from millpond.store.compaction import Compactor
from millpond.store.old_rows import OldRows
from millpond.store.query_states import QueryStates
from millpond.store.row_edits import RowEdits
from millpond.store.store import Store
from millpond.streaming.emitted_rows import Emitted, OnEmit
from millpond.streaming.runner import Runner
from millpond.streaming.statements import Statements
from millpond.upgrade.upgrade import Upgrades
from millpond.views.materialized_view import Views


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Settings:
    """Contains the settings that an app was opened with."""

    master: Any
    """A Spark master, or a session that the program has made."""
    store: str | None
    engine: Engine
    compact_after: int
    on_progress: Report
    on_emit: OnEmit | None
    on_answer: OnAnswer | None
    on_status: Callable[[str], None]
    path: Path
    read_only: bool
    direct: bool
    clock: Clock
    stand_in: StandIn | None
    adopted: Callable[[PipelinePlan], Offset | None]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Runtime:
    """Contains the parts of an app, for code that combines them: the app itself, the HTTP server, the command line and
    tests. No part of an app refers to it.
    """

    lock: threading.RLock
    lifetime: Lifetime
    state: StateDirectory
    journal: Journal
    store: Store
    edits: RowEdits
    compactor: Compactor
    old_rows: OldRows
    catalog: Catalog
    saved: SavedStatements
    connectors: Connectors
    sources: Sources
    inputs: Inputs
    columns: KeptColumns
    functions: dict[str, UserFunction]
    evaluator: Evaluator
    plans: Plans[Result]
    checks: Checks
    text: TextRun
    texts: Texts
    tables: TableHandles
    loads: dict[str, Load]
    loader: Loader
    followers: Followers
    statements: Statements
    runner: Runner
    views: Views
    queries: Queries
    query_states: QueryStates
    emitted: Emitted
    tails: Tails
    sender: Sender
    publications: Publications
    descriptions: Descriptions
    restorer: Restorer
    upgrades: Upgrades
    secrets: Secrets

    def table(self, name: str) -> Table:
        """Returns the table of that name, while the app is open."""
        self.lifetime.check_open()
        return self.tables.get(name)

    def table_names(self) -> list[str]:
        """Returns the names of all tables; error tables are not among them."""
        return [name for name in self.catalog.names("table") if not is_own(name)]

    def begin_transaction(self) -> Transaction:
        """Begins a transaction: changes of several tables become one commit."""
        self.lifetime.check_open()
        return Transaction(self.store, self.catalog, self.texts.run_in, self.table)

    def start(self) -> None:
        """Starts the running statements, each when its tables are loaded, and waits for all loads."""
        self.runner.starter.begin()
        self.loader.wait()
        self.runner.starter.start_new()
        self.upgrades.rebuilds.begin()

    def ready(self) -> Readiness:
        """Returns whether every table is loaded and every query runs."""
        return readiness(
            self.lifetime,
            self.store,
            self.loads,
            self.loader,
            self.followers,
            self.runner,
            self.views,
            self.queries,
            self.secrets.mask,
        )

    def drain(self, timeout: float) -> None:
        """Waits until everything that the sources held when it was called has taken effect."""
        self.lifetime.check_open()
        deadline = time.monotonic() + timeout
        self.upgrades.rebuilds.wait(timeout)
        retried, ends = -1, None
        self.followers.drain(timeout)
        # What views commit goes to changelogs, which statements read.
        while (retried, ends) != (now := (self.runner.retry(), self.store.changelogs.ends)):
            retried, ends = now
            self.runner.drain(max(0.0, deadline - time.monotonic()))
            self.views.drain(max(0.0, deadline - time.monotonic()))
        if self.old_rows.by_hand and self.old_rows.remove():
            self.views.drain(max(0.0, deadline - time.monotonic()))
        self.journal.sync()

    def close(self) -> None:
        """Lets current batches finish, and stops."""
        self.close_parts()
        forget(self.functions)
        self.state.close()

    def close_parts(self) -> None:
        """Stops everything; the state directory stays locked."""
        self.lifetime.closed = True
        self.upgrades.rebuilds.end()
        self.loader.close()
        self.followers.close()
        self.runner.close()
        self.views.close()
        self.connectors.close()
        self.publications.close()
        self.evaluator.close()
        self.old_rows.end()
        self.compactor.end()
        self.views.record_equal()
        self.store.close()


def forget(functions: Mapping[str, UserFunction]) -> None:
    """Removes functions of a program from where evaluators find them."""
    for function in functions.values():
        function.forget()
