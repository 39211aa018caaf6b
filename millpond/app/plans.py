"""Makes the plans that ``App.sql`` caches: a statement that ran before is not parsed, checked and rendered again.

A plan runs for everyone who sends its text, HTTP clients included. A plan that permissions might refuse is not public:
for clients its statement takes the general path.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from millpond.dml.cached_plans import Ground, PlannedInsert, PlannedMutation, PlannedSelect
from millpond.errors import Error
from millpond.loading.loader import Loader
from millpond.lookup import Lookup
from millpond.query.evaluate import Evaluator
from millpond.query.plans import Asked, Plan, Way
from millpond.query.prepared_queries import Prepared
from millpond.query.table import Table
from millpond.records.values import Unfit
from millpond.sql import statements as st
from millpond.sql.bind import Binder
from millpond.sql.calls import calls_for_everybody
from millpond.sql.catalog import Catalog
from millpond.sql.checked import CheckedInsert, CheckedMutation, CheckedSelect, CheckedValues
from millpond.sql.filters import resolve_values
from millpond.sql.growth import check_growth, makes_more
from millpond.sql.keyed_statements import keyed_write_of
from millpond.sql.lookup import lookup_of
from millpond.sql.outside import named_outside
from millpond.sql.parse import parse
from millpond.sql.patterns import has_patterns
from millpond.sql.placeholders import holes_in, mark_holes, open_holes, stand_in
from millpond.sql.printer import print_statement
from millpond.sql.render.duckdb import Unrenderable
from millpond.sql.resolve import Resolved
from millpond.sql.template import Parameter, template_of
from millpond.statements.script import Checks
from millpond.store.store import Store
from millpond.tables.memory import MemoryTable

_Once = CheckedSelect | CheckedInsert | CheckedValues | CheckedMutation
_WORDS = ("select", "insert", "update", "delete", "merge", "with", "from", "values", "upsert")


@dataclass(frozen=True, slots=True)
class _Statement:
    """Contains a checked statement whose literals know their hole; ``marked`` if all holes are in one."""

    checked: _Once
    values: tuple[Any, ...]
    marked: bool
    public: bool


class Planner:
    """Makes plans for an app. Threads may call it at once; it holds no lock."""

    def __init__(
        self,
        checks: Checks,
        catalog: Catalog,
        store: Store,
        evaluator: Evaluator,
        loader: Loader,
        table: Callable[[str], Table],
        in_block: Callable[[], bool],
        *,
        read_only: bool,
    ):
        self._checks = checks
        self._catalog = catalog
        self._store = store
        self._evaluator = evaluator
        self._loader = loader
        self._table = table
        self._in_block = in_block
        self._read_only = read_only

    def plan(self, asked: Asked) -> Plan | None:
        """Returns the plan of a statement; None if it has none. Raises its errors, and Unfit if it has no plan yet."""
        if not asked.text.lstrip()[:7].lower().startswith(_WORDS):
            return None
        found = self._read(asked)
        if found is None:
            return None
        if self._loader.filled(found.checked.needs):
            raise Unfit("a table is being loaded")
        short = self._short(found) if found.marked and found.public else None
        return short or self._general(found, asked.current)

    def _read(self, asked: Asked) -> _Statement | None:
        """Returns the statement if it ends and reads and changes only tables. Raises its errors."""
        parsed = parse(asked.text)
        statements = parsed.require()
        if len(statements) != 1 or not isinstance(statements[0], (st.Select, *st.WRITES)):
            return None
        binder = Binder(asked.params)
        statement = binder.bind(statements[0])
        binder.finish()
        if any(named_outside(statement)) or (self._read_only and not isinstance(statement, st.Select)):
            return None
        marked = mark_holes(statement, asked.template)
        checked = self._checks.one(statement, parsed.script.place)
        if not isinstance(checked, _Once) or not _once(checked):
            return None
        return _Statement(checked, asked.values, marked, _is_public(statement, parsed.script.place))

    def _short(self, found: _Statement) -> Plan | None:
        """Returns the fast path: the plan of a lookup, or of a change of one row by its key."""
        checked, values = found.checked, found.values
        if self._evaluator.path != "auto":
            return None
        if isinstance(checked, CheckedSelect):
            lookup = lookup_of(checked.resolved, values)
            run = None if lookup is None else self._table(lookup.table).compile_lookup(lookup)
            if lookup is None or run is None:
                return None
            run_now = run if self._finds_one(lookup) else None
            return Plan(run, self._by_index(lookup), givens=lookup.found_by(), run_now=run_now)
        trees = [query.expression for query in _queries(checked)]
        write = keyed_write_of(checked, values) if len(holes_in(trees, len(values))) == len(values) else None
        if write is None:
            return None
        table = self._table(write.table)
        # A statement in a block is part of the block.
        run = table.compile_write(write, self._in_block)
        way = Way("lookup", f"table {table.name} by {', '.join(table.schema.key)}")
        if isinstance(checked, CheckedValues):
            way = Way("values", "without an engine")
        return Plan(run, way, writes=True, run_now=table.compile_write(write, self._in_block, now=True))

    def _by_index(self, lookup: Lookup) -> Way:
        table = self._table(lookup.table)
        declared = [i.columns for i in self._catalog.indexes(lookup.table)]
        columns = lookup.columns(table.schema.key, declared)
        return Way("lookup", f"table {table.name} by {', '.join(columns)}")

    def _finds_one(self, lookup: Lookup) -> bool:
        """Returns whether a lookup finds its rows in memory, by keys that are in its text."""
        backend = self._store.table(lookup.table)
        if not isinstance(backend, MemoryTable) or backend.limited or not backend.schema.key:
            return False
        return lookup.columns(backend.schema.key, ()) == backend.schema.key

    def _general(self, found: _Statement, current: Callable[[], bool]) -> Plan | None:
        """Returns the plan of any other statement: its rendered queries."""
        checked, values = found.checked, found.values
        if any(isinstance(v, list | tuple | dict) for v in values):
            return None
        queries = _queries(checked)
        if isinstance(checked, CheckedInsert) and any(q.inputs for q in queries):
            return None  # rows are read and then inserted: no other commit may come in between
        holes, prepared = self._prepared(queries, values)
        if prepared is None:
            return None
        way = self._way(prepared)
        in_process = way.who == "duckdb"
        public = found.public and (in_process or not has_patterns(checked.statement))
        # The size of the result was measured with the values that the statement came with.
        public = public and not (holes and makes_more(checked.statement))
        names = checked.needs
        ground = Ground(self._store, current, self._in_block, lambda: bool(self._loader.filled(names)))
        if isinstance(checked, CheckedSelect):
            reads = tuple(self._table(name).count_query for name in checked.reads)
            run = PlannedSelect(ground, prepared[0], reads, self._evaluator.slots_for(prepared[0]))
            return Plan(run, way, False, public, holes)
        if isinstance(checked, CheckedMutation):
            return Plan(PlannedMutation(ground, checked.mutation, tuple(prepared)), way, True, public, holes)
        is_values = isinstance(checked, CheckedValues)
        return Plan(PlannedInsert(ground, checked.target, prepared[0], is_values), way, True, public, holes)

    def _way(self, prepared: Sequence[Prepared]) -> Way:
        """Returns the engine for the queries of a statement: Spark if one of them needs it."""
        for one in prepared:
            if not one.spelling.in_process:
                return Way(*self._evaluator.way(one.query))
        return Way("duckdb", "in process")

    def _prepared(
        self, queries: Sequence[Resolved], values: tuple[Any, ...]
    ) -> tuple[dict[int, bool], list[Prepared] | None]:
        """Returns the queries for other values where they allow that, else for these."""
        holes = open_holes([q.expression for q in queries], values)
        made = {at: stand_in(at, values[at]) for at in holes}
        stand_ins = {at: found for at, found in made.items() if found is not None}
        for some in (stand_ins, {}):
            try:
                prepared = [self._evaluator.prepared(q, some, values) for q in queries]
            except Unrenderable:
                return {}, None
            if all(p is not None for p in prepared):
                return {at: holes[at] for at in some}, [p for p in prepared if p is not None]
        return {}, None


def text_of(statement: st.Statement) -> str:
    """Returns the text that a statement is planned by, with the values of its parameters in it."""
    template = template_of(statement.text)
    has_parameters = template is not None and any(isinstance(h, Parameter) for h in template.holes)
    return print_statement(statement) if has_parameters else statement.text


def _once(checked: _Once) -> bool:
    """Returns whether a statement ends, and needs only tables that exist."""
    query = checked.statement.query if isinstance(checked, CheckedSelect) else None
    if query is not None and (query.window is not None or query.emit is not None):
        return False
    target = checked.changes
    if target is not None and (target.kind not in ("table", "stream") or target.uri):
        return False
    inputs = [i.relation for i in checked.inputs]
    outside = not isinstance(checked, CheckedValues) and bool(checked.source_options)
    return not checked.running and not outside and all(r.kind == "table" and r.uri is None for r in inputs)


def _queries(checked: _Once) -> Sequence[Resolved]:
    if isinstance(checked, CheckedValues):
        return [resolve_values(checked.target.schema, checked.rows)]
    return checked.queries


def _is_public(statement: st.Statement, locate: Any) -> bool:
    if not calls_for_everybody(statement):
        return False
    try:
        check_growth([statement], locate)
    except Error:
        return False
    return True
