"""Starts Spark beside an app, or when a query first needs it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from millpond import steps
from millpond.clock import Clock
from millpond.errors import QueryFailed
from millpond.sql.checked import CheckedQuery, CheckedView
from millpond.statements.handlers import C
from millpond.types import Column, Schema, normal


class Spark:
    """Returns Spark's session, and runs queries in it. ``formats`` are those that the running queries need; ``master``
    is where Spark is started, or a session that the program has made; ``store`` is the app's folder that executors see,
    if there is one.
    """

    def __init__(
        self,
        master: Any,
        store: str | None,
        home: Path,
        clock: Clock,
        formats: Callable[[], set[str]],
        on_status: Callable[[str], None],
    ):
        self._master = master
        self._store = store
        self._home = home
        self._clock = clock
        self._formats = formats
        self._on_status = on_status
        self._lock = threading.Lock()
        self._starting: threading.Thread | None = None

    def session(self, *formats: str) -> Any:
        """Returns Spark's session, with what its ``formats`` need in addition to those of the queries."""
        from millpond.engine.session import get_session, given_session, started

        if not isinstance(self._master, str | None):
            return given_session(self._master, self._formats().union(formats), self._store)
        if not started():
            self._on_status("starting Spark")
        return get_session(
            self._master, self._home, formats=self._formats().union(formats), store=self._store
        )

    def start(self, failed: Callable[[Exception], None]) -> None:
        """Starts Spark beside the app, if it is not up. Raises what is known before, such as JavaMissing; ``failed``
        gets what is found later.
        """
        from millpond.engine.session import check_start, has_jars, started

        given = not isinstance(self._master, str | None)
        if given or started() or not has_jars(self._formats()):
            self.session()
            return
        with self._lock:
            if self._starting is not None and self._starting.is_alive():
                return
            check_start(self._master)

            def run() -> None:
                try:
                    self.session()
                except Exception as error:
                    failed(error)

            self._starting = threading.Thread(target=run, name="millpond-spark", daemon=True)
            self._starting.start()

    def ask(self, sql: str, tables: Mapping[str, pa.Table]) -> pa.Table:
        """Returns the rows of a query over tables."""
        from millpond.engine.answer import ask
        from millpond.sql.render.spark import at_time

        return steps.timed(
            "evaluate by Spark", lambda: ask(self.session(), at_time(sql, self._clock), tables)
        )

    def with_types(self, checked: C) -> C:
        """Returns the statement with the types that only Spark's analyser knows."""
        if not isinstance(checked, CheckedQuery) or checked.resolved.schema.known:
            return checked
        query, is_view = checked.resolved, isinstance(checked, CheckedView)
        from millpond.sql.render import spark

        empty = {i.view: i.relation.schema.arrow().empty_table() for i in query.inputs}
        try:
            found = self.ask(spark.render(query.expression), empty).schema
        except QueryFailed:
            if not is_view:
                raise
            # The query of a view determines them, whenever it is read.
            found = [pa.field(c.name, c.type or pa.null()) for c in query.schema]
        columns = tuple(Column(c.name, normal(f.type)) for c, f in zip(query.schema, found, strict=True))
        return checked.with_schema(Schema(columns, query.schema.key))


def folder_in(store: str | None, identity: str) -> str | None:
    """Returns the folder of an app in a store that it may share with others."""
    return None if store is None else f"{store.rstrip('/')}/millpond-{identity}"
