"""Shares what the check of every statement with a query needs: its options, sources and columns."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
from sqlglot import exp

from millpond.errors import (
    Error,
    InvalidOption,
    NotSupported,
    Place,
    SourceEmpty,
    SqlError,
    TypeMismatch,
    without_passwords,
)
from millpond.options import Option, Setting, find_option, read_options
from millpond.sql import statements as st
from millpond.sql.aggregate import check_aggregate, is_live_aggregate, lower_distinct, split
from millpond.sql.assign import assign
from millpond.sql.catalog import Catalog, Relation
from millpond.sql.joins import joins_of, lower_joins, window_watermark
from millpond.sql.options import ENGINE_OPTIONS, RUNNING_OPTIONS
from millpond.sql.requested_types import wanted_schemas
from millpond.sql.resolve import Resolved, Resolver
from millpond.sql.running_queries import check_recursion, check_running
from millpond.sql.table_copies import with_named_copies
from millpond.sql.typing import type_of
from millpond.sql.userfunctions import UserFunction
from millpond.sql.versions import AsOf, no_versions, uri_at, words_of
from millpond.sql.windowing import (
    WINDOW_OPTIONS,
    beside_window,
    check_window,
    has_window,
    lower_window,
    retained,
)
from millpond.sql.with_options import share_out
from millpond.sql.world import World
from millpond.types import Column, Schema

Locate = Callable[[int, int], Place]


class Queries:
    """Resolves queries against the catalog, and adds mistakes to ``errors``.

    ``streams`` are the option values of streams that are known by name. ``kept`` is the earlier declaration of the
    table of a statement that is checked again.
    """

    def __init__(
        self,
        catalog: Catalog,
        world: World,
        *,
        locate: Locate | None = None,
        functions: Mapping[str, UserFunction] | None = None,
        streams: Mapping[str, Mapping[str, Any]] | None = None,
        kept: Schema | None = None,
    ):
        self.catalog = catalog
        self.world = world
        self.locate = locate
        self.functions = dict(functions or {})
        self.errors: list[Error] = []
        self.streams = dict(streams or {})
        self.kept = kept
        self.source_values: dict[str, Mapping[str, Any]] = {}
        """The options of the sources that the statement reads, by their URIs."""
        self._shares: Mapping[str, Sequence[Setting]] = {}
        self._wanted: Mapping[str, Schema] = {}
        self._for_table = False
        self._all: Schema | None = None
        """The columns that a source must have, as far as the declared columns of the table determine them."""
        self._query_settings: list[Setting] = []
        self.query_values: Mapping[str, Any] = {}
        """The options of the statement as a running statement."""
        self.defaults: Mapping[str, str] = {}
        """What replaces the columns of a row without a match."""

    def begin(self) -> None:
        """Resets the state of the previous statement."""
        self.catalog.making = None
        self.source_values = {}
        self.forget_options()

    def forget_options(self) -> None:
        """Clears the options of the statement as a running statement."""
        self.query_values = {}
        self.defaults = {}

    def resolver(self, catalog: Catalog | None = None) -> Resolver:
        return Resolver(
            catalog or self.catalog, describe=self._describe_uri, locate=self.locate, functions=self.functions
        )

    def resolve(
        self,
        query: st.Query,
        settings: tuple[Setting, ...],
        own_options: Sequence[Option],
        owner: str,
        s: st.Statement,
        targets: Sequence[pa.DataType | None] = (),
        catalog: Catalog | None = None,
    ) -> Resolved | None:
        """Returns the resolved query; ``targets`` are the types of the columns that store its outputs, if known, and
        ``catalog`` says what names mean in it, if they mean something else than elsewhere.
        """
        windowed = has_window(query)
        if query.emit == "final" and not windowed:
            self.errors.append(
                SqlError(
                    "EMIT FINAL needs a window: without one nothing ever closes",
                    hint="add WINDOW TUMBLING(…), or use EMIT CHANGES",
                    place=s.place,
                )
            )
            return None
        values: Mapping[str, Any] = {}
        if windowed:
            mine = [x for x in settings if find_option(WINDOW_OPTIONS, x.name)]
            values = read_options("a window", WINDOW_OPTIONS, mine)
            settings = beside_window(query, settings)
        expression, window = lower_window(query, self.catalog, outputs=not isinstance(s, st.Insert))
        settings = self.running_settings(settings, owner)
        uris = _uris(expression)
        self._shares, errors = share_out(self.world, settings, own_options, uris, owner)
        self.errors.extend(errors)
        self._wanted = {}
        self._for_table = isinstance(s, st.CreateTable)
        self._all = _declared(s, expression)
        resolver = self.resolver(catalog)
        resolved = resolver.resolve(expression)
        if not resolver.errors and (wanted := wanted_schemas(resolved, targets)):
            self._wanted = wanted
            resolver = self.resolver(catalog)
            resolved = resolver.resolve(expression)
        self.errors.extend(resolver.errors)
        if resolver.errors or resolver.is_open:
            return None
        if (problem := _kept_version(resolved, query, s)) is not None:
            self.errors.append(problem)
            return None
        if isinstance(s, st.CreateTable | st.CreateStream) and not resolved.schema.known:
            self._refuse_collation(resolved, s)
        if resolved.running and (problems := list(check_recursion(resolved, resolver.place, s.place))):
            self.errors.extend(problems)
            return None
        if resolved.running:
            resolved = with_named_copies(resolved, self.source_values)
            resolved, problems = lower_joins(resolved, resolver.place, s.place)
            self.errors.extend(problems)
            if problems:
                return None
        if window is not None:
            window = dataclasses.replace(window, late=values["late"], retention=retained(values["retention"]))
            if any(joins_of(resolved)):
                window = dataclasses.replace(window, mark=window_watermark(resolved), delay=0)
            self.errors.extend(check_window(window, resolved.running, s.place))
            resolved.expression.meta["window"] = window
        if resolved.running:
            lower_distinct(resolved)
            self.errors.extend(check_running(resolved, resolver.place, s.place))
            self.errors.extend(check_aggregate(resolved, resolver.place, s.place))
        elif (first := self._for_running(resolved, s)) and not self.errors:
            raise InvalidOption(
                f'option "{first[0].name}" is for running statements: this one ends by itself',
                hint="leave it out",
                place=first[0].place,
            )
        return resolved

    def _refuse_collation(self, resolved: Resolved, s: st.Statement) -> None:
        """Refuses to store texts with a collation other than byte order: columns have no collation."""
        for node in resolved.expression.find_all(exp.Collate, exp.DataType):
            if isinstance(node, exp.Collate) or node.args.get("collate"):
                message = "a column that is kept has no collation"
                hint = "leave COLLATE out here, and write it where texts are compared"
                self.errors.append(NotSupported(message, hint=hint, place=s.place))
                return

    def _for_running(self, resolved: Resolved, s: st.Statement) -> list[Setting]:
        """Returns the options that only a statement over a stream can have. A loaded table may also set 'on.error', one
        over files and an INSERT of files the engine, and the changes of a query over tables 'query.name'.
        """
        loads = self._for_table and any(i.relation.rejects for i in resolved.inputs)
        emits = isinstance(s, st.Select) and s.query.emit == "changes"
        also = ("on.error",) if loads else ("query.name",) if emits else ()
        if isinstance(s, st.CreateTable | st.Insert) and any(i.relation.spreads for i in resolved.inputs):
            also = (*also, *ENGINE_OPTIONS)
        return [x for x in self._query_settings if x.name.lower() not in also]

    def refuse_engine(self, why: str) -> None:
        """Refuses options that choose an engine."""
        for setting in self._query_settings:
            if setting.name.lower() in ENGINE_OPTIONS:
                raise InvalidOption(
                    f'option "{setting.name}" has no effect here: {why}',
                    hint="leave it out",
                    place=setting.place,
                )

    def running_settings(self, settings: tuple[Setting, ...], owner: str) -> tuple[Setting, ...]:
        """Returns the settings without the options of running statements, and stores these for ``Checked``."""
        mine = [x for x in settings if find_option(RUNNING_OPTIONS, x.name)]
        defaults = [x for x in settings if x.name.lower().startswith("default.")]
        self._query_settings = mine + defaults
        self.query_values = read_options(owner, RUNNING_OPTIONS, mine)
        self.defaults = {x.name.lower().partition(".")[2]: x.value for x in defaults}
        return tuple(x for x in settings if x not in self._query_settings)

    def _describe_uri(self, uri: str, alias: str, at: AsOf | None) -> Relation:
        options = self.world.source_options(uri)
        if at is not None:
            if find_option(options, "version") is None:
                raise no_versions(f'"{without_passwords(uri)}" does not keep earlier versions')
            uri = uri_at(uri, at)
        values = read_options(f'source "{alias}"', options, self._shares.get(alias, ()))
        if self.source_values.get(uri, values) != values:
            raise NotSupported(
                f'"{uri}" is read twice with different options', hint="make a table of one of them first"
            )
        self.source_values[uri] = values
        try:
            return self.world.describe(uri, values, self._wanted.get(uri), table=self._for_table)
        except SourceEmpty:
            if self._all is None:
                raise
            return self.world.describe(uri, values, self._all, table=self._for_table)

    def group_outputs(self, resolved: Resolved, s: st.Statement) -> list[int] | None:
        """Returns the outputs that are grouping columns, for an aggregate over a stream; None for any other query."""
        if self.errors or not is_live_aggregate(resolved):
            return None
        if isinstance(s, st.Insert) and resolved.expression.meta.get("distinct"):
            return None
        found: list[int] = []
        for name in split(resolved).keys:
            if name is None:
                self.errors.append(
                    NotSupported(
                        "a live aggregate must give all its grouping columns",
                        hint="add every column of GROUP BY to SELECT",
                        place=s.place,
                    )
                )
            else:
                found.append(resolved.schema.names.index(name))
        return found

    def group_key(
        self, groups: list[int], schema: Schema, key: tuple[str, ...] | None, s: st.Statement
    ) -> tuple[str, ...]:
        """Returns the key of a table that stores an aggregate: its grouping columns, whatever ``key`` was declared."""
        names = tuple(schema.names[i] for i in groups)
        if key is not None and {k.lower() for k in key} != {n.lower() for n in names}:
            wanted = ", ".join(names)
            self.errors.append(
                NotSupported(
                    f"the primary key of a live aggregate is its grouping columns ({wanted or 'none'})",
                    hint=f"PRIMARY KEY ({wanted})" if wanted else "an aggregate without GROUP BY has no key",
                    place=s.place,
                )
            )
        return names

    def shape(self, resolved: Resolved, declared: Schema, s: st.Statement) -> Resolved:
        shaped, errors = assign(resolved, declared, list(declared.names), s.place)
        self.errors.extend(errors)
        return shaped

    def renamed(
        self, resolved: Resolved, names: tuple[str, ...], s: st.CreateTable | st.CreateView
    ) -> Resolved:
        columns = resolved.schema.columns
        if len(names) != len(columns):
            self.errors.append(
                TypeMismatch(
                    f'view "{s.name}" names {len(names)} columns, its query gives {len(columns)}',
                    place=s.place,
                )
            )
        renamed = tuple(Column(n, c.type) for n, c in zip(names, columns, strict=False))
        return self.named_outputs(dataclasses.replace(resolved, schema=Schema(renamed)), s)

    def named_outputs(self, resolved: Resolved, s: st.Statement) -> Resolved:
        seen: set[str] = set()
        for column in resolved.schema:
            if column.name.lower() in seen:
                self.errors.append(
                    SqlError(
                        f'the query gives two columns "{column.name}"',
                        hint="give one of them another name with AS",
                        place=s.place,
                    )
                )
            seen.add(column.name.lower())
        return resolved

    def type_of(self, node: exp.Expr, resolver: Resolver) -> pa.DataType | None:
        try:
            return type_of(node)
        except TypeMismatch as error:
            error.place = error.place or resolver.place(node)
            self.errors.append(error)
            return None

    def refuse(self, what: str, s: st.Statement) -> None:
        self.errors.append(
            NotSupported(
                f"{what} is not supported yet",
                hint="docs/limits.md lists what this version runs",
                place=s.place,
            )
        )


def _kept_version(resolved: Resolved, query: st.Query, s: st.Statement) -> Error | None:
    """Returns the error about a version of a table in a query that follows its tables: a version does not change."""
    if isinstance(s, st.Select | st.Insert | st.CreateView) and not resolved.running and query.emit is None:
        return None
    for relation in (i.relation for i in resolved.inputs):
        if relation.at is not None:
            return NotSupported(
                f'"{relation.name}" {words_of(relation.at)} is read once, and this statement follows its tables',
                hint="query it with SELECT, or copy it with INSERT INTO … SELECT",
                place=s.place,
            )
    return None


def _uris(tree: exp.Expr) -> dict[str, str]:
    """Returns alias → URI of the sources in a query."""
    return {t.alias or t.name: t.name for t in tree.find_all(exp.Table) if t.meta.get("uri")}


def _declared(s: st.Statement, query: exp.Expr) -> Schema | None:
    """Returns the columns that a source without columns yet must have, from the declared columns of the table: all of
    them for SELECT *, else those that the query takes unchanged, if it reads no others.
    """
    if not isinstance(s, st.CreateTable) or not s.columns or not isinstance(query, exp.Select):
        return None
    outputs = [o.unalias() for o in query.expressions]
    if len(outputs) == 1 and isinstance(outputs[0], exp.Star):
        return Schema(tuple(Column(c.name, c.type) for c in s.columns))
    taken = {
        o.name.lower(): Column(o.name, c.type)
        for o, c in zip(outputs, s.columns, strict=False)
        if type(o) is exp.Column
    }
    read = {c.name.lower() for c in query.find_all(exp.Column)}
    return Schema(tuple(taken.values())) if taken and read <= set(taken) else None
