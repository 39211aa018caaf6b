"""Combines the handlers of all kinds of statements."""

from __future__ import annotations

from collections.abc import Callable

from millpond.alter.alter_table import Alters
from millpond.alter.pending_changes import refuse_with_shadow
from millpond.app.analyze import Analysis
from millpond.app.controls import Controls
from millpond.app.creates import Creates
from millpond.app.describe import Descriptions
from millpond.app.execute import Executor
from millpond.app.finite_queries import Answers
from millpond.app.reads import Reads
from millpond.app.spark import Spark
from millpond.app.writes import Writes
from millpond.loading.capture_streams import CapturedStreams
from millpond.loading.inputs import Inputs
from millpond.loading.load import TableLoads
from millpond.loading.loader import Loader
from millpond.loading.open_sources import Sources
from millpond.loading.stored_changes import StoredLogs
from millpond.plan.connectors import Connectors
from millpond.query.evaluate import Evaluator
from millpond.query.transaction import Transaction
from millpond.replace.or_replace import Replacements
from millpond.statements.declarations import Declarations
from millpond.statements.drop import Removals
from millpond.statements.indexes import Indexes
from millpond.statements.launch import Launcher
from millpond.statements.queries import Queries
from millpond.statements.text_run import TextRun
from millpond.store.flusher import Flusher
from millpond.store.store import Store
from millpond.streaming.emitted_rows import Emitted
from millpond.streaming.runner import Runner
from millpond.upgrade.upgrade import Upgrades
from millpond.views.materialized_view import Views


def make_executor(
    *,
    begin: Callable[[], Transaction],
    text: TextRun,
    declarations: Declarations,
    launcher: Launcher,
    removals: Removals,
    views: Views,
    captured_streams: CapturedStreams,
    stored_logs: StoredLogs,
    table_loads: TableLoads,
    loader: Loader,
    indexes: Indexes,
    alters: Alters,
    upgrades: Upgrades,
    replacements: Replacements,
    answers: Answers,
    store: Store,
    evaluator: Evaluator,
    inputs: Inputs,
    sources: Sources,
    connectors: Connectors,
    emitted: Emitted,
    queries: Queries,
    runner: Runner,
    descriptions: Descriptions,
    analysis: Analysis,
    spark: Spark,
    flusher: Flusher,
) -> Executor:
    """Makes the executor of statements, and passes each kind's handler what it uses."""
    executor = Executor(text, begin, lambda s: refuse_with_shadow(alters.saved.entries.values(), s))
    creates = Creates(
        text,
        declarations,
        launcher,
        views,
        captured_streams,
        stored_logs,
        table_loads,
        loader,
        indexes,
        spark.with_types,
        evaluator,
        replacements,
    )
    writes = Writes(
        text=text,
        launcher=launcher,
        answers=answers,
        store=store,
        evaluator=evaluator,
        inputs=inputs,
        sources=sources,
        connectors=connectors,
        emitted=emitted,
        spark=spark.session,
        with_types=spark.with_types,
    )
    controls = Controls(text, store, removals, indexes, queries, runner, flusher)
    reads = Reads(
        text=text,
        answers=answers,
        launcher=launcher,
        views=views,
        emitted=emitted,
        descriptions=descriptions,
        analysis=analysis,
        with_types=spark.with_types,
        replacements=replacements,
        run=executor.run,
    )
    kinds = (creates, alters, upgrades, writes, controls, reads)
    executor.add(*(kind.handlers for kind in kinds))
    return executor
