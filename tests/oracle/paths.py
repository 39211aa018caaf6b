"""The ways in which a statement is asked here: by an index, in process, of Spark, as a live view, as a running one."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa

from millpond import App, Error
from millpond.query.result import LookupResult
from tests.oracle.answers import Answer, difference, ours
from tests.oracle.engines import Oracle, app_with, change, tables_of
from tests.oracle.search import Found
from tests.oracle.shapes import Statement, World
from tests.oracle.shapes.tables import columns_sql

ROUNDS = 4
"""How often the tables change."""


def compare(
    statements: Sequence[Statement], world: World, oracle: Oracle, *, paths: Sequence[str]
) -> Iterator[Found]:
    """What differs. Spark is asked once, over the rows at the end; views are there from the beginning."""
    with app_with(world, indexes="index" in paths) as app:
        views = [_view(app, i, made) if "view" in paths else None for i, made in enumerate(statements)]
        for _ in range(ROUNDS):
            change(app, world.changes())
            if "view" in paths:
                _settle(app)
        oracle.show(tables_of(app))
        for i, made in enumerate(statements):
            theirs = oracle.ask(made.oracle)
            for path in paths:
                mine = views[i] if path == "view" else None
                mine = mine or _ask(app, made.text if path != "view" else f"SELECT * FROM view{i}", path)
                ordered = made.ordered and path != "view"
                if found := difference(made.text, theirs, mine, ordered=ordered):
                    yield Found(made, path, *found)
                    break
                if path == "index" and not mine.when and not isinstance(app.sql(made.text), LookupResult):
                    yield Found(made, path, "way", str(theirs), "no lookup")


def _ask(app: App, text: str, path: str) -> Answer:
    """``spark`` leaves no choice; else by the plan of the first time, if one is kept."""
    if path != "spark":
        ours(lambda: app.sql(text).to_arrow())
        return ours(lambda: app.sql(text).to_arrow())
    evaluator = app._runtime.evaluator
    app._runtime.plans.clear()
    before, evaluator.path = evaluator.path, "spark"
    try:
        return ours(lambda: app.sql(text).to_arrow())
    finally:
        evaluator.path = before
        app._runtime.plans.clear()


def _view(app: App, number: int, made: Statement) -> Answer | None:
    """Makes a live view. The answer is why it could not be made."""
    width = 0
    with suppress(Error):
        width = len(app.sql(made.text).to_arrow().schema)
    names = f" ({', '.join(f'c{i}' for i in range(width))})" if width else ""

    def make() -> pa.Table:
        app.sql(f"CREATE MATERIALIZED VIEW view{number}{names} AS {made.text}")
        return pa.table({})

    found = ours(make)
    return found if found.when else None


def _settle(app: App) -> None:
    """Waits for the views. One whose query fails on the rows of the moment is looked at when it is asked."""
    with suppress(Error):
        app.drain()


def compare_streams(statements: Sequence[Statement], world: World, oracle: Oracle) -> Iterator[Found]:
    """What differs of running statements over the stream ``t1``, whose rows come in random batches."""
    chance = random.Random(f"batches {world.seed}")
    rows = world.stream()
    tables = [name for name in world.rows if name != "t1"]
    text = f"CREATE STREAM t1 ({columns_sql('t1', key=False)})"
    text += "".join(f"; CREATE TABLE {name} ({columns_sql(name)})" for name in tables)
    with App(text, _direct=True) as app:
        for name in tables:
            app.table(name).bulk_insert(world.rows[name])
        app.sql("CREATE TABLE every_row AS SELECT * FROM t1")
        failed = [_running(app, i, made) for i, made in enumerate(statements)]
        left = list(rows)
        while left:
            count = chance.choice((1, 2, 3, 5))
            app.send("t1", left[:count])
            del left[:count]
            _settle_running(app, failed)
        for state in app.sql("SHOW QUERIES").rows():
            number = _number(state)
            if number is not None and state["errors"]:
                failed[number] = failed[number] or Answer(error="rows were put aside", when="run")
        oracle.show(
            {"t1": app.table("every_row").to_arrow(), **{name: app.table(name).to_arrow() for name in tables}}
        )
        for i, made in enumerate(statements):
            theirs = oracle.ask(made.oracle)
            if not rows and theirs.when == "run":
                continue  # nothing runs before a row comes
            mine = failed[i] or ours(lambda i=i: app.sql(f"SELECT * FROM out{i}").to_arrow())  # type: ignore[misc]
            if found := difference(made.text, theirs, mine, ordered=False):
                yield Found(made, "stream", *found)


def _settle_running(app: App, failed: list[Answer | None]) -> None:
    """Waits for running statements. One that has failed is told as such, and goes: others wait for no one."""
    while True:
        try:
            app.drain()
            return
        except Error:
            states = [s for s in app.sql("SHOW QUERIES").rows() if s["state"] == "failed"]
            if not states:
                return
            for state in states:
                number = _number(state)
                assert number is not None, state
                failed[number] = Answer(error=state["error"], when="run")
                app.sql(f"DROP TABLE out{number}")


def _number(state: dict[str, Any]) -> int | None:
    """Which statement a query is."""
    name = state["name"].removeprefix("table:out")
    return int(name) if name.isdigit() else None


def _running(app: App, number: int, made: Statement) -> Answer | None:
    def make() -> pa.Table:
        app.sql(f"CREATE TABLE out{number} AS {made.text}")
        return pa.table({})

    found = ours(make)
    return found if found.when else None
