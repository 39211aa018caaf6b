"""Runs SHOW, DESCRIBE and EXPLAIN: describes the app as rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from millpond.app.health import TableHealth
from millpond.app.shown_options import with_options_now
from millpond.connectors import abilities
from millpond.connectors.spark_ranges import reader_of
from millpond.connectors.versioned_source import Versioned
from millpond.engine_rule import ENGINES, Engine
from millpond.errors import without_passwords
from millpond.extensions import offered
from millpond.journal.late import LATEST
from millpond.loading.discovered_columns import KeptColumns
from millpond.loading.followers import Mask
from millpond.loading.open_sources import Sources
from millpond.loading.progress import Load
from millpond.plan.explain import explain_plan
from millpond.plan.forms import explained
from millpond.plan.statement_plan import Planned
from millpond.query.evaluate import Evaluator
from millpond.query.plans import Plan, Way
from millpond.query.result import EXPLAINED
from millpond.query.table import Table
from millpond.query.table_writer import declaration_of
from millpond.records.values import Unfit
from millpond.sql.catalog import Catalog, Relation
from millpond.sql.checked import Checked, CheckedExplain, CheckedQuery
from millpond.sql.fold import Fold
from millpond.sql.functions import function_classes
from millpond.sql.printer import print_name
from millpond.sql.pushdown import need_of
from millpond.sql.reserved_names import is_own
from millpond.sql.resolve import Resolved
from millpond.sql.statement_text import after_columns
from millpond.sql.statements import Explain, Statement
from millpond.sql.userfunctions import UserFunction
from millpond.statements.saved_statements import SavedStatements
from millpond.steps import Step
from millpond.store.catalog import SavedRelation
from millpond.store.store import Store
from millpond.streaming.runner import Runner
from millpond.streaming.stream_join import describe_join
from millpond.streaming.window import describe_watermark
from millpond.tables.versioned_table import VersionedTable
from millpond.types import type_name
from millpond.views.materialized_view import Views

_QUERY_COLUMNS = (
    "name",
    "state",
    "rows",
    "rate",
    "lag",
    "lost",
    "errors",
    "misses",
    "late",
    "waiting",
    "retries",
    "batches",
    *(f"{engine}_{count}" for engine in ENGINES for count in ("batches", "rows")),
    "last_batch",
    "last_batch_ms",
    "last_engine",
    "error",
    "statement",
)
_TEXTS = ("name", "state", "last_engine", "error", "statement")
_TYPES = {
    **dict.fromkeys((c for c in _QUERY_COLUMNS if c not in _TEXTS), pa.int64()),
    "kept": pa.int64(),
    "rate": pa.float64(),
    "last_batch": pa.timestamp("us", "UTC"),
}


PlanOf = Callable[[Statement], tuple[Plan, Sequence[Any]] | None]
"""Returns the plan that runs a statement, and its values; None for one that takes the general path."""


class _Cached:
    """Describes how a statement with a plan runs."""

    def __init__(self, way: Way):
        self._way = way

    def way(self, query: Resolved) -> tuple[str, str]:
        return self._way.who, self._way.why

    def fold_way(self, fold: Fold) -> tuple[str, str]:
        raise AssertionError("a statement with a plan runs once")


@dataclass(frozen=True, eq=False, repr=False)
class Descriptions:
    """Describes what the app contains; ``table`` returns a table."""

    catalog: Catalog
    store: Store
    sources: Sources
    evaluator: Evaluator
    runner: Runner
    views: Views
    columns: KeptColumns
    saved: SavedStatements
    loads: Mapping[str, Load]
    functions: Mapping[str, UserFunction]
    health: TableHealth
    plan_of: PlanOf
    table: Callable[[str], Table]
    mask: Mask
    engine: Engine

    def show(self, what: str) -> pa.Table:
        """Runs SHOW: functions, queries, streams or tables."""
        if what == "functions":
            own = {name: "python, public" if f.public else "python" for name, f in self.functions.items()}
            others = dict.fromkeys(offered("function"), "package")
            listed = sorted({**others, **function_classes(), **own}.items())
            return _table([{"name": name, "class": kind} for name, kind in listed], ["name", "class"])
        if what == "queries":
            rows = self.runner.describe() + [v.describe() for v in self.views]
            texts = ("statement", "error")
            rows = [row | {k: self.mask(row[k]) for k in texts if row.get(k)} for row in rows]
            return _table(rows, _QUERY_COLUMNS)
        if what == "streams":
            found = [r for r in self.catalog if r.kind == "stream"]
            return _table(
                [
                    {
                        "name": r.name,
                        "columns": ", ".join(f"{c.name} {type_name(c.type)}" for c in r.schema),
                        "connector": self.mask(r.uri) if r.uri else "embedded",
                        **self._extent(r),
                    }
                    for r in found
                ],
                ["name", "columns", "connector", "rows", "kept"],
            )
        tables = [r for r in self.catalog if r.kind in ("table", "view") and not is_own(r.name)]
        return _table(
            [
                {
                    "name": r.name,
                    "kind": r.kind,
                    "columns": ", ".join(f"{c.name} {type_name(c.type)}" for c in r.schema),
                    "primary_key": ", ".join(r.schema.key) or None,
                    "rows": len(backend) if (backend := self.store.table(r.name)) is not None else None,
                    **self._how(r.name),
                }
                for r in tables
            ],
            ["name", "kind", "columns", "primary_key", "rows", "source", "health"],
        )

    def _extent(self, stream: Relation) -> dict[str, int]:
        """Returns how many rows were sent to a stream of the app, and how many of them it still has."""
        if stream.uri:
            return {}
        journal = self.store.journal
        rows = journal.stream_end(stream.name)
        return {"rows": rows, "kept": rows - journal.stream_first(stream.name)}

    def _how(self, name: str) -> dict[str, Any]:
        """Returns what fills a table, and its state."""
        if self.store.table(name) is None:
            return {}
        source, health = self.health.of(name)
        return {"source": source, "health": self.mask(str(health))}

    def describe(self, relation: Relation, *, extended: bool) -> pa.Table:
        columns = [
            {
                "column": c.name,
                "type": type_name(c.type),
                "key": c.name in relation.schema.key,
                "nullable": c.nullable and c.name not in relation.schema.key,
            }
            for c in relation.schema
        ]
        if not extended:
            return _table(columns, ["column", "type", "key", "nullable"])
        about: dict[str, Any] = {"name": relation.name, "kind": relation.kind}
        backend = self.store.table(relation.name)
        if backend is not None:
            table = self.table(relation.name)
            about |= dict(table.get_stats())
            about |= {f"lag of partition {part}": rows for part, rows in about.pop("lag", {}).items()}
            about["health"] = str(table.health_check())
            if (load := self.loads.get(relation.name.lower())) is not None and load.rows:
                about["load"] = load.far()
            about["durability"] = self.durability_of(relation.name)
        mark = self.store.table(f"{relation.kind}:{relation.name}$watermark")
        if mark is not None:
            about |= describe_watermark(mark.scan())
        about |= describe_join(f"{relation.kind}:{relation.name}", self.store.table)
        if relation.guessed and (added := self.columns.added(relation)):
            about["new columns"] = f"{len(added)}: {', '.join(added)}"
        if relation.kind == "stream" and not relation.uri:
            about |= self._extent(relation)
        about |= {f"index {i.name}": ", ".join(i.columns) for i in self.catalog.indexes(relation.name)}
        about["running queries"] = ", ".join(
            dict.fromkeys(
                p.plan.query
                for p in self.runner
                if relation.name in p.plan.reads or relation.name in p.plan.writes
            )
        )
        rows = [{"property": f"column {c['column']}", "value": c["type"]} for c in columns]
        rows += [{"property": k, "value": str(v)} for k, v in about.items()]
        return _table(rows, ["property", "value"])

    def history(self, relation: Relation, values: Mapping[str, Any]) -> pa.Table:
        """Returns the versions of a table, or of a source with these options."""
        if relation.uri is not None:
            self.sources.values[relation.uri] = values
            source = self.sources.open(relation)
            assert isinstance(source, Versioned)
            return source.history()
        table = self.store.table(relation.name)
        assert isinstance(table, VersionedTable)
        return table.history()

    def durability_of(self, table: str) -> str:
        backend = self.store.table(table)
        if backend is not None and backend.database is not None:
            return f"kept by {backend.database.name}"
        if not self.store.journal.durable:
            return "none: the app has no state directory"
        kind = self.store.durability(table)
        meaning = {
            "commit": "a commit is on the disk when it returns",
            "batch": f"a commit is on the disk {LATEST * 1000:g} ms later at the most",
            "none": "the table is empty after a restart",
        }
        return f"{kind}: {meaning[kind]}"

    def show_create(self, relation: Relation) -> pa.Table:
        """Returns the statement, and those of its indexes."""
        texts = [without_passwords(self._text_of(relation.name))]
        texts += [
            self.saved.entries[f"index:{i.name.lower()}"].text for i in self.catalog.indexes(relation.name)
        ]
        return pa.table({"statement": texts})

    def _asked(self, checked: Checked) -> tuple[dict[str, str], dict[str, str]]:
        """Returns the SQL that databases receive for the inputs of a query, by view, and who reads files on
        executors.
        """
        asked: dict[str, str] = {}
        readers: dict[str, str] = {}
        if not isinstance(checked, CheckedQuery):
            return asked, readers
        self.sources.values.update(checked.source_options)
        for i in checked.resolved.inputs:
            if i.relation.kind != "source" or i.relation.running:
                continue
            need = need_of(checked.resolved, i)
            source = abilities.narrowed(self.sources.open(i.relation), need)
            if (sent := abilities.sent(source)) is not None:
                asked[i.view] = sent
            if i.relation.spreads and (reader := reader_of(source, need.columns)) is not None:
                readers[i.view] = reader
        return asked, readers

    def explain(self, checked: CheckedExplain, first: Sequence[str] = ()) -> pa.Table:
        """Returns the plan in the requested form, with lines before it."""
        way = self.way_of(checked.inner.statement)
        planned = Planned.of(checked.inner)
        return self.explained_table(checked.statement, planned, [*first, *self.plan_lines(planned, way)])

    def explained_table(
        self, explain: Explain, planned: Planned, lines: Sequence[str], steps: Iterable[Step] | None = None
    ) -> pa.Table:
        """Returns lines, and what steps cost, in the requested form, which is also in the metadata of the schema."""
        form = explain.format
        plan = explained(planned, lines, form, self.mask, None if steps is None else list(steps))
        return pa.table({"plan": plan}).replace_schema_metadata({EXPLAINED: form})

    def plan_lines(self, planned: Planned, way: Way | None = None) -> list[str]:
        """Returns the plan of a statement in words; ``way`` is that of the cached plan that runs it, if any."""
        ways = self.evaluator if way is None else _Cached(way)
        asked, readers = self._asked(planned.checked)
        durable = self.store.journal.durable
        return explain_plan(planned, ways, asked, readers, engine=self.engine, durable=durable)

    def way_of(self, statement: Statement) -> Way | None:
        """Returns which engine runs a statement that has a plan: the one that App.sql uses for its text."""
        planned = self.plan_of(statement)
        return None if planned is None or _declines(*planned) else planned[0].way

    def _text_of(self, name: str) -> str:
        for entry in self.saved.entries.values():
            if entry.kind not in ("query", "index") and entry.name.lower() == name.lower():
                return _declared_now(entry) if isinstance(entry, SavedRelation) else entry.text
        raise self.catalog.unknown(name)


def _declared_now(entry: SavedRelation) -> str:
    """Returns the text of a statement; that of a table whose columns, name or options have changed as it would be
    now.
    """
    if entry.kind != "table":
        return entry.text
    text = with_options_now(entry.text, entry.options)
    if not (entry.changed or entry.first_name):
        return text
    return f"CREATE TABLE {print_name(entry.name)} {declaration_of(entry.schema, {})}{after_columns(text)}"


def _declines(plan: Plan, values: Sequence[Any]) -> bool:
    """Returns whether a lookup leaves these values to the general path. It runs nothing."""
    try:
        for given in plan.givens:
            if given.kind is not None and type(values[given.at]) is not given.kind:
                return True
            given.value(values)
    except Unfit:
        return True
    return False


def _table(rows: list[dict[str, Any]], columns: Sequence[str]) -> pa.Table:
    made = {}
    for name in columns:
        values = [r.get(name) for r in rows]
        is_bool = any(isinstance(v, bool) for v in values)
        made[name] = pa.array(values, pa.bool_() if is_bool else _TYPES.get(name, pa.string()))
    return pa.table(made)
