"""The app: one SQL text, its tables and streams, and the queries between them."""

from __future__ import annotations

import dataclasses
import inspect
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

import pyarrow as pa

from millpond import faults, steps
from millpond.app.attach import attach
from millpond.app.drop import drop_unread, take_back, take_back_query
from millpond.app.execute import execute
from millpond.app.health import followed, health_of
from millpond.app.lookups import plan_lookup, plan_write
from millpond.app.permissions import Gate
from millpond.app.published import Publications
from millpond.app.queries import Queries
from millpond.app.readiness import Readiness, readiness
from millpond.app.restore import restore
from millpond.app.schema_drift import SchemaDrift
from millpond.app.script import Checks, Step, needed, prepare
from millpond.app.select import answer_query
from millpond.app.table_commits import AppHome, ViewHome
from millpond.changes import Changes
from millpond.clock import Clock
from millpond.connectors.source import NativeSource
from millpond.errors import (
    AlreadyExists,
    Closed,
    Error,
    FileMissing,
    InvalidOption,
    NotSupported,
    QueryFailed,
    StateCorrupt,
    StateForeign,
    UnknownName,
    without_passwords,
)
from millpond.journal.answers import Answer
from millpond.journal.journal import Journal
from millpond.journal.revision import Revision
from millpond.journal.state import StateDirectory
from millpond.journal.survey import survey
from millpond.loading.bulk_load import Progress, Report
from millpond.loading.capture_streams import Taps
from millpond.loading.discovered_columns import KeptColumns
from millpond.loading.fillings import Fillings, keep_copy
from millpond.loading.followers import Followers
from millpond.loading.inputs import Inputs
from millpond.loading.load import TableLoads
from millpond.loading.loader import Loader
from millpond.loading.open_sources import Sources
from millpond.loading.progress import Load
from millpond.loading.side_inputs import keep_beside
from millpond.options import parse_size
from millpond.plan.plans import PipelinePlan, Target, target_of
from millpond.plan.world import Rooms, StandIn
from millpond.query.evaluate import Evaluator
from millpond.query.evaluate import Path as EvaluationPath
from millpond.query.plans import Plans
from millpond.query.result import Result, RunningResult
from millpond.query.table import Record, Table
from millpond.query.transaction import Transaction
from millpond.records import to_arrow
from millpond.sql import statements as st
from millpond.sql.bind import Binder, Params
from millpond.sql.catalog import Catalog, Relation
from millpond.sql.checked import Checked
from millpond.sql.filters import resolve_values
from millpond.sql.identity import identity
from millpond.sql.joins import all_inputs, join_warnings
from millpond.sql.limits import OWN
from millpond.sql.ownnames import is_own
from millpond.sql.parse import parse
from millpond.sql.querynames import made_name
from millpond.sql.text import Script
from millpond.sql.userfunctions import UserFunction, make_function
from millpond.sql.words import point_at_word
from millpond.store.catalog import Saved, saved, widths_of
from millpond.store.compaction import Compactor
from millpond.store.dropped_tables import DroppedTables
from millpond.store.query_states import DROPPED, HELD, Held
from millpond.store.row_edits import RowEdits
from millpond.store.store import Moment, Store
from millpond.store.undo import Unit
from millpond.streaming.commit_turn import CommitTurn
from millpond.streaming.emitted import Emitted
from millpond.streaming.runner import Runner
from millpond.streaming.stages import Stages
from millpond.streaming.statements import Statements
from millpond.types import Column, Schema, normal
from millpond.views.materialized_view import Views

if TYPE_CHECKING:
    from millpond.http.server import HttpServer

log = logging.getLogger("millpond")
T = TypeVar("T")
Init = TypeVar("Init", bound=Callable[..., None])
_SHORT = 1_000
"""Characters of a client's text that is looked for among plans. What is longer is measured first, and checked where
nobody waits for it: plans are made under the lock of the app."""
SWITCH_SECONDS = 0.0005
"""How long Python lets one thread run while others wait. Writers, pipelines and readers hand over to each other many
times in one commit; with Python's own 5 ms a program that reads without pause would slow each of these steps."""


def _shown(init: Init) -> Init:
    """The signature that help() shows: without what is ours."""
    signature = inspect.signature(init)
    own = [p for p in signature.parameters.values() if not p.name.startswith("_")]
    init.__signature__ = signature.replace(parameters=own)  # type: ignore[attr-defined]
    return init


class App:
    """Streams, tables and queries of one SQL text.

    ``path_or_sql`` is the path of a SQL file, or SQL. ``state`` is the directory that keeps everything across
    restarts; without it nothing is kept. ``master`` is the Spark master, by default this machine's cores. Spark
    starts when a query first needs it.

        with App("CREATE TABLE t (id INT PRIMARY KEY, name STRING)") as app:
            app.table("t").insert({"id": 1, "name": "one"})
            app.sql("SELECT * FROM t").rows()

    ``functions`` are Python functions for SQL, as those of ``function``. Methods may be called by several threads.
    When the changes of a table in the state directory take more than ``compact_after``, and more than its rows, they
    are replaced by the rows: it bounds what a restart has to read beside the tables themselves.
    """

    @_shown
    def __init__(
        self,
        path_or_sql: str | os.PathLike[str] | None = None,
        *,
        state: str | os.PathLike[str] | None = None,
        master: str | None = None,
        functions: Iterable[Callable[..., Any]] = (),
        compact_after: str = "8MB",
        _on_progress: Report | None = None,
        _on_emit: Callable[[str, pa.Table], None] | None = None,
        _on_answer: Callable[[str, Result], None] | None = None,
        _on_status: Callable[[str], None] | None = None,
        _path: EvaluationPath = "auto",
        _read_only: bool = False,
        _defer: bool = False,
        _direct: bool = False,
        _clock: Clock | None = None,
        _stand_in: StandIn | None = None,
    ):
        text = _read_text(path_or_sql)
        try:
            changes_kept = parse_size(compact_after)
        except ValueError as error:
            raise InvalidOption(f'compact_after = "{compact_after}": {error}') from None
        self._master = master
        self._on_progress = _on_progress or (lambda progress: None)
        self._on_answer = _on_answer
        self._on_status = _on_status or (lambda text: None)
        self._read_only = _read_only
        self._lock = threading.RLock()
        self._closed = False
        self._catalog = Catalog()
        self._rooms = Rooms()
        self._rooms.stand_in = _stand_in
        self._publications = Publications(self)
        self._functions: dict[str, UserFunction] = {}
        self._scripts: list[Script] = []
        self._saved: dict[str, Saved] = {}
        self._unclaimed: dict[str, Saved] = {}
        self._emitted = Emitted(_on_emit)
        self._counts: dict[str, int] = {}
        self._loads: dict[str, Load] = {}
        self._in_file = False
        self._transaction: Transaction | None = None
        self._block_done: list[str] = []
        self._standing = 0
        """Statements of the text that is run which have left something, and stand."""
        self._clock = _clock or Clock()
        self._evaluator = Evaluator(self._ask_spark, _path, self._clock)
        self._plans: Plans[Result] = Plans(partial(plan_lookup, self), self._lock)
        self._writes: Plans[Result] = Plans(partial(plan_write, self), self._lock)
        self._catalog.on_change = self._forget_plans
        self._handles: dict[str, Table] = {}
        self._servers: list[HttpServer] = []
        sys.setswitchinterval(min(sys.getswitchinterval(), SWITCH_SECONDS))
        for function in functions:
            self.function(function)
        self._state = StateDirectory(state, read_only=_read_only)
        try:
            self._journal = Journal(self._state.path, durable=self._state.durable, read_only=_read_only)
            self._journal.compact_after = changes_kept
            self._store = Store(self._journal, self._state, self._clock)
            self._edits = RowEdits(self._store)
            self._compactor = Compactor(self._store)
            self._sources = Sources(self._rooms, self._state.path)
            self._inputs = Inputs(self._sources.open)
            self._checks = Checks(self._catalog, self._rooms, self._functions, self._sources.values)
            self._columns = KeptColumns(
                self._journal, self._rooms, self._sources.open, self._in_use, read_only=_read_only
            )
            self._held = Held(self._journal)
            self._leaving = DroppedTables(self._journal, self._state.path, self._mask)
            self._living = Followers(self._loads, self._mask, still=_direct or _read_only)
            self._fillings = Fillings(
                self._store,
                self._evaluator,
                self._inputs,
                self._sources.open,
                self._clock,
                lambda plan, reads: self._drift.follow_sources(plan, reads),
                self._state.identity,
                self._mask,
            )
            self._table_loads = TableLoads(
                self._loads,
                self._fillings,
                self._store,
                self._catalog,
                self._sources,
                self._columns,
                self._living,
                self._mask,
                lambda progress: self._on_progress(progress),
                lambda: self._closed,
            )
            self._taps = Taps(self._store, self._sources, self._living, self._state.identity, self._mask)
            self._loader = Loader(self._lock, self._table_loads.load, lambda: self._closed)
            self._views = Views(
                self._store,
                self._evaluator,
                self._living,
                self._held,
                self._mask,
                self._sources.open,
                self._keep_copy,
            )
            self._drift = SchemaDrift(
                self._catalog,
                self._saved,
                self._store,
                self._rooms,
                self._sources.open,
                self._columns,
                self._views,
                lambda: [p.plan for p in self._runner],
                self._checks,
                self._with_types,
                self._mask,
            )
            turn = CommitTurn()
            self._statement_kinds = Statements(
                self._store,
                self._catalog,
                self._evaluator,
                Stages(self._evaluator, self._clock, self._spark),
                turn,
                self._emitted,
                self._inputs.read,
                self._drift.follow_stream,
                self._spark,
            )
            self._runner = Runner(
                self._statement_kinds.make,
                self._store,
                self._held,
                self._loader,
                turn,
                self._spark,
                self._state.path / "scratch",
                self._mask,
                self._report,
                direct=_direct,
            )
            self._queries = Queries(self._runner, self._views, self._held)
            restore(self)
            self._compactor.begin()
            if text is not None:
                self._run_file(text)
            if not _defer:
                self._start()
        except StateCorrupt as error:
            self.close()
            error.hint = f"{error.hint}. What is left: {survey(self._state.path)}"
            raise
        except BaseException:
            self.close()
            raise

    def _start(self) -> None:
        """Starts the running statements, each when its tables are loaded, and waits for all loads. With ``_defer``
        tables answer before; nothing runs until it is called."""
        self._runner.starter.begin()
        self._loader.wait()
        self._runner.starter.start_new()

    # what programs use

    def sql(self, text: str, params: Params = None) -> Result:
        """Runs one or several statements; the answer is the last one's. `?` and `:name` are bound to ``params``.

        All statements are checked before the first one runs.
        """
        return self._ask(text, params)

    def _ask(self, text: str, params: Params, gate: Gate | None = None) -> Result:
        """Runs a text; what ``gate`` does not let through is not begun."""
        if gate is None or (len(text) <= _SHORT and "$" not in text and not _has_lists(params)):
            writes = text.lstrip()[:1] in "IUDiud" and (gate is None or gate.may_write)
            found = (self._writes if writes else self._plans).find(text, params)
            if found is not None:
                return found
        self._check_open()
        script, statements = self._parse(text, params, gate)
        try:
            answer = answer_query(self, statements, script, gate)
            if answer is not None:
                return answer
        except Error as error:
            self._mask_error(error)
            raise
        with self._lock:
            self._check_open()
            opened, columns = self._rooms.opened(), frozenset(self._rooms.found)
            self._standing = 0
            try:
                result = self._run(script, statements, gate)
                self._runner.starter.start_new()
            except BaseException:
                if not self._standing:
                    self._rooms.close(besides=opened)
                    self._columns.forget_found(besides=columns)
                raise
            return result

    def _forget_plans(self) -> None:
        self._plans.clear()
        self._writes.clear()

    def table(self, name: str) -> Table:
        """The table of that name."""
        self._check_open()
        backend = self._store.table(name)
        relation = self._catalog.find(name)
        if backend is None or relation is None:
            raise self._catalog.unknown(name, "table")
        known = self._handles.get(relation.name)
        if known is None or not known.stands_for(relation, backend):
            kind = ViewHome if relation.live else AppHome
            about = partial(health_of, self), partial(followed, self)
            home = kind(self._store, self._edits.commit, relation.name, *about, self.begin_transaction)
            known = Table.of(relation, backend, self._evaluator, home)
            self._handles[relation.name] = known
        return known

    def attach(self, name: str, table: Table) -> None:
        """Makes a table of the program one of the app: its rows become those of the app's table of that name, which is
        made if there is none, and from then on it is that table.

        >>> users = Table({"id": "INT", "name": "STRING"}, key="id")
        >>> app.attach("users", users)
        """
        with self._lock:
            self._check_open()
            attach(self, name, table)

    def begin_transaction(self) -> Transaction:
        """Changes of several tables that become one commit: use it as a context manager."""
        self._check_open()
        return Transaction(self._store, self._catalog, self._run_in, self.table)

    def tables(self) -> list[str]:
        """The names of all tables; error tables are not among them."""
        return [name for name in self._catalog.names("table") if not is_own(name)]

    def send(self, stream: str, rows: Record | Sequence[Record] | pa.Table | pa.RecordBatch) -> int:
        """Appends rows to an embedded stream, all or none, and answers how many.

        When it returns they are durable, if the app has a state directory.
        """
        return self._send(stream, rows)

    def _send(
        self,
        stream: str,
        rows: Record | Sequence[Record] | pa.Table | pa.RecordBatch,
        answer: Answer | None = None,
    ) -> int:
        """As ``send``; ``answer`` is kept in the same commit."""
        self._check_open()
        relation = self._catalog.find(stream)
        if relation is None or relation.kind != "stream":
            raise self._catalog.unknown(stream, "stream")
        if relation.uri:
            raise UnknownName(
                f'stream "{relation.name}" reads {self._mask(relation.uri)}: rows cannot be sent to it',
                hint="a stream without a connector takes rows",
            )
        records = [rows] if isinstance(rows, Mapping) else rows
        table = to_arrow(relation.schema, records, what=f'stream "{relation.name}"')
        self._store.commit(sent={relation.name: table}, answer=answer)
        return int(table.num_rows)

    def function(
        self,
        function: Callable[..., Any] | None = None,
        *,
        name: str | None = None,
        arguments: Sequence[str] | None = None,
        returns: str | None = None,
        vectorized: bool = False,
        public: bool = False,
    ) -> Callable[..., Any]:
        """Makes a Python function known to SQL; a decorator. Types are those of its annotations, or given as in SQL.

        It is called for each row, with None for NULL; with ``vectorized`` for whole columns, as Arrow arrays. HTTP
        clients may call it in their statements if it is ``public``; the app's own statements may in any case.
        Statements that are to go on after a restart need it before they do: ``App(functions=[f])``.
        """
        if function is None:
            return partial(
                self.function,
                name=name,
                arguments=arguments,
                returns=returns,
                vectorized=vectorized,
                public=public,
            )
        made = make_function(
            function, name=name, arguments=arguments, returns=returns, vectorized=vectorized, public=public
        )
        if made.name.lower() in self._functions:
            made.forget()
            raise AlreadyExists(f'function "{made.name}" already exists', hint="give it another name")
        self._functions[made.name.lower()] = made
        return function

    def drain(self, timeout: float = 60.0) -> None:
        """Waits until everything that the sources held when it was called has taken effect.

        A failed query's error is raised at once; a time-out names what is behind.
        """
        self._check_open()
        deadline = time.monotonic() + timeout
        retried = -1
        self._living.drain(timeout)
        while retried != (retried := self._runner.retry()):
            self._runner.drain(max(0.0, deadline - time.monotonic()))
            self._views.drain(max(0.0, deadline - time.monotonic()))
        self._journal.sync()

    def ready(self) -> Readiness:
        """True when every table is loaded and every query runs; it also tells what is loading, how far that is, and
        what is wrong."""
        return readiness(self)

    def serve(
        self,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        allow: Sequence[str] = (),
        origins: Sequence[str] = (),
        limits: Mapping[str, float] | None = None,
    ) -> HttpServer:
        """Answers over HTTP, in a thread of this process, until it or the app is closed. Port 0 takes a free one.

        Tokens are those of the environment (``MILLPOND_TOKEN_READ``, ``_WRITE``, ``_ADMIN``); an address that other
        machines reach needs one. ``allow`` are the beginnings of URIs that statements of clients may name,
        ``origins`` the sites whose pages may ask, ``limits`` what replaces the defaults of ``docs/http.md``.

        >>> server = app.serve(port=8080)
        >>> server.url
        'http://127.0.0.1:8080'
        """
        from millpond.http.opening import open_server

        self._check_open()
        server = open_server(self, host, port, allow=allow, origins=origins, limits=limits)
        self._servers.append(server)
        return server

    def close(self) -> None:
        """Lets current batches finish and stops the app. Spark stays up for other apps of the process."""
        if self._closed:
            return
        for server in self._servers:
            server.close()
        self._closed = True
        if hasattr(self, "_loader"):
            self._loader.close()
        if hasattr(self, "_living"):
            self._living.close()
        if hasattr(self, "_runner"):
            self._runner.close()
        if hasattr(self, "_views"):
            self._views.close()
        self._rooms.close()
        self._publications.close()
        self._evaluator.close()
        for function in self._functions.values():
            function.forget()
        if hasattr(self, "_compactor"):
            self._compactor.end()
        if hasattr(self, "_store"):
            self._store.close()
        elif hasattr(self, "_journal"):
            self._journal.close()
        self._state.close()

    def _crash(self) -> None:
        """Ends the app as a kill would, but in this process: nothing is finished, written or tidied up."""
        self._closed = True
        self._loader.close()
        self._runner.crash()
        self._views.close()
        self._publications.close()
        self._evaluator.close()
        self._compactor.end()
        self._journal.abandon()
        self._state.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # running a text

    def _run_file(self, text: str) -> None:
        self._in_file = True
        try:
            self._run(*self._parse(text, None))
        finally:
            self._in_file = False
        for entry in list(self._unclaimed.values()):
            if entry.kind == "query":
                log.warning("the query %s is not in the SQL any more; it is dropped", entry.name)
                take_back_query(self, entry.name)

    def _parse(
        self, text: str, params: Params, gate: Gate | None = None
    ) -> tuple[Script, tuple[st.Statement, ...]]:
        """The statements of a text, with the values of their parameters, if they may be run."""
        limits = OWN if gate is None else gate.limits
        parsed = parse(text, None if gate is None else {}, limits)
        self._remember(parsed.script)
        try:
            binder = Binder(params, limits)
            statements = tuple(binder.bind(s) for s in parsed.require())
            binder.finish()
            if gate is not None:
                gate.parsed(statements, parsed.script.place)
        except Error as error:
            self._mask_error(error)
            raise
        return parsed.script, statements

    def _run(self, script: Script, statements: Sequence[st.Statement], gate: Gate | None = None) -> Result:
        try:
            return self._statements(script, statements, gate=gate)
        finally:
            self._end_block()

    def _statements(
        self,
        script: Script,
        statements: Sequence[st.Statement],
        *,
        in_block: bool = False,
        gate: Gate | None = None,
    ) -> Result:
        """Checks all statements of a text, then runs them; the answer is the last one's."""
        result = Result(pa.table({}), count=0)
        opened = self._rooms.opened()
        steps: Sequence[Step] = ()
        try:
            steps = prepare(self, statements, script.place, in_block=in_block)
            while not self._in_file and self._transaction is None and (late := self._loading(steps)):
                self._loader.wait(late)
                steps = prepare(self, statements, script.place, in_block=in_block)
            self._check_ours(steps)
            if gate is not None:
                gate.checked([s.checked for s in steps if s.checked is not None])
            for step in steps:
                result = self._step(step)
        except Error as error:
            self._mask_error(error)
            raise
        finally:
            if all(s.checked is not None and _is_passing(s.checked) for s in steps):
                self._rooms.close(besides=opened)
        return result

    def _loading(self, steps: Sequence[Step]) -> set[str]:
        """The tables that the steps need now and that are being loaded."""
        if not self._loader.running():
            return set()
        return self._loader.running(
            name for s in steps if s.checked is not None for name in needed(s.checked)
        )

    def _begin_block(self, transaction: Transaction) -> None:
        self._transaction, self._block_done = transaction, []

    def _end_block(self) -> None:
        """Statements stand on their own again; what was not committed is forgotten."""
        if self._transaction is not None:
            self._transaction.rollback()
        self._transaction, self._block_done = None, []

    def _run_in(self, transaction: Transaction, text: str, params: Params) -> Result:
        """Runs statements as part of a transaction of a program."""
        with self._lock:
            self._check_open()
            self._loader.wait()
            self._transaction = transaction
            try:
                return self._statements(*self._parse(text, params), in_block=True)
            finally:
                self._transaction = None

    def _check_ours(self, steps: Sequence[Step]) -> None:
        """Raises before anything runs if the state is of an app that shares no statement with this file."""
        if self._in_file and self._unclaimed and not any(s.claimed for s in steps):
            raise StateForeign(
                f'the state directory "{self._state.path}" belongs to another app: '
                f"none of its statements is in this SQL",
                hint="name another directory, or start with the SQL that it was made with",
            )

    def _step(self, step: Step) -> Result:
        if step.claimed is not None:
            step.claimed.claimed = True
            self._unclaimed.pop(step.claimed.id, None)
            return self._emitted.results.get(step.claimed.name) or Result(pa.table({}), count=0)
        checked = step.checked
        assert checked is not None
        if self._in_file and self._is_done(checked.statement):
            return Result(pa.table({}), count=0)
        if self._in_file:
            self._loader.wait(self._loading([step]))
        try:
            result = execute(self, checked)
        except Error as error:
            point_at_word(error, checked.statement)
            raise
        has_rows = result.count is None and not isinstance(result, RunningResult)
        if self._in_file and self._on_answer is not None and has_rows:
            self._on_answer(checked.statement.text, result)
        return result

    def _stand(self, checked: Checked, unit: Unit) -> None:
        """Counts a statement that may leave something, for as long as it stands."""
        if not _is_passing(checked):
            self._standing += 1
            unit.on_failure(self._fall)

    def _fall(self) -> None:
        self._standing -= 1

    def _occurrence(self, statement: st.Statement) -> str:
        """The identity of a statement and which of its kind it is in this run."""
        key = identity(statement)
        return f"{key}:{self._counts.get(key, 0)}"

    def _count(self, statement: st.Statement) -> str:
        found = self._occurrence(statement)
        key = identity(statement)
        self._counts[key] = self._counts.get(key, 0) + 1
        return found

    def _is_done(self, statement: st.Statement) -> bool:
        """Whether a statement of the file that runs once has run before a restart."""
        if isinstance(statement, st.Explain) and statement.analyze:
            return self._is_done(statement.statement)
        tells = isinstance(statement, st.ControlQuery) or (
            isinstance(statement, st.Drop) and statement.kind == "query"
        )
        if not tells and not isinstance(statement, (*st.WRITES, st.Truncate)):
            return False
        done = self._journal.done(self._occurrence(statement))
        if done:
            self._count(statement)
        return done

    def _write(
        self, statement: st.Statement, into: str, find: Callable[[Moment], tuple[Mapping[str, Changes], T]]
    ) -> T:
        """Commits what a statement changes, or, inside BEGIN … COMMIT, keeps it for the end of the block."""
        done = self._statement_done(statement)
        if self._transaction is None:
            return self._store.write(find, done=done, into=(into,))
        changes, answer = find(self._transaction.moment())
        self._transaction.stage(changes)
        self._block_done.extend(done)
        return answer

    def _moment(self) -> Moment:
        """The tables as the statement that runs sees them."""
        return self._store.moment() if self._transaction is None else self._transaction.moment()

    def _statement_done(self, statement: st.Statement) -> tuple[str, ...]:
        """What the commit of a statement says, so that a restart does not run it again; nothing if a restart loses
        what it changed."""
        if not self._in_file:
            return ()
        number = self._count(statement)
        target = str(getattr(statement, "target", None) or getattr(statement, "name", ""))
        return (number,) if self._store.keeps(target) else ()

    # what statements do

    def _declare(self, checked: Checked, unit: Unit) -> Saved:
        """Makes a stream, table or view known; answers what the journal is to keep of it."""
        checked = self._with_types(checked)
        relation = checked.relation
        assert relation is not None
        unit.on_failure(partial(take_back, self, relation))
        unit.put(self._sources.values, checked.source_options)
        if relation.kind == "table":
            self._leaving.finish_one(relation.name)
            self._store.clear(relation.name)
        elif relation.kind == "stream" and self._journal.stream_end(relation.name):
            self._journal.drop_stream(relation.name)
        self._open(relation, checked.table_options)
        faults.reach("relation opened")
        return saved(checked, relation, identity(checked.statement))

    def _open(self, relation: Relation, options: Mapping[str, Any]) -> None:
        if relation.kind == "table":
            self._store.options[relation.name.lower()] = options
            relation = dataclasses.replace(relation, place=self._rooms.place(options))
            extension = str(options.get("extension") or "memory")
            self._store.create(relation, extension, options)
            if not self._store.keeps(relation.name) and not self._read_only:
                self._journal.forget(f"table:{relation.name}")
        self._publications.add(relation)
        self._catalog.add(relation)

    def _keep(self, entry: Saved, reads: Sequence[Relation]) -> None:
        """Keeps a statement, with the columns of what it reads: from here on a restart finds it."""
        entry.claimed = True
        self._saved[entry.id] = entry
        columns = self._columns.gather(reads)
        for found in columns:
            self._columns.note(found)
        if not self._read_only:
            told = [(HELD, entry.name)] if entry.kind == "query" and not self._in_file else []
            self._journal.revise(Revision([entry.entry(), *columns], told))
        faults.reach("statement declared")

    def _query_entry(self, name: str, checked: Checked) -> Saved | None:
        """What the journal is to keep of a running statement, so that it goes on after a restart."""
        statement = checked.statement
        if not isinstance(statement, (*st.WRITES, st.Block)):
            return None
        entry = Saved(name, "query", statement.text, identity(statement), None, {})
        entry.widths = widths_of(checked)
        return entry

    def _query_name(self, checked: Checked, unit: Unit) -> str:
        """The name that the statement gives, or one that a restart finds again."""
        named = checked.query_options.get("query.name")
        key, _, number = self._count(checked.statement).partition(":")
        unit.on_failure(lambda: self._counts.update({key: int(number)}))
        taken = {known.lower() for known in self._queries.names}
        name = str(named) if named else made_name(checked, int(number), taken)
        if named and name.lower() in taken:
            raise AlreadyExists(f'query "{named}" already exists', hint="give it another 'query.name'")
        if named and not self._in_file and self._held.get(name) == DROPPED:
            # One of that name was dropped: it is forgotten.
            unit.on_failure(partial(self._held.set, name, DROPPED))
            self._held.note(name, None)
        if self._in_file and isinstance(checked.statement, st.Select):
            # How far it was printed is known from the run before.
            unit.on_failure(partial(self._runner.take_out, name))
        else:
            unit.on_failure(partial(take_back_query, self, name))
        return name

    def _start_pipeline(
        self, plan: PipelinePlan, checked: Checked, unit: Unit, entry: Saved | None, *, new: bool = True
    ) -> None:
        """Puts a running statement in line; it starts when the text has been run. ``entry`` is what the journal keeps
        of it, once all that it needs is there."""
        assert checked.resolved is not None
        if self._read_only:
            raise NotSupported(
                "this statement runs for as long as an app, and the state directory is open for reading only",
                hint="start the app with millpond run, then ask it",
                place=checked.statement.place,
            )
        if self._held.get(plan.name) == DROPPED:
            if entry is not None and new:
                self._keep(entry, ())
            return
        for one in (checked, *checked.block):
            unit.put(self._sources.values, one.source_options)
        unit.on_failure(partial(drop_unread, self))
        resolved = [c.resolved for c in (checked, *checked.block) if c.resolved is not None]
        for i in all_inputs(i for r in resolved for i in r.inputs):
            if i.relation.captured:
                self._keep_copy(i.relation)
            elif i.relation.kind == "source" and not i.relation.running:
                keep_beside(
                    i.relation, self._sources.open, self._store, self._evaluator, self._living, self._mask
                )
        faults.reach("inputs kept")
        sources = [self._sources.open(stream) for stream in plan.streams]
        for source in sources:
            if isinstance(source, NativeSource):
                source.prepare()
            if source.local:
                raise NotSupported(
                    f"a running query cannot read {source.kind}://: only this process can",
                    hint="make a table of it: CREATE TABLE t AS SELECT * FROM " + source.uri,
                )
        faults.reach("sources prepared")
        for caution in join_warnings(checked.resolved):
            log.warning("%s (%s)", caution.message, caution.hint)
        kept = self._kept(plan) or (entry is not None and plan.target.kind == "emit")
        fresh = new and entry is not None
        self._runner.add(plan, sources, unit, ephemeral=not kept, new=new, fresh=fresh)
        if new and entry is not None:
            self._keep(entry, plan.streams)
        else:
            self._columns.keep(plan.streams)
        faults.reach("pipeline added")

    def _keep_copy(self, relation: Relation) -> None:
        keep_copy(relation, self._store, self._fillings, self._living)

    def _in_use(self) -> list[Relation] | None:
        """The streams and URIs that are read; None while statements are stalled: what these read is known when they
        start."""
        if self._runner.starter.stalled:
            return None
        relations = [r for r in self._catalog if r.kind == "stream"]
        relations += [stream for p in self._runner for stream in p.plan.streams]
        relations += [stream for w in self._runner.starter for stream in w.plan.streams]
        return relations + self._living.reads()

    def _cancel(self, result: RunningResult) -> None:
        """Ends a running SELECT that nobody follows any more."""
        with self._lock:
            take_back_query(self, result.name)

    def _target(self, checked: Checked, query: str) -> Target:
        """Where the rows of a running statement go; what would leave the app in a test is looked at instead."""
        assert checked.target is not None and checked.resolved is not None
        if checked.target.kind != "sink" or not self._rooms.stands_in(checked.target.name):
            return target_of(checked.target, checked.table_options)
        self._emitted.open(query, checked.resolved.schema.arrow())
        return Target("emit", query)

    def _kept(self, plan: PipelinePlan) -> bool:
        if plan.target.kind == "table":
            return self._store.keeps(plan.target.name)
        return plan.target.kind != "emit" or self._in_file or f"query:{plan.name.lower()}" in self._saved

    def _answer(self, checked: Checked, moment: Moment | None = None) -> pa.Table:
        """The rows of a query that has an end, as of a moment, by default the one that the statement sees."""
        assert checked.resolved is not None
        self._sources.values.update(checked.source_options)
        for name in checked.reads:
            if self._store.table(name) is not None:
                self.table(name).count_query()
        inputs = self._inputs.read(checked.resolved, moment or self._moment())
        return self._evaluator.answer(checked.resolved, inputs)

    def _values(self, checked: Checked) -> pa.Table:
        assert checked.target is not None
        rows = self._evaluator.answer(resolve_values(checked.target.schema, checked.values), {})
        return to_arrow(checked.target.schema, rows, what=f'{checked.target.kind} "{checked.target.name}"')

    # Spark

    def _spark(self, *formats: str) -> Any:
        """Spark's session, with what its ``formats`` need beside those of the queries."""
        from millpond.engine.session import get_session, started

        if not started():
            self._on_status("starting Spark")
        return get_session(
            self._master, self._state.path / "spark", kafka="kafka" in self._runner.formats.union(formats)
        )

    def _ask_spark(self, sql: str, tables: Mapping[str, pa.Table]) -> pa.Table:
        from millpond.engine.answer import ask
        from millpond.sql.render.spark import at_time

        return steps.timed("evaluate by Spark", lambda: ask(self._spark(), at_time(sql, self._clock), tables))

    def _with_types(self, checked: Checked) -> Checked:
        """The statement with the types that only Spark's analyser knows."""
        resolved = checked.resolved
        if resolved is None or resolved.schema.known:
            return checked
        from millpond.sql.render import spark

        empty = {i.view: i.relation.schema.arrow().empty_table() for i in resolved.inputs}
        try:
            found = self._ask_spark(spark.render(resolved.expression), empty).schema
        except QueryFailed:
            if checked.relation is None or checked.relation.kind != "view":
                raise
            # The query of a view says what they are, whenever it is read.
            found = [pa.field(c.name, c.type or pa.null()) for c in resolved.schema]
        columns = tuple(Column(c.name, normal(f.type)) for c, f in zip(resolved.schema, found, strict=True))
        schema = Schema(columns, resolved.schema.key)
        relation = checked.relation and dataclasses.replace(checked.relation, schema=schema)
        same = checked.target is checked.relation
        return dataclasses.replace(
            checked,
            resolved=dataclasses.replace(resolved, schema=schema),
            relation=relation,
            target=relation if same else checked.target,
        )

    # parts

    @property
    def _pipelines(self) -> dict[str, Any]:
        return {p.plan.name: p for p in self._runner}

    def _report(self, progress: Progress) -> None:
        if not self._closed:
            self._on_progress(progress)

    def _mask(self, text: str) -> str:
        """The text without values that came from the environment, and without passwords."""
        for script in self._scripts:
            text = script.mask(text)
        return without_passwords(text)

    def _remember(self, script: Script) -> None:
        if script.secrets:
            self._scripts.append(script)

    def _mask_error(self, error: Error) -> None:
        error.message = self._mask(error.message)
        error.hint = self._mask(error.hint) if error.hint else None
        error.args = (error.message,)
        for inner in getattr(error, "errors", ()):
            self._mask_error(inner)

    def _check_open(self) -> None:
        if self._closed:
            raise Closed("the app is closed", hint="open a new App")

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"{len(self.tables())} tables, {len(self._pipelines)} queries"
        return f"<App: {state}>"


def _has_lists(params: Params) -> bool:
    values = params.values() if isinstance(params, Mapping) else params or ()
    return any(isinstance(v, list | tuple | dict) for v in values)


def _is_passing(checked: Checked) -> bool:
    """Whether nothing is left of a statement once it is answered."""
    plain = isinstance(checked.statement, st.Select | st.Explain) and st.only_reads(checked.statement)
    return plain and not checked.running and not checked.live


def _read_text(path_or_sql: str | os.PathLike[str] | None) -> str | None:
    if path_or_sql is None:
        return None
    is_path = isinstance(path_or_sql, os.PathLike) or (
        "\n" not in path_or_sql and ";" not in path_or_sql and path_or_sql.strip().lower().endswith(".sql")
    )
    if not is_path:
        return str(path_or_sql)
    path = Path(path_or_sql)
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise FileMissing(f'there is no file "{path}"', hint="check the path") from None
    except (OSError, UnicodeDecodeError) as error:
        raise FileMissing(
            f'the file "{path}" cannot be read: {error}', hint="it must be UTF-8 text"
        ) from None
