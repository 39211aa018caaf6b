"""Checking: statements against the catalog, before anything runs.

`Checker.check` finds every mistake of a statement and tells what it declares; what the engine cannot run yet is
refused here, by name. A name whose statement is wrong is declared all the same, so that one mistake gives one message.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
from sqlglot import exp

from millpond.errors import (
    AlreadyExists,
    Error,
    InvalidOption,
    NotSupported,
    Place,
    SqlError,
    TypeMismatch,
    UnknownName,
    did_you_mean,
)
from millpond.options import Option, Setting, find_option, read_options, unknown_option
from millpond.sql import statements as st
from millpond.sql.aggregate import check_aggregate, is_live_aggregate, lower_distinct, split
from millpond.sql.assign import assign, assignable, build_type, check_count
from millpond.sql.blocks import Blocks, stream_of, whole_stream
from millpond.sql.catalog import Catalog, Relation
from millpond.sql.checked import (
    COMMON_TABLE_OPTIONS,
    RUNNING_OPTIONS,
    STREAM_OPTIONS,
    Checked,
    World,
    limits_of,
    named,
)
from millpond.sql.errortables import check_errors_into, error_relation
from millpond.sql.fold import Fold
from millpond.sql.indexes import check_create_index, check_drop_index
from millpond.sql.joins import joins_of, lower_joins, window_mark
from millpond.sql.live import check_live, follows_its_query, grouping_outputs
from millpond.sql.misses import check_misses, miss_options
from millpond.sql.mutation import (
    Mutation,
    check_delete,
    check_merge,
    check_truncate,
    check_update,
    check_upsert,
)
from millpond.sql.resolve import Resolved, Resolver
from millpond.sql.running import check_running
from millpond.sql.sharing import share_out, without_later
from millpond.sql.typing import type_of
from millpond.sql.wanted import wanted_schemas
from millpond.sql.windowing import WINDOW_OPTIONS, check_window, has_window, lower_window, retained
from millpond.types import Column, Schema, type_name

Locate = Callable[[int, int], Place]
_UNKNOWN = Schema(())


class Checker:
    """Checks the statements of one text in order; the catalog grows with what they declare."""

    def __init__(
        self,
        catalog: Catalog,
        world: World,
        *,
        locate: Locate | None = None,
        functions: Iterable[str] = (),
    ):
        self.catalog = catalog
        self.world = world
        self.locate = locate
        self.functions = tuple(functions)
        self.errors: list[Error] = []
        self._source_values: dict[str, Mapping[str, Any]] = {}
        self._shares: Mapping[str, Sequence[Setting]] = {}
        self._wanted: Mapping[str, Schema] = {}
        self._query_settings: list[Setting] = []
        self._query_values: Mapping[str, Any] = {}
        self._defaults: Mapping[str, str] = {}

    def check(self, statement: st.Statement) -> Checked | None:
        """The checked statement, or None; then ``errors`` has grown."""
        before = len(self.errors)
        self._source_values = {}
        self._query_values = {}
        self._defaults = {}
        method = getattr(self, "_" + type(statement).__name__.lower(), None)
        if method is None:
            self.refuse(_title(statement), statement)
            return None
        checked: Checked | None
        try:
            checked = method(statement)
        except Error as error:
            error.place = error.place or statement.place
            self.errors.append(error)
            return None
        if checked is None or len(self.errors) != before:
            return None
        into = getattr(statement, "errors_into", None)
        if checked.running and not isinstance(statement, st.CreateView):
            return self._as_running(checked, into)
        if into is not None and not isinstance(statement, st.Explain):
            self.errors.append(
                SqlError(
                    "ERROR INTO is for running statements: this one ends by itself", place=statement.place
                )
            )
            return None
        return checked

    def _as_running(self, checked: Checked, errors_into: str | None) -> Checked | None:
        """The statement with what its options say; ``Error`` places itself."""
        before = len(self.errors)
        place = checked.statement.place
        if errors_into is not None:
            self.errors.extend(check_errors_into(self.catalog, errors_into, checked.target, place))
        name = self._query_values.get("query.name") or (checked.relation.name if checked.relation else None)
        if name and errors_into is None and self._query_values.get("on.error") != "fail":
            self.catalog.add(error_relation(name))
        try:
            if checked.relation is not None and self._query_values.get("query.name"):
                raise InvalidOption(
                    f'option "query.name" is for INSERT, SELECT and the like: this query is known by the name of'
                    f' {checked.relation.kind} "{checked.relation.name}"',
                    hint="leave it out",
                )
            checked = self._with_misses(checked)
        except InvalidOption as error:
            error.place = error.place or place
            self.errors.append(error)
        if len(self.errors) != before:
            return None
        return dataclasses.replace(checked, query_options=self._query_values)

    def _with_misses(self, checked: Checked) -> Checked:
        query, how = checked.resolved if checked.fold is None else None, miss_options(self._query_values)
        found = check_misses(query, how, self._defaults)
        return checked if found is None else dataclasses.replace(checked, resolved=found[0], misses=found[1])

    # CREATE

    def _createstream(self, s: st.CreateStream) -> Checked | None:
        skip = self._name_taken(s.name, "stream", s)
        if skip:
            return Checked(s, skip=True)
        declared = Schema(tuple(Column(c.name, c.type, c.nullable) for c in s.columns))
        self._no_duplicates(declared, s)
        if s.query is not None:
            return self._derived_stream(s, declared)
        connector = named(s.settings, "connector")
        if connector is None:
            read_options(f'stream "{s.name}"', STREAM_OPTIONS, self._later(s.settings))
            if not s.columns:
                self.errors.append(
                    SqlError(
                        f'stream "{s.name}" has neither columns nor a connector',
                        hint="declare its columns: CREATE STREAM s (id BIGINT, name STRING)",
                        place=s.place,
                    )
                )
            limits = limits_of(f'stream "{s.name}"', s.settings)
            relation = Relation(
                s.name, "stream", declared, running=True, watermark=s.watermark, limits=limits
            )
            self._check_watermark(relation, s)
            self.catalog.add(relation)
            return Checked(s, relation=relation)
        return self._connected_stream(s, connector, declared)

    def _connected_stream(self, s: st.CreateStream, connector: Setting, declared: Schema) -> Checked | None:
        uri = connector.value
        self.catalog.add(Relation(s.name, "stream", declared, running=True, uri=uri))
        try:
            options = self.world.source_options(uri)
        except Error as error:
            error.place = connector.place or s.place
            raise
        limits = limits_of(f'stream "{s.name}"', s.settings)
        rest = [x for x in self._later(s.settings) if not find_option(STREAM_OPTIONS, x.name)]
        values = read_options(f'stream "{s.name}"', options, rest)
        described = self.world.describe(uri, values, declared if s.columns else None)
        relation = Relation(
            s.name, "stream", described.schema, running=True, uri=uri, watermark=s.watermark, limits=limits
        )
        self._check_watermark(relation, s)
        self.catalog.add(relation)
        return Checked(s, relation=relation, source_options={s.name.lower(): values})

    def _derived_stream(self, s: st.CreateStream, declared: Schema) -> Checked | None:
        assert s.query is not None
        self.catalog.add(Relation(s.name, "stream", declared, running=True))
        resolved = self._resolve_query(s.query, s.settings, STREAM_OPTIONS, f'stream "{s.name}"', s)
        if resolved is None:
            return None
        if not resolved.running:
            self.refuse("CREATE STREAM … AS over tables", s)
        resolved = self._shape(resolved, declared, s) if s.columns else self._named_outputs(resolved, s)
        limits = limits_of(f'stream "{s.name}"', s.settings)
        relation = Relation(
            s.name, "stream", resolved.schema, running=True, watermark=s.watermark, limits=limits
        )
        self._check_watermark(relation, s)
        self.catalog.add(relation)
        return Checked(
            s, resolved=resolved, relation=relation, target=relation, source_options=self._source_values
        )

    def _check_watermark(self, relation: Relation, s: st.CreateStream) -> None:
        if s.watermark is None:
            return
        column = relation.schema.find(s.watermark.column)
        if column is None:
            names = relation.schema.names
            self.errors.append(
                UnknownName(
                    f'column "{s.watermark.column}" of WATERMARK is not in stream "{s.name}"',
                    hint=did_you_mean(s.watermark.column, names, f"its columns: {', '.join(names)}"),
                    place=s.place,
                )
            )
        elif column.type is not None and not pa.types.is_timestamp(column.type):
            self.errors.append(
                TypeMismatch(
                    f'WATERMARK is for a TIMESTAMP, "{column.name}" is {type_name(column.type)}',
                    place=s.place,
                )
            )

    def _createtable(self, s: st.CreateTable, names: tuple[str, ...] = ()) -> Checked | None:
        skip = self._name_taken(s.name, "table", s)
        if skip:
            return Checked(s, skip=True)
        key = s.key
        declared = Schema(tuple(Column(c.name, c.type, c.nullable) for c in s.columns), key)
        self._no_duplicates(declared, s)
        self.catalog.add(Relation(s.name, "table", declared))
        table_options = self._backend_options(s)
        if s.query is None:
            if not s.columns:
                self.errors.append(
                    SqlError(
                        f'table "{s.name}" has no columns', hint="declare them: (id BIGINT, …)", place=s.place
                    )
                )
            values = read_options(f'table "{s.name}"', table_options, self._later(s.settings, table_options))
            if values["primary.key"]:
                key = key or _split_key(values["primary.key"])
            relation = self._keyed(s, declared, key, values)
            return Checked(s, relation=relation, table_options=values)
        types = [c.type for c in declared]
        resolved = self._resolve_query(s.query, s.settings, table_options, f'table "{s.name}"', s, types)
        if resolved is None:
            return None
        if names:
            resolved = self._renamed(resolved, names, s)
        own = [x for x in s.settings if find_option(table_options, x.name)]
        values = read_options(f'table "{s.name}"', table_options, own)
        if values["primary.key"]:
            key = key or _split_key(values["primary.key"])
        over_tables = any(i.relation.kind == "table" for i in resolved.inputs)
        live = not resolved.running and values["refresh"] == "live" and over_tables
        if live:
            self.errors.extend(check_live(resolved, s.place))
        if resolved.running and values["refresh"] == "once":
            self.refuse("'refresh' = 'once' over a stream", s)
        groups = self._group_outputs(resolved, s)
        grouping = grouping_outputs(resolved) if live else ()
        resolved = self._shape(resolved, declared, s) if s.columns else self._named_outputs(resolved, s)
        if live and not key and grouping:
            key = tuple(resolved.schema.names[i] for i in grouping)
            values = {**values, "null_keys": True}
        if groups is not None:
            key = self._group_key(groups, resolved.schema, key, s)
            values = {**values, "null_keys": True}
        relation = self._keyed(s, Schema(resolved.schema.columns), key, values)
        if live:
            relation = dataclasses.replace(relation, live=True)
            self.catalog.add(relation)
        return Checked(
            s,
            resolved=Resolved(resolved.expression, relation.schema, resolved.inputs),
            relation=relation,
            target=relation,
            table_options=values,
            source_options=self._source_values,
        )

    def _createview(self, s: st.CreateView) -> Checked | None:
        if self._name_taken(s.name, "view", s):
            return Checked(s, skip=True)
        self.catalog.add(Relation(s.name, "view", _UNKNOWN))
        if s.materialized:
            return self._materialized(s)
        resolved = self._resolve_query(s.query, s.settings, (), f'view "{s.name}"', s)
        if resolved is None:
            return None
        schema = (self._renamed(resolved, s.names, s) if s.names else self._named_outputs(resolved, s)).schema
        relation = Relation(s.name, "view", schema, running=resolved.running, query=s.query)
        self.catalog.add(relation)
        return Checked(s, resolved=resolved, relation=relation, source_options=self._source_values)

    def _materialized(self, s: st.CreateView) -> Checked | None:
        """A table by another name. Names of its columns rename those of the query."""
        table = st.CreateTable(
            name=s.name,
            text=s.text,
            place=s.place,
            key=s.key,
            query=s.query,
            settings=s.settings,
            errors_into=s.errors_into,
        )
        self.catalog.remove(s.name)
        checked = self._createtable(table, s.names)
        return checked and dataclasses.replace(checked, statement=s)

    # INSERT, SELECT

    def _insert(self, s: st.Insert) -> Checked | None:
        if s.target_is_uri:
            return self._insert_outside(s)
        target = self.catalog.find(s.target)
        if target is None:
            self.errors.append(self.catalog.unknown(s.target, place=s.place))
            return None
        if target.kind not in ("table", "stream") or (target.kind == "stream" and target.uri):
            self.errors.append(
                SqlError(
                    f'"{s.target}" cannot be inserted into: it is a {target.kind}'
                    + (" that reads a connector" if target.uri else ""),
                    place=s.place,
                )
            )
            return None
        if target.live:
            self.errors.append(follows_its_query(target.name, s.place))
            return None
        columns = self._target_columns(s, target)
        if columns is None:
            return None
        if s.query is None:
            if s.settings:
                raise unknown_option("INSERT … VALUES", (), s.settings[0])
            return self._insert_values(s, target, columns)
        types = [c.type for n in columns if (c := target.schema.find(n)) is not None]
        resolved = self._resolve_query(s.query, s.settings, (), f'INSERT INTO "{s.target}"', s, types)
        if resolved is None:
            return None
        groups = self._group_outputs(resolved, s)
        shaped, errors = assign(resolved, target.schema, columns, s.place)
        self.errors.extend(errors)
        if groups is not None and target.kind == "table" and not errors:
            filled = Schema(tuple(c for n in columns if (c := target.schema.find(n)) is not None))
            self._group_key(groups, filled, target.schema.key, s)
        return Checked(s, resolved=shaped, target=target, source_options=self._source_values)

    def _target_columns(self, s: st.Insert, target: Relation) -> list[str] | None:
        if not s.columns:
            return list(target.schema.names)
        found: list[str] = []
        for name in s.columns:
            column = target.schema.find(name)
            if column is None:
                self.errors.append(
                    UnknownName(
                        f'column "{name}" is not in {target.kind} "{target.name}"',
                        hint=did_you_mean(
                            name, target.schema.names, f"its columns: {', '.join(target.schema.names)}"
                        ),
                        place=s.place,
                    )
                )
            elif column.name in found:
                self.errors.append(SqlError(f'column "{name}" is named twice', place=s.place))
            else:
                found.append(column.name)
        return found if len(found) == len(s.columns) else None

    def _insert_outside(self, s: st.Insert) -> Checked | None:
        """INSERT INTO a URI: a sink."""
        if s.query is None or s.columns:
            self.refuse("INSERT INTO a URI with VALUES or columns", s)
            return None
        options = self.world.sink_options(s.target)
        resolved = self._resolve_query(s.query, s.settings, options, "INSERT INTO a URI", s)
        if resolved is None:
            return None
        if not resolved.running:
            self.refuse("INSERT INTO a URI from tables", s)
            return None
        if any(joins_of(resolved)):
            self.refuse("INSERT INTO a URI of joined streams: make a stream of them", s)
            return None
        if is_live_aggregate(resolved):
            self.refuse("INSERT INTO a URI of an aggregate: make a table of it", s)
            return None
        resolved = self._named_outputs(resolved, s)
        own = [x for x in s.settings if find_option(options, x.name)]
        values = read_options("INSERT INTO a URI", options, own)
        if values.get("delivery") == "exactly-once" and self._query_values.get("on.miss") == "retry":
            raise InvalidOption(
                "'on.miss' = 'retry' and 'delivery' = 'exactly-once' do not go together: rows that wait are not in the"
                " sink's commit",
                hint="join into a stream first, and insert from that",
                place=s.place,
            )
        target = Relation(s.target, "sink", resolved.schema, uri=s.target)
        return Checked(
            s,
            resolved=resolved,
            target=target,
            source_options=self._source_values,
            table_options=values,
        )

    def _insert_values(self, s: st.Insert, target: Relation, columns: list[str]) -> Checked | None:
        resolver = self.resolver()
        rows: list[tuple[exp.Expr, ...]] = []
        for row in s.values:
            error = check_count(len(row), columns, "a row of VALUES", s.place)
            if error is not None:
                self.errors.append(error)
                continue
            cells: dict[str, exp.Expr] = {}
            for name, cell in zip(columns, row, strict=True):
                column = target.schema.find(name)
                assert column is not None
                value = resolver.condition(cell, ())
                dtype = self._type(value, resolver)
                if not _insertable(dtype, column.type):
                    self.errors.append(
                        TypeMismatch(
                            f'column "{column.name}" is {type_name(column.type)}, '
                            f"this value is {type_name(dtype)}",
                            hint=f"write CAST(… AS {type_name(column.type)}) if it is meant",
                            place=resolver.place(cell) or s.place,
                        )
                    )
                if column.type is not None and dtype != column.type:
                    value = exp.Cast(this=value, to=build_type(column.type))
                cells[name.lower()] = value
            rows.append(tuple(cells.get(c.name.lower(), _null(c)) for c in target.schema))
        self.errors.extend(resolver.errors)
        return Checked(s, target=target, values=tuple(rows))

    def _select(self, s: st.Select) -> Checked | None:
        resolved = self._resolve_query(s.query, s.settings, (), "SELECT", s)
        if resolved is None:
            return None
        if s.query.emit == "changes" and not resolved.running:
            if not any(i.relation.kind == "table" for i in resolved.inputs):
                self.refuse("EMIT CHANGES on a query that reads neither a stream nor a table", s)
            self.errors.extend(check_live(resolved, s.place))
        return Checked(s, resolved=resolved, source_options=self._source_values)

    # UPDATE, DELETE, MERGE, UPSERT, TRUNCATE

    def _update(self, s: st.Update) -> Checked | None:
        return self._mutation(s, check_update(self, s))

    def _delete(self, s: st.Delete) -> Checked | None:
        return self._mutation(s, check_delete(self, s))

    def _merge(self, s: st.Merge) -> Checked | None:
        return self._mutation(s, check_merge(self, s))

    def _upsert(self, s: st.Upsert) -> Checked | None:
        return self._mutation(s, check_upsert(self, s))

    def _truncate(self, s: st.Truncate) -> Checked | None:
        return self._mutation(s, check_truncate(self, s))

    def _mutation(self, s: st.Statement, mutation: Mutation | Fold | None) -> Checked | None:
        if mutation is None:
            return None
        if not isinstance(mutation, Mutation):
            return Checked(
                s,
                resolved=mutation.events,
                target=mutation.target,
                fold=mutation,
                source_options=self._source_values,
            )
        return Checked(s, target=mutation.target, mutation=mutation, source_options=self._source_values)

    def writable(self, name: str, s: st.Statement) -> Relation | None:
        """The table that a statement changes."""
        target = self.catalog.find(name)
        if target is None:
            self.errors.append(self.catalog.unknown(name, "table", s.place))
        elif target.kind != "table":
            self.errors.append(
                SqlError(f'"{target.name}" is a {target.kind}: its rows cannot be changed', place=s.place)
            )
            return None
        elif target.live:
            self.errors.append(follows_its_query(target.name, s.place))
            return None
        return target

    def plain_write(self, s: st.Update | st.Delete | st.Merge | st.Upsert) -> bool:
        """Whether the statement has no clause that only a running one can have."""
        if s.settings:
            raise unknown_option(_title(s), (), s.settings[0])
        if isinstance(s, st.Update | st.Delete) and s.returning_into:
            self.errors.append(
                SqlError(
                    "RETURNING … INTO belongs to a statement that a stream drives",
                    hint="name the stream: UPDATE t SET … FROM stream s WHERE …",
                    place=s.place,
                )
            )
        return True

    def running_write(self, s: st.Update | st.Delete | st.Merge | st.Upsert) -> bool:
        """Whether a statement that a stream drives has no clause that it cannot have."""
        left = self._running_settings(self._later(s.settings), _title(s))
        if left:
            raise unknown_option(_title(s), RUNNING_OPTIONS, left[0])
        return True

    # the rest

    def _createindex(self, s: st.CreateIndex) -> Checked | None:
        return check_create_index(self, s)

    def _drop(self, s: st.Drop) -> Checked | None:
        if s.kind == "index":
            return check_drop_index(self, s)
        if s.kind == "query":
            return Checked(s)
        relation = self.catalog.find(s.name)
        if relation is None:
            if s.if_exists:
                return Checked(s, skip=True)
            self.errors.append(self.catalog.unknown(s.name, s.kind, s.place))
            return None
        kind = "table" if s.kind == "materialized view" else s.kind
        if relation.kind != kind:
            self.errors.append(
                SqlError(
                    f'"{relation.name}" is a {relation.kind}, not a {s.kind}',
                    hint=f"DROP {relation.kind.upper()} {relation.name}",
                    place=s.place,
                )
            )
            return None
        self.catalog.remove(s.name)
        return Checked(s, relation=relation)

    def _block(self, s: st.Block) -> Checked | None:
        """All statements of a block; if a stream drives them they are one running statement."""
        blocks = Blocks()
        found: list[Checked] = []
        for one in (s.begin, *s.statements, s.end):
            checked = self.check(one)
            self.errors.extend(blocks.check(one, checked))
            if checked is not None:
                found.append(checked)
        stream = next((r for c in found if (r := stream_of(c)) is not None), None)
        if stream is None:
            return Checked(s, block=tuple(found))
        members = tuple(found[1:-1])
        query = whole_stream(stream)
        self._query_values = self._defaults = {}
        return Checked(s, resolved=query, target=members[0].target, block=members)

    def _replay(self, s: st.Replay) -> Checked | None:
        return self._about(s.name, s)

    def _controlquery(self, s: st.ControlQuery) -> Checked | None:
        return Checked(s)

    def _begin(self, s: st.Begin) -> Checked | None:
        return Checked(s)

    def _commit(self, s: st.Commit) -> Checked | None:
        return Checked(s)

    def _rollback(self, s: st.Rollback) -> Checked | None:
        return Checked(s)

    def _show(self, s: st.Show) -> Checked | None:
        return Checked(s)

    def _describe(self, s: st.Describe) -> Checked | None:
        if "://" in s.name:
            values = read_options(s.name, self.world.source_options(s.name), ())
            return Checked(s, relation=self.world.describe(s.name, values, None))
        return self._about(s.name, s)

    def _showcreate(self, s: st.ShowCreate) -> Checked | None:
        return self._about(s.name, s)

    def _about(self, name: str, s: st.Statement) -> Checked | None:
        relation = self.catalog.find(name)
        if relation is None:
            self.errors.append(self.catalog.unknown(name, place=s.place))
            return None
        return Checked(s, relation=relation)

    def _explain(self, s: st.Explain) -> Checked | None:
        if s.analyze:
            self.refuse("EXPLAIN ANALYZE", s)
            return None
        catalog = self.catalog
        self.catalog = catalog.copy()
        try:
            inner = self.check(s.statement)
        finally:
            self.catalog = catalog
        if inner is None:
            return None
        return dataclasses.replace(inner, statement=s, skip=False)

    # parts

    def resolver(self, catalog: Catalog | None = None) -> Resolver:
        return Resolver(
            catalog or self.catalog, describe=self._describe_uri, locate=self.locate, functions=self.functions
        )

    def _resolve_query(
        self,
        query: st.Query,
        settings: tuple[Setting, ...],
        own_options: Sequence[Option],
        owner: str,
        s: st.Statement,
        targets: Sequence[pa.DataType | None] = (),
    ) -> Resolved | None:
        """The query, resolved; ``targets`` are the types of the columns that its outputs go to, if known."""
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
            settings = tuple(x for x in settings if x not in mine)
        expression, window = lower_window(query, self.catalog, outputs=not isinstance(s, st.Insert))
        settings = self._running_settings(self._later(settings, own_options), owner)
        uris = _uris(expression)
        self._shares, errors = share_out(self.world, settings, own_options, uris, owner)
        self.errors.extend(errors)
        self._wanted = {}
        resolver = self.resolver()
        resolved = resolver.resolve(expression)
        if not resolver.errors and (wanted := wanted_schemas(resolved, targets)):
            self._wanted = wanted
            resolver = self.resolver()
            resolved = resolver.resolve(expression)
        self.errors.extend(resolver.errors)
        if resolver.errors:
            return None
        if resolved.running:
            resolved, problems = lower_joins(resolved, resolver.place, s.place)
            self.errors.extend(problems)
            if problems:
                return None
        if window is not None:
            window = dataclasses.replace(window, late=values["late"], retention=retained(values["retention"]))
            if any(joins_of(resolved)):
                window = dataclasses.replace(window, mark=window_mark(resolved), delay=0)
            self.errors.extend(check_window(window, resolved.running, s.place))
            resolved.expression.meta["window"] = window
        if resolved.running:
            lower_distinct(resolved)
            self.errors.extend(check_running(resolved, resolver.place, s.place))
            self.errors.extend(check_aggregate(resolved, resolver.place, s.place))
        elif (first := self._query_settings[:1]) and not self.errors:
            raise InvalidOption(
                f'option "{first[0].name}" is for running statements: this one ends by itself',
                hint="leave it out",
                place=first[0].place,
            )
        return resolved

    def _running_settings(self, settings: tuple[Setting, ...], owner: str) -> tuple[Setting, ...]:
        """Takes out the options of running statements, which are kept for ``Checked``."""
        mine = [x for x in settings if find_option(RUNNING_OPTIONS, x.name)]
        defaults = [x for x in settings if x.name.lower().startswith("default.")]
        self._query_settings = mine + defaults
        self._query_values = read_options(owner, RUNNING_OPTIONS, mine)
        self._defaults = {x.name.lower().partition(".")[2]: x.value for x in defaults}
        return tuple(x for x in settings if x not in self._query_settings)

    def _describe_uri(self, uri: str, alias: str) -> Relation:
        options = self.world.source_options(uri)
        values = read_options(f'source "{alias}"', options, self._shares.get(alias, ()))
        if self._source_values.get(uri, values) != values:
            raise NotSupported(
                f'"{uri}" is read twice with different options', hint="make a table of one of them first"
            )
        self._source_values[uri] = values
        return self.world.describe(uri, values, self._wanted.get(uri))

    def _backend_options(self, s: st.CreateTable) -> tuple[Option, ...]:
        extension = named(s.settings, "extension")
        name = extension.value if extension else "memory"
        try:
            return (*COMMON_TABLE_OPTIONS, *self.world.backend_options(name))
        except Error as error:
            error.place = (extension.place if extension else None) or s.place
            raise

    def _later(self, settings: tuple[Setting, ...], declared: Sequence[Option] = ()) -> tuple[Setting, ...]:
        """The settings without those that this version refuses."""
        kept, errors = without_later(settings, declared)
        self.errors.extend(errors)
        return kept

    def _name_taken(self, name: str, kind: str, s: Any) -> bool:
        """Whether the statement has nothing to do; a taken name is an error otherwise."""
        there = self.catalog.find(name)
        if there is None:
            return False
        if s.if_not_exists:
            return True
        if s.or_replace:
            self.refuse("OR REPLACE", s)
            return False
        raise AlreadyExists(
            f'{there.kind.capitalize()} "{there.name}" already exists',
            hint=f"DROP {there.kind.upper()} {there.name} first, or CREATE {kind.upper()} IF NOT EXISTS",
            place=s.place,
        )

    def _keyed(
        self, s: st.CreateTable, schema: Schema, key: tuple[str, ...], values: Mapping[str, Any]
    ) -> Relation:
        spelled: list[str] = []
        for name in key:
            column = schema.find(name)
            if column is None:
                self.errors.append(
                    UnknownName(
                        f'key column "{name}" is not in table "{s.name}"',
                        hint=did_you_mean(name, schema.names, f"its columns: {', '.join(schema.names)}"),
                        place=s.place,
                    )
                )
            else:
                if (
                    column.type is not None
                    and (pa.types.is_nested(column.type) or pa.types.is_floating(column.type))
                    and s.query is None
                ):
                    self.errors.append(
                        TypeMismatch(
                            f'column "{column.name}" of type {type_name(column.type)} cannot be a primary key',
                            place=s.place,
                        )
                    )
                spelled.append(column.name)
        strict = values["on.conflict"] == "error"
        if strict and not key:
            self.errors.append(
                InvalidOption(
                    f"table \"{s.name}\" has no primary key: 'on.conflict' has no meaning",
                    hint="declare a PRIMARY KEY, or leave the option out",
                    place=s.place,
                )
            )
        keyed = Schema(schema.columns, tuple(spelled))
        relation = Relation(s.name, "table", keyed, strict=strict, place=self.world.place(values))
        self.catalog.add(relation)
        return relation

    def _no_duplicates(self, schema: Schema, s: st.Statement) -> None:
        seen: set[str] = set()
        for column in schema:
            if column.name.lower() == "_seq":
                self.errors.append(
                    SqlError('a column cannot be named "_seq": it is the order of a stream', place=s.place)
                )
            if column.name.lower() in seen:
                self.errors.append(SqlError(f'column "{column.name}" is declared twice', place=s.place))
            seen.add(column.name.lower())

    def _group_outputs(self, resolved: Resolved, s: st.Statement) -> list[int] | None:
        """The outputs that are grouping columns, for an aggregate over a stream; None for any other query."""
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

    def _group_key(
        self, groups: list[int], schema: Schema, key: tuple[str, ...], s: st.Statement
    ) -> tuple[str, ...]:
        """The key of a table that holds an aggregate: its grouping columns."""
        names = tuple(schema.names[i] for i in groups)
        if (key or isinstance(s, st.Insert)) and {k.lower() for k in key} != {n.lower() for n in names}:
            wanted = ", ".join(names)
            self.errors.append(
                NotSupported(
                    f"the primary key of a live aggregate is its grouping columns ({wanted or 'none'})",
                    hint=f"PRIMARY KEY ({wanted})" if wanted else "an aggregate without GROUP BY has no key",
                    place=s.place,
                )
            )
        return names

    def _shape(self, resolved: Resolved, declared: Schema, s: st.Statement) -> Resolved:
        shaped, errors = assign(resolved, declared, list(declared.names), s.place)
        self.errors.extend(errors)
        return shaped

    def _renamed(
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
        return self._named_outputs(dataclasses.replace(resolved, schema=Schema(renamed)), s)

    def _named_outputs(self, resolved: Resolved, s: st.Statement) -> Resolved:
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

    def _type(self, node: exp.Expr, resolver: Resolver) -> pa.DataType | None:
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


def _insertable(source: pa.DataType | None, target: pa.DataType | None) -> bool:
    """VALUES may also write dates and times as text."""
    if source is not None and target is not None and pa.types.is_string(source):
        if pa.types.is_date(target) or pa.types.is_timestamp(target):
            return True
    return assignable(source, target)


def _null(column: Column) -> exp.Expr:
    return exp.Cast(this=exp.Null(), to=build_type(column.type or pa.string()))


def _split_key(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _uris(tree: exp.Expr) -> dict[str, str]:
    """alias → URI of the sources in a query."""
    return {t.alias or t.name: t.name for t in tree.find_all(exp.Table) if t.meta.get("uri")}


def _title(statement: st.Statement) -> str:
    words = {
        st.Upsert: "UPSERT",
        st.Update: "UPDATE",
        st.Delete: "DELETE",
        st.Merge: "MERGE",
        st.Truncate: "TRUNCATE",
        st.AlterTable: "ALTER TABLE",
        st.ExplainUpgrade: "EXPLAIN UPGRADE",
        st.Replay: "REPLAY",
    }
    if isinstance(statement, st.ControlQuery):
        return f"{statement.action.upper()} QUERY"
    return words.get(type(statement), type(statement).__name__)
