"""Checks statements against the catalog, before anything runs.

`Checker.check` finds every mistake of a statement and returns what it declares; it refuses, by name, what the engine
cannot run yet. The name of a wrong statement is declared all the same, so that one mistake causes one message.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any

from millpond.engine_rule import Engine
from millpond.errors import (
    AlreadyExists,
    CheckFailed,
    Error,
    InvalidOption,
    NotSupported,
    SqlError,
)
from millpond.options import read_options
from millpond.sql import statements as st
from millpond.sql.blocks import Blocks, stream_of, whole_stream
from millpond.sql.catalog import Catalog, Relation
from millpond.sql.checked import (
    Checked,
    CheckedBlock,
    CheckedExplain,
    CheckedFold,
    CheckedInsert,
    CheckedMutation,
    CheckedNothing,
    CheckedRunnable,
    CheckedTableAs,
    CheckedTransaction,
)
from millpond.sql.checked_commands import (
    CheckedBegin,
    CheckedControl,
    CheckedDescribe,
    CheckedDrop,
    CheckedDropQuery,
    CheckedEnd,
    CheckedName,
    CheckedReplay,
    CheckedShow,
    CheckedShowCreate,
    CheckedUpgrade,
)
from millpond.sql.checking.alters import check_alter
from millpond.sql.checking.creates import Creates
from millpond.sql.checking.inserts import Inserts
from millpond.sql.checking.mutations import (
    check_delete,
    check_merge,
    check_truncate,
    check_update,
    check_upsert,
)
from millpond.sql.checking.queries import Locate, Queries
from millpond.sql.checking.query_names import QueryNames
from millpond.sql.checking.versions import check_care, check_history
from millpond.sql.errortables import check_errors_into, error_relation
from millpond.sql.fold import Fold, RowFold
from millpond.sql.indexes import check_create_index, check_drop_index
from millpond.sql.joins import joins_of
from millpond.sql.mutation import Mutation
from millpond.sql.on_miss import check_misses, miss_options
from millpond.sql.options import only_spark
from millpond.sql.printer import print_name
from millpond.sql.querynames import FILLS, own_query_name
from millpond.sql.render.duckdb import Unrenderable, render
from millpond.sql.render.folds import render_fold
from millpond.sql.render.words import DuckWords
from millpond.sql.resolve import Resolved
from millpond.sql.rewrite import FOR_DUCKDB, rewrite
from millpond.sql.statement_text import point_at_word, title
from millpond.sql.userfunctions import UserFunction
from millpond.sql.world import World
from millpond.types import Schema

_CREATES = (st.CreateStream, st.CreateTable, st.CreateView)


class Checker:
    """Checks the statements of one text in order; the catalog grows with what they declare.

    ``streams``, ``functions`` and ``kept`` are as in ``Queries``; ``queries``, ``dropped`` and ``counts`` as in
    ``QueryNames``; ``engine`` is that of statements that set none.
    """

    def __init__(
        self,
        catalog: Catalog,
        world: World,
        *,
        locate: Locate | None = None,
        functions: Mapping[str, UserFunction] | None = None,
        streams: Mapping[str, Mapping[str, Any]] | None = None,
        queries: Mapping[str, str] | None = None,
        dropped: Collection[str] = (),
        counts: Mapping[str, int] | None = None,
        kept: Schema | None = None,
        engine: Engine = "auto",
    ):
        self._engine = engine
        self._queries = Queries(
            catalog, world, locate=locate, functions=functions, streams=streams, kept=kept
        )
        self._names = QueryNames(queries or {}, dropped, counts or {})
        self.errors = self._queries.errors
        creates, inserts = Creates(self._queries), Inserts(self._queries)
        self._kinds: dict[type[st.Statement], Callable[[Any], Checked | None]] = {
            st.CreateStream: creates.stream,
            st.CreateTable: creates.table,
            st.CreateView: creates.view,
            st.CreateIndex: self._create_index,
            st.Drop: self._drop,
            st.AlterTable: self._alter,
            st.Insert: inserts.insert,
            st.Select: inserts.select,
            st.Update: self._update,
            st.Delete: self._delete,
            st.Merge: self._merge,
            st.Upsert: self._upsert,
            st.Truncate: self._truncate,
            st.Block: self._block,
            st.Begin: CheckedBegin,
            st.Commit: CheckedEnd,
            st.Rollback: CheckedEnd,
            st.Show: CheckedShow,
            st.ShowCreate: self._show_create,
            st.Describe: self._describe,
            st.DescribeHistory: partial(check_history, self._queries),
            st.Optimize: partial(check_care, self._queries),
            st.Vacuum: partial(check_care, self._queries),
            st.Explain: self._explain,
            st.ExplainUpgrade: CheckedUpgrade,
            st.Replay: self._replay,
            st.ControlQuery: self._control_query,
        }

    def knows(self, kind: type[st.Statement]) -> bool:
        """Returns whether a kind of statement can be checked; others are refused."""
        return kind in self._kinds

    def check(self, statement: st.Statement) -> Checked | None:
        """Returns the checked statement, or None after adding to ``errors``."""
        before = len(self.errors)
        self._queries.begin()
        if isinstance(statement, _CREATES) and statement.or_replace:
            there = self._queries.catalog.find(statement.name)
            if there is not None:
                self._names.forget(own_query_name(there.kind, there.name))
        check = self._kinds.get(type(statement))
        if check is None:
            self._queries.refuse(title(statement), statement)
            return None
        checked = self._checked(check, statement)
        for error in self.errors[before:]:
            point_at_word(error, statement)
        if checked is None or len(self.errors) != before:
            return None
        if isinstance(checked, CheckedExplain):
            return checked  # its statement was checked here
        into = getattr(statement, "errors_into", None)
        if isinstance(checked, CheckedRunnable):
            if checked.running and not isinstance(statement, st.CreateView):
                return self._as_running(checked, into)
            if checked.live or checked.running:
                self._names.add(checked)
            elif not self._is_checked_for_engine(checked):
                return None
        if into is not None:
            self.errors.append(
                SqlError(
                    "ERROR INTO is for running statements: this one ends by itself", place=statement.place
                )
            )
            return None
        return checked

    def _checked(self, method: Callable[[Any], Checked | None], statement: st.Statement) -> Checked | None:
        try:
            return method(statement)
        except CheckFailed as several:
            self.errors.extend(several.errors)
        except Error as error:
            self.errors.append(error)
        return None

    def _as_running(self, checked: CheckedRunnable, errors_into: str | None) -> Checked | None:
        """Returns the statement with the effect of its options; None after adding to ``errors``."""
        before = len(self.errors)
        place = checked.statement.place
        if errors_into is not None:
            self.errors.extend(check_errors_into(self._queries.catalog, errors_into, checked.changes, place))
        try:
            self._names.check(checked, self._queries.query_values)
            checked = self._with_misses(checked)
            self._check_engine(checked)
        except (InvalidOption, AlreadyExists, NotSupported) as error:
            error.place = error.place or place
            self.errors.append(error)
        if len(self.errors) != before:
            return None
        checked = dataclasses.replace(checked, query_options=self._queries.query_values)
        name = self._names.add(checked)
        if errors_into is None and self._queries.query_values.get("on.error") != "fail":
            self._queries.catalog.add(error_relation(name))
        return checked

    def _is_checked_for_engine(self, checked: CheckedRunnable) -> bool:
        """Returns whether the engine of a load can evaluate it; else after adding to ``errors``."""
        try:
            if isinstance(checked, CheckedTableAs | CheckedInsert):
                self._check_engine(checked)
        except NotSupported as error:
            error.place = error.place or checked.statement.place
            self.errors.append(error)
            return False
        return True

    def _check_engine(self, checked: CheckedRunnable) -> None:
        """Refuses 'engine' = 'process' where DuckDB would not give Spark's results."""
        if (self._queries.query_values.get("engine") or self._engine) == "process":
            try:
                for join in joins_of(checked.resolved):
                    for query in (*(side.query for side in join.sides), join.pairs):
                        _check_duckdb(query)
                _check_duckdb(checked.resolved)
                if checked.misses is not None:
                    _check_duckdb(checked.misses[0])
                if isinstance(checked, CheckedFold):
                    render_fold(checked.fold, DuckWords())
                    if isinstance(checked.fold, RowFold):
                        _check_duckdb(checked.fold.pairs)
            except Unrenderable as reason:
                raise only_spark(str(reason)) from None

    def _with_misses(self, checked: CheckedRunnable) -> CheckedRunnable:
        query = None if isinstance(checked, CheckedFold) else checked.resolved
        found = check_misses(query, miss_options(self._queries.query_values), self._queries.defaults)
        return checked if found is None else dataclasses.replace(checked, resolved=found[0], misses=found[1])

    # UPDATE, DELETE, MERGE, UPSERT, TRUNCATE

    def _update(self, s: st.Update) -> Checked | None:
        return self._mutation(s, check_update(self._queries, s))

    def _delete(self, s: st.Delete) -> Checked | None:
        return self._mutation(s, check_delete(self._queries, s))

    def _merge(self, s: st.Merge) -> Checked | None:
        return self._mutation(s, check_merge(self._queries, s))

    def _upsert(self, s: st.Upsert) -> Checked | None:
        return self._mutation(s, check_upsert(self._queries, s))

    def _truncate(self, s: st.Truncate) -> Checked | None:
        return self._mutation(s, check_truncate(self._queries, s))

    def _mutation(self, s: st.Statement, mutation: Mutation | Fold | None) -> Checked | None:
        if mutation is None:
            return None
        options = self._queries.source_values
        if isinstance(mutation, Mutation):
            return CheckedMutation(s, mutation, options)
        return CheckedFold(s, mutation.events, options, mutation)

    # the rest

    def _create_index(self, s: st.CreateIndex) -> Checked | None:
        return check_create_index(self._queries.catalog, s)

    def _alter(self, s: st.AlterTable) -> Checked:
        return check_alter(self._queries.catalog, s, self._queries.resolver)

    def _drop(self, s: st.Drop) -> Checked | None:
        if s.kind == "index":
            return check_drop_index(self._queries.catalog, s)
        if s.kind == "query":
            if not s.if_exists and not self._knows_query(s.name, s):
                return None
            own = self._names.own(s.name)
            if own is not None and not own.startswith(FILLS):
                self._names.forget(own)
            return CheckedDropQuery(s)
        relation = self._queries.catalog.find(s.name)
        if relation is None:
            if s.if_exists:
                return CheckedNothing(s)
            self.errors.append(self._queries.catalog.unknown(s.name, s.kind, s.place))
            return None
        kind = "table" if s.kind == "materialized view" else s.kind
        if relation.kind != kind:
            self.errors.append(
                SqlError(
                    f'"{relation.name}" is a {relation.kind}, not a {s.kind}',
                    hint=f"DROP {relation.kind.upper()} {print_name(relation.name)}",
                    place=s.place,
                )
            )
            return None
        self._queries.catalog.remove(s.name)
        self._names.forget(own_query_name(relation.kind, relation.name))
        return CheckedDrop(s, relation)

    def _block(self, s: st.Block) -> Checked | None:
        """Checks all statements of a block; if a stream drives them, they are one running statement."""
        blocks = Blocks()
        found: list[Checked] = []
        for one in (s.begin, *s.statements, s.end):
            checked = self.check(one)
            self.errors.extend(blocks.check(one, checked))
            if checked is not None:
                found.append(checked)
        stream = next((r for c in found if (r := stream_of(c)) is not None), None)
        if stream is None:
            return CheckedTransaction(s, tuple(found))
        members = tuple(c for c in found if isinstance(c, CheckedInsert | CheckedFold))
        self._queries.forget_options()
        return CheckedBlock(s, whole_stream(stream), {}, members)

    def _control_query(self, s: st.ControlQuery) -> Checked | None:
        return CheckedControl(s) if self._knows_query(s.name, s) else None

    def _knows_query(self, name: str, s: st.Statement) -> bool:
        """Returns whether a running statement has this name."""
        unknown = self._names.unknown(name, s)
        if unknown is not None:
            self.errors.append(unknown)
        return unknown is None

    def _describe(self, s: st.Describe) -> Checked | None:
        if "://" in s.name:
            values = read_options(s.name, self._queries.world.source_options(s.name), ())
            return CheckedDescribe(s, self._queries.world.describe(s.name, values, None))
        return CheckedDescribe(s, self._known(s.name, s))

    def _show_create(self, s: st.ShowCreate) -> Checked:
        return CheckedShowCreate(s, self._known(s.name, s))

    def _replay(self, s: st.Replay) -> Checked:
        return CheckedReplay(s, self._known(s.name, s))

    def _known(self, name: str, s: st.Statement) -> Relation:
        """Returns the relation with a name. Raises UnknownName."""
        relation = self._queries.catalog.find(name)
        if relation is None:
            raise self._queries.catalog.unknown(name, place=s.place)
        return relation

    def _explain(self, s: st.Explain) -> Checked | None:
        if isinstance(s.statement, st.NamedQuery):
            known = self._knows_query(s.statement.name, s.statement)
            return CheckedExplain(s, CheckedName(s.statement)) if known else None
        catalog, names = self._queries.catalog, self._names
        self._queries.catalog, self._names = catalog.copy(), names.copy()
        there = catalog.find(s.statement.name) if s.analyze and isinstance(s.statement, _CREATES) else None
        if there is not None:  # its plan is shown as if it were not there
            self._names.forget(own_query_name(there.kind, there.name))
            self._queries.catalog.remove(there.name)
        try:
            inner = self.check(s.statement)
        finally:
            self._queries.catalog, self._names = catalog, names
        return None if inner is None else CheckedExplain(s, inner, there)


def _check_duckdb(query: Resolved) -> None:
    """Raises Unrenderable if DuckDB would not give Spark's results."""
    render(rewrite(query.expression, FOR_DUCKDB))
