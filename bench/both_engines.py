"""X7: the same statements with `engine = auto`, where Spark evaluates such large batches, and with `engine = process`,
where DuckDB does. Both until the rows are in their table, in turns. CPU is that of the process, the JVM and its Python
workers.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from bench.by_spark import FILES, GROUPS, Taken, in_turns
from bench.figure import Figure
from bench.joins import DECLARED, ROWS, SHAPES, made_up
from bench.process_tree import cpu_seconds
from millpond import App
from millpond.engine.session import get_session
from millpond.engine_rule import Engine


def run() -> Iterator[Figure]:
    get_session()
    trades, tables = made_up()
    with App(DECLARED) as app:
        for name, rows in tables.items():
            app.table(name).bulk_insert(rows)
        for i in range(FILES):
            app.send("trades", trades.slice(i * ROWS // FILES, ROWS // FILES))
        for shape in SHAPES:
            yield from _both(app, f"{shape.id}: {shape.what}", shape.query, ROWS)
        for groups in GROUPS:
            group = f"account % {groups}"
            query = f"SELECT {group} AS g, COUNT(*) AS n, SUM(price) AS total FROM trades GROUP BY {group}"
            yield from _both(app, f"live aggregate, {groups:,} groups", query, groups)


def _both(app: App, what: str, query: str, results: int) -> Iterator[Figure]:
    auto, process = in_turns(
        lambda: _run(app, query, results, "auto"), lambda: _run(app, query, results, "process")
    )
    name, what = "engine = process (DuckDB)", f"{what}, auto (Spark)"
    yield Figure("X7", what, ROWS / auto.wall, ROWS / process.wall, name)
    yield Figure("X7", f"{what}, CPU", auto.cpu * 1000, process.cpu * 1000, name, "ms", f"{ROWS:,} rows")


def _run(app: App, query: str, results: int, engine: Engine) -> Taken:
    began, cpu = time.perf_counter(), cpu_seconds()
    app.sql(f"CREATE TABLE out WITH ('engine' = '{engine}') AS {query}")
    app.drain(timeout=600)
    taken = Taken(time.perf_counter() - began, cpu_seconds() - cpu)
    assert len(app.table("out")) == results
    rows = app.sql("SHOW QUERIES").rows()[-1]
    assert rows["spark_rows" if engine == "auto" else "process_rows"] == ROWS, rows
    app.sql("DROP TABLE out CASCADE")
    return taken
