"""Creates the objects of an app, and passes each what it uses."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import partial
from typing import Any

from millpond.alter.alter_table import Alters
from millpond.alter.schema_drift import SchemaDrift
from millpond.app.analyze import Analysis
from millpond.app.describe import Descriptions
from millpond.app.finite_queries import Answers
from millpond.app.health import TableHealth
from millpond.app.plans import Planner, text_of
from millpond.app.restore import Restorer
from millpond.app.runtime import Runtime, Settings
from millpond.app.select import Selects
from millpond.app.send import Sender
from millpond.app.spark import Spark, folder_in
from millpond.app.statement_handlers import make_executor
from millpond.app.streams_in_use import streams_in_use
from millpond.app.table_handles import TableHandles
from millpond.app.tail import Tails
from millpond.app.texts import Texts
from millpond.journal.journal import Journal
from millpond.journal.state import StateDirectory
from millpond.loading.capture_streams import CapturedStreams
from millpond.loading.discovered_columns import KeptColumns
from millpond.loading.followers import Followers
from millpond.loading.inputs import Inputs
from millpond.loading.large_reads import LargeReads
from millpond.loading.load import TableLoads
from millpond.loading.loaded_tables import LoadedTables, keep_copy
from millpond.loading.loader import Loader
from millpond.loading.open_sources import Sources
from millpond.loading.progress import Load, Progress
from millpond.loading.side_inputs import keep_side_input
from millpond.loading.stored_changes import StoredLogs
from millpond.plan.connectors import Connectors
from millpond.query.evaluate import Evaluator
from millpond.query.plans import Plan, Plans
from millpond.query.result import Result
from millpond.query.table import Table
from millpond.query.transaction import Transaction
from millpond.replace.wiring import make_replacements
from millpond.sql.catalog import Catalog, Relation
from millpond.sql.functions import known_functions
from millpond.sql.statements import Statement
from millpond.sql.userfunctions import UserFunction
from millpond.statements.declarations import Declarations
from millpond.statements.drop import Removals
from millpond.statements.indexes import Indexes
from millpond.statements.launch import Launcher
from millpond.statements.lifetime import Lifetime
from millpond.statements.publications import Publications
from millpond.statements.queries import Queries
from millpond.statements.saved_statements import SavedStatements
from millpond.statements.script import Checks
from millpond.statements.secrets import Secrets
from millpond.statements.text_run import TextRun
from millpond.store.compaction import Compactor
from millpond.store.divided_commits import DividedCommits
from millpond.store.dropped_tables import DroppedTables
from millpond.store.old_rows import OldRows
from millpond.store.query_states import QueryStates
from millpond.store.row_edits import RowEdits
from millpond.store.store import Store
from millpond.streaming.commit_lock import CommitLock
from millpond.streaming.emitted_rows import Emitted
from millpond.streaming.runner import Runner
from millpond.streaming.stages import Stages
from millpond.streaming.statements import Statements
from millpond.upgrade.upgrade import make_upgrades
from millpond.views.materialized_view import Views


def build(state: StateDirectory, functions: dict[str, UserFunction], settings: Settings) -> Runtime:
    """Creates the parts of an app. Nothing of the state directory is restored yet, and nothing runs."""
    known_functions()  # reads the files of their table: there may be none left to open when they are first needed
    clock, read_only, direct = settings.clock, settings.read_only, settings.direct
    lock, lifetime, secrets, catalog = threading.RLock(), Lifetime(), Secrets(), Catalog()
    mask, connectors = secrets.mask, Connectors()
    connectors.stand_in = settings.stand_in
    saved, emitted, loads = SavedStatements(), Emitted(settings.on_emit), dict[str, Load]()

    # Some parts refer to one another: these are resolved when they are called.
    def begin() -> Transaction:
        return runtime.begin_transaction()

    def table(name: str) -> Table:
        return runtime.table(name)

    def in_use() -> list[Relation] | None:
        return streams_in_use(catalog, runner, followers)

    def report(progress: Progress) -> None:
        if not lifetime.closed:
            settings.on_progress(progress)

    home, rows_in = state.path / "spark", folder_in(settings.store, state.identity)
    spark = Spark(settings.master, rows_in, home, clock, lambda: runner.formats, settings.on_status)
    with_types = spark.with_types
    evaluator = Evaluator(spark.ask, settings.path, clock)

    # the commit
    journal = Journal(state.path, durable=state.durable, read_only=read_only, now=clock.seconds)
    journal.compact_after = settings.compact_after
    store = Store(journal, state, clock)
    edits, compactor = RowEdits(store), Compactor(store, state.identity)
    old_rows, query_states = OldRows(store, lambda: catalog.version, clock), QueryStates(journal)
    publications = Publications(store, state.path)
    dropped_tables = DroppedTables(journal, state.path, mask, compactor.flusher.flush)
    text, indexes = TextRun(store), Indexes(catalog, store, saved, read_only=read_only)

    # tables filled from outside
    sources = Sources(connectors, state.path)
    inputs = Inputs(sources.open)
    checks = Checks(catalog, connectors, functions, sources.values)
    columns = KeptColumns(journal, connectors, sources.open, in_use, read_only=read_only)
    followers = Followers(loads, mask, still=direct or read_only)
    large = LargeReads(spark.session, clock, settings.engine, evaluator, mask)
    loaded_tables = LoadedTables(
        store,
        evaluator,
        inputs,
        sources.open,
        clock,
        lambda plan, reads: drift.follow_sources(plan, reads),
        large,
        state.identity,
        mask,
    )
    copy = partial(keep_copy, store=store, loaded_tables=loaded_tables, followers=followers)
    table_loads = TableLoads(
        *(loads, loaded_tables, store, catalog, sources, columns, followers, mask),
        settings.on_progress,
        lifetime.is_closed,
    )
    captured_streams = CapturedStreams(store, sources, followers, state.identity, mask)
    stored_logs = StoredLogs(store, followers, state.identity, mask)
    loader = Loader(lock, table_loads.load, lifetime.is_closed, large.close)

    # materialized views and running statements
    views = Views(store, evaluator, followers, query_states, mask, sources.open, copy)
    drift = SchemaDrift(
        *(catalog, saved, store, connectors, sources.open, columns, views),
        lambda: [p.plan for p in runner],
        *(checks, with_types, mask),
        lambda before, after: tables.follow(before, after),
    )
    commit_lock = CommitLock()
    statements = Statements(
        *(store, catalog, Stages(evaluator, clock, spark.session, settings.engine), commit_lock, emitted),
        *(inputs.read, drift.follow_stream, spark.session),
        DividedCommits(store, state.identity, compactor.flusher),
    )
    runner = Runner(
        *(statements.make, store, query_states, loader, commit_lock, spark),
        state.path / "scratch",
        mask,
        report,
        direct=direct,
    )
    queries = Queries(runner, views, query_states)
    health = TableHealth(store, loads, views, followers, runner, mask)
    tables = TableHandles(catalog, store, edits, evaluator, health, begin)
    answers = Answers(evaluator, sources, text, table, large)

    # what statements create and drop
    removals = Removals(
        catalog=catalog,
        store=store,
        saved=saved,
        indexes=indexes,
        runner=runner,
        views=views,
        queries=queries,
        query_states=query_states,
        dropped_tables=dropped_tables,
        columns=columns,
        publications=publications,
        sources=sources,
        followers=followers,
        stored_logs=stored_logs,
        loads=loads,
        emitted=emitted,
        identity=state.identity,
        mask=mask,
    )
    declarations = Declarations(
        catalog=catalog,
        store=store,
        connectors=connectors,
        sources=sources,
        columns=columns,
        publications=publications,
        dropped_tables=dropped_tables,
        saved=saved,
        text=text,
        with_types=with_types,
        evaluator=evaluator,
        old_rows=old_rows,
        take_back=removals.take_back,
        read_only=read_only,
    )
    launcher = Launcher(
        text=text,
        runner=runner,
        queries=queries,
        query_states=query_states,
        declarations=declarations,
        removals=removals,
        columns=columns,
        sources=sources,
        store=store,
        connectors=connectors,
        emitted=emitted,
        keep_copy=copy,
        keep_side_input=partial(
            keep_side_input,
            open_source=sources.open,
            store=store,
            evaluator=evaluator,
            followers=followers,
            mask=mask,
        ),
        read_only=read_only,
        adopted=settings.adopted,
    )

    used = (text, catalog, store, saved, checks, with_types, runner, views, drift)
    shown = (tables.follow, publications, removals, evaluator)
    alters = Alters(*used, *shown, lambda entry: restorer.resume(entry), read_only)
    building = (lock, lifetime, declarations, launcher, loader, table_loads, loads, followers, sources)
    replacements = make_replacements(alters, *building)

    asked = (saved, checks, connectors, state.path, with_types, evaluator)
    upgrades = make_upgrades(*asked, text, removals, indexes, secrets, replacements, lock)

    # what the app reports about itself
    planner = Planner(checks, catalog, store, evaluator, loader, table, text.in_block, read_only=read_only)
    plans: Plans[Result] = Plans(planner.plan)
    catalog.on_change = plans.clear

    def plan_of(statement: Statement) -> tuple[Plan, Sequence[Any]] | None:
        return None if text.in_block() else plans.planned(text_of(statement))

    descriptions = Descriptions(
        catalog=catalog,
        store=store,
        sources=sources,
        evaluator=evaluator,
        runner=runner,
        views=views,
        columns=columns,
        saved=saved,
        loads=loads,
        functions=functions,
        health=health,
        plan_of=plan_of,
        table=table,
        mask=mask,
        engine=settings.engine,
    )
    analysis = Analysis(
        descriptions=descriptions, queries=queries, runner=runner, views=views, saved=saved, loads=loads
    )

    # what runs texts
    executor = make_executor(
        begin=begin,
        text=text,
        declarations=declarations,
        launcher=launcher,
        removals=removals,
        views=views,
        captured_streams=captured_streams,
        stored_logs=stored_logs,
        table_loads=table_loads,
        loader=loader,
        indexes=indexes,
        alters=alters,
        upgrades=upgrades,
        replacements=replacements,
        answers=answers,
        store=store,
        evaluator=evaluator,
        inputs=inputs,
        sources=sources,
        connectors=connectors,
        emitted=emitted,
        queries=queries,
        runner=runner,
        descriptions=descriptions,
        analysis=analysis,
        spark=spark,
        flusher=compactor.flusher,
    )
    selects = Selects(
        lifetime=lifetime,
        text=text,
        catalog=catalog,
        store=store,
        loader=loader,
        connectors=connectors,
        sources=sources,
        functions=functions,
        answers=answers,
        descriptions=descriptions,
        analysis=analysis,
    )
    texts = Texts(
        lock=lock,
        lifetime=lifetime,
        secrets=secrets,
        plans=plans,
        selects=selects,
        text=text,
        checks=checks,
        executor=executor,
        saved=saved,
        queries=queries,
        connectors=connectors,
        columns=columns,
        loader=loader,
        starter=runner.starter,
        emitted=emitted,
        removals=removals,
        on_answer=settings.on_answer,
    )
    restorer = Restorer(
        lock=lock,
        store=store,
        catalog=catalog,
        saved=saved,
        declarations=declarations,
        indexes=indexes,
        query_states=query_states,
        columns=columns,
        dropped_tables=dropped_tables,
        connectors=connectors,
        sources=sources,
        checks=checks,
        drift=drift,
        launcher=launcher,
        runner=runner,
        views=views,
        followers=followers,
        loads=loads,
        loader=loader,
        table_loads=table_loads,
        captured_streams=captured_streams,
        stored_logs=stored_logs,
        secrets=secrets,
        with_types=with_types,
        read_only=read_only,
    )
    runtime = Runtime(
        lock=lock,
        lifetime=lifetime,
        state=state,
        journal=journal,
        store=store,
        edits=edits,
        compactor=compactor,
        old_rows=old_rows,
        catalog=catalog,
        saved=saved,
        connectors=connectors,
        sources=sources,
        inputs=inputs,
        columns=columns,
        functions=functions,
        evaluator=evaluator,
        plans=plans,
        checks=checks,
        text=text,
        texts=texts,
        tables=tables,
        loads=loads,
        loader=loader,
        followers=followers,
        statements=statements,
        runner=runner,
        views=views,
        queries=queries,
        query_states=query_states,
        emitted=emitted,
        tails=Tails(lock, runner, views, removals),
        sender=Sender(lifetime, catalog, store, secrets),
        publications=publications,
        descriptions=descriptions,
        restorer=restorer,
        upgrades=upgrades,
        secrets=secrets,
    )
    return runtime
