"""Checks CREATE statements: streams, tables and views."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from millpond.errors import (
    Error,
    InvalidOption,
    SqlError,
    TypeMismatch,
    UnknownName,
    did_you_mean,
    without_passwords,
)
from millpond.options import Option, Setting, find_option, read_options
from millpond.sql import statements as st
from millpond.sql.catalog import Relation
from millpond.sql.checked import (
    Checked,
    CheckedCapture,
    CheckedNothing,
    CheckedStream,
    CheckedStreamAs,
    CheckedTable,
    CheckedTableAs,
    CheckedView,
)
from millpond.sql.checking.change_streams import changes_stream
from millpond.sql.checking.expiry import check_expiry
from millpond.sql.checking.queries import Queries
from millpond.sql.checking.streams import check_watermark, stored_stream
from millpond.sql.checking.table_changes import follows_table
from millpond.sql.checking.taken_names import name_taken
from millpond.sql.defaults import columns_without_defaults, declared_columns
from millpond.sql.errortables import error_relation
from millpond.sql.materialized_view import check_following, check_live, grouping_outputs
from millpond.sql.messagekey import KEY, split_key, stream_of_keys, with_message_key
from millpond.sql.options import (
    STREAM_OPTIONS,
    limits_of,
    named,
    options_of_tables,
    ttl_of,
)
from millpond.sql.resolve import Input, Resolved
from millpond.sql.table_copies import is_copy, key_through, over_copies
from millpond.sql.windowing import beside_window
from millpond.types import Schema, type_name

_UNKNOWN = Schema(())


class Creates:
    """Checks statements that declare a relation."""

    def __init__(self, queries: Queries):
        self._queries = queries

    def stream(self, s: st.CreateStream) -> Checked | None:
        skip = name_taken(self._queries.catalog, s.name, "stream", s)
        if skip:
            return CheckedNothing(s)
        declared = Schema(columns_without_defaults(s.columns, "a stream"))
        self._no_duplicates(declared, s)
        if s.query is not None:
            return self._derived_stream(s, declared)
        connector = named(s.settings, "connector")
        if connector is None:
            read_options(f'stream "{s.name}"', STREAM_OPTIONS, s.settings)
            if not s.columns:
                self._queries.errors.append(
                    SqlError(
                        f'stream "{s.name}" has neither columns nor a connector',
                        hint="declare its columns: CREATE STREAM s (id BIGINT, name STRING)",
                        place=s.place,
                    )
                )
            relation = stored_stream(s, declared)
            check_watermark(relation, s, self._queries.errors)
            self._queries.catalog.add(relation)
            return CheckedStream(s, relation)
        return self._connected_stream(s, connector, declared)

    def _connected_stream(self, s: st.CreateStream, connector: Setting, declared: Schema) -> Checked | None:
        uri = connector.value
        self._queries.catalog.add(Relation(s.name, "stream", declared, running=True, uri=uri))
        try:
            options = self._queries.world.source_options(uri)
        except Error as error:
            error.place = connector.place or s.place
            raise
        limits = limits_of(f'stream "{s.name}"', s.settings)
        rest = [x for x in s.settings if not find_option(STREAM_OPTIONS, x.name)]
        values = read_options(f'stream "{s.name}"', options, rest)
        described = self._queries.world.describe(uri, values, declared if s.columns else None)
        changes = self._queries.world.changes(uri, values, declared if s.columns else None)
        if changes is not None:
            relation = stored_stream(s, changes)
            self._queries.catalog.add(relation)
            return CheckedCapture(s, relation, {uri: values}, captured=described)
        if (wrong := named(s.settings, "retention")) is not None:
            raise InvalidOption(
                f'stream "{s.name}" reads "{without_passwords(uri)}", which decides itself how long it keeps rows',
                hint="leave 'retention' out, or copy the rows: CREATE STREAM … WITH ('retention' = …) AS SELECT …",
                place=wrong.place,
            )
        relation = Relation(
            s.name,
            "stream",
            described.schema,
            running=True,
            uri=uri,
            guessed=(described.guessed and described.running) or (described.rejects and not s.columns),
            watermark=s.watermark,
            limits=limits,
        )
        check_watermark(relation, s, self._queries.errors)
        self._queries.catalog.add(relation)
        self._queries.streams[s.name.lower()] = values
        return CheckedStream(s, relation, {s.name.lower(): values})

    def _derived_stream(self, s: st.CreateStream, declared: Schema) -> Checked | None:
        assert s.query is not None
        self._queries.catalog.add(Relation(s.name, "stream", declared, running=True))
        if follows_table(self._queries.catalog, s.query):
            return changes_stream(self._queries, s)
        resolved = self._queries.resolve(s.query, s.settings, STREAM_OPTIONS, f'stream "{s.name}"', s)
        if resolved is None:
            return None
        if not resolved.running:
            self._queries.refuse("CREATE STREAM … AS over tables, without EMIT CHANGES,", s)
        resolved = (
            self._queries.shape(resolved, declared, s)
            if s.columns
            else self._queries.named_outputs(resolved, s)
        )
        relation = stored_stream(s, resolved.schema)
        check_watermark(relation, s, self._queries.errors)
        self._queries.catalog.add(relation)
        return CheckedStreamAs(s, resolved, self._queries.source_values, relation)

    def table(self, s: st.CreateTable, names: tuple[str, ...] = ()) -> Checked | None:
        skip = name_taken(self._queries.catalog, s.name, "table", s)
        if skip:
            return CheckedNothing(s)
        key = s.key
        declared = Schema(declared_columns(s.columns, self._queries.resolver(), s.query), key)
        self._no_duplicates(declared, s)
        self._queries.catalog.add(Relation(s.name, "table", declared))
        table_options = self._backend_options(s)
        if s.query is None:
            if not s.columns:
                self._queries.errors.append(
                    SqlError(
                        f'table "{s.name}" has no columns', hint="declare them: (id BIGINT, …)", place=s.place
                    )
                )
            values = read_options(f'table "{s.name}"', table_options, s.settings)
            if values["primary.key"]:
                key = key or split_key(values["primary.key"])
            relation = self._keyed(s, declared, key, values)
            self._queries.errors.extend(self._expiry(relation, values, s.settings, None))
            self._queries.errors.extend(
                check_following(None, relation, values, s.settings, s.place, live=False)
            )
            return CheckedTable(s, relation, values)
        types = [c.type for c in declared]
        resolved = self._queries.resolve(s.query, s.settings, table_options, f'table "{s.name}"', s, types)
        if resolved is None:
            return None
        if names:
            resolved = self._queries.renamed(resolved, names, s)
        settings = beside_window(s.query, s.settings)
        own = [x for x in settings if find_option(table_options, x.name)]
        values = read_options(f'table "{s.name}"', table_options, own)
        if values["primary.key"]:
            key = key or split_key(values["primary.key"])
        follows = not resolved.running and values["refresh"] != "once"
        if follows and not is_copy(resolved, key):
            resolved = over_copies(resolved, self._queries.source_values)
        over_tables = any(i.relation.kind == "table" for i in resolved.inputs)
        live = follows and over_tables
        if live:
            self._queries.refuse_engine("what follows tables is evaluated in the process")
            self._queries.errors.extend(check_live(resolved, s.place))
        if resolved.running and values["refresh"] == "once":
            self._queries.refuse("'refresh' = 'once' over a stream", s)
        groups, keyed = self._queries.group_outputs(resolved, s), None
        if groups is None and resolved.running:
            stream = stream_of_keys(resolved, declared)
            if stream is not None:
                if not key and not names and values["primary.key"] is None:
                    keyed = self._message_keys(stream)
                if keyed or tuple(k.lower() for k in key) == (KEY,):
                    key = (KEY,)
                    resolved, declared = with_message_key(resolved, stream, declared)
        grouping = () if resolved.running else grouping_outputs(resolved)
        copies = key_through(resolved)
        resolved = (
            self._queries.shape(resolved, declared, s)
            if s.columns
            else self._queries.named_outputs(resolved, s)
        )
        if not key and grouping and values["primary.key"] is None:
            key = tuple(resolved.schema.names[i] for i in grouping)
            values = {**values, "null_keys": True}
        if not key and copies and values["primary.key"] is None:
            key = tuple(resolved.schema.names[i] for i in copies)
        if groups is not None:
            said = key if key or values["primary.key"] is not None else None
            key = self._queries.group_key(groups, resolved.schema, said, s)
            values = {**values, "null_keys": True}
        relation = self._keyed(s, Schema(resolved.schema.columns), key, values)
        once = values["refresh"] == "once" or resolved.running
        follows = "is a live aggregate" if groups is not None else None if once else "follows its inputs"
        self._queries.errors.extend(self._expiry(relation, values, own, follows))
        if live:
            relation = dataclasses.replace(relation, live=True)
            self._queries.catalog.add(relation)
        final = Resolved(resolved.expression, relation.schema, resolved.inputs)
        self._queries.errors.extend(check_following(final, relation, values, s.settings, s.place, live=live))
        loads = not resolved.running and any(i.relation.rejects for i in resolved.inputs)
        if loads and self._queries.query_values["on.error"] == "table":
            self._queries.catalog.add(error_relation(s.name))
        return CheckedTableAs(
            s,
            final,
            self._queries.source_values,
            relation,
            table_options=values,
            keyed=keyed,
            query_options=self._queries.query_values if loads else {},
        )

    def _message_keys(self, stream: Input) -> str | None:
        """Returns why a table without a declared key is keyed by the keys of the messages, if it is; found out once."""
        relation = stream.relation
        if relation.uri is None or self._queries.query_values.get("on.miss"):
            return None
        if self._queries.kept is not None:
            return "its messages had keys" if self._queries.kept.key == (KEY,) else None
        is_stream = relation.kind == "stream"
        values = (
            self._queries.streams[relation.name.lower()]
            if is_stream
            else self._queries.source_values[relation.uri]
        )
        declared = relation.schema if is_stream and not relation.guessed else relation.declared
        return self._queries.world.keyed(relation.uri, values, declared)

    def view(self, s: st.CreateView) -> Checked | None:
        if name_taken(self._queries.catalog, s.name, "view", s):
            return CheckedNothing(s)
        self._queries.catalog.add(Relation(s.name, "view", _UNKNOWN))
        if s.materialized:
            return self._materialized(s)
        resolved = self._queries.resolve(s.query, s.settings, (), f'view "{s.name}"', s)
        if resolved is None:
            return None
        schema = (
            self._queries.renamed(resolved, s.names, s)
            if s.names
            else self._queries.named_outputs(resolved, s)
        ).schema
        relation = Relation(s.name, "view", schema, running=resolved.running, query=s.query, text=s.text)
        self._queries.catalog.add(relation)
        return CheckedView(s, resolved, self._queries.source_values, relation)

    def _materialized(self, s: st.CreateView) -> Checked | None:
        """Checks a materialized view, which is a table by another name. Declared column names rename those of
        the query.
        """
        table = st.CreateTable(
            name=s.name,
            text=s.text,
            place=s.place,
            key=s.key,
            query=s.query,
            settings=s.settings,
            errors_into=s.errors_into,
        )
        self._queries.catalog.remove(s.name)
        checked = self.table(table, s.names)
        return checked and dataclasses.replace(checked, statement=s)

    def _backend_options(self, s: st.CreateTable) -> tuple[Option, ...]:
        extension = named(s.settings, "extension")
        name = extension.value if extension else "memory"
        try:
            own = self._queries.world.backend_options(name)
            return options_of_tables(own)
        except Error as error:
            error.place = (extension.place if extension else None) or s.place
            raise

    def _keyed(
        self, s: st.CreateTable, schema: Schema, key: tuple[str, ...], values: Mapping[str, Any]
    ) -> Relation:
        spelled: list[str] = []
        for name in key:
            column = schema.find(name)
            if column is None:
                self._queries.errors.append(
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
                    self._queries.errors.append(
                        TypeMismatch(
                            f'column "{column.name}" of type {type_name(column.type)} cannot be a primary key',
                            place=s.place,
                        )
                    )
                spelled.append(column.name)
        strict = values["on.conflict"] == "error"
        if strict and not key:
            self._queries.errors.append(
                InvalidOption(
                    f"table \"{s.name}\" has no primary key: 'on.conflict' has no meaning",
                    hint="declare a PRIMARY KEY, or leave the option out",
                    place=s.place,
                )
            )
        keyed = Schema(schema.columns, tuple(spelled))
        relation = Relation(
            s.name,
            "table",
            keyed,
            strict=strict,
            stored_in=self._queries.world.stored_in(values),
            evicts=self._queries.world.evicts(values),
            versioned=self._queries.world.keeps_versions(values),
            flushed_by=self._queries.world.flushed_by(values),
            divides=self._queries.world.divides(values, keyed),
            null_keys=bool(values.get("null_keys")),
            ttl=ttl_of(values),
        )
        self._queries.catalog.add(relation)
        return relation

    def _expiry(
        self,
        relation: Relation,
        values: Mapping[str, Any],
        settings: Sequence[Setting],
        follows: str | None,
    ) -> Iterator[Error]:
        timed = self._queries.world.times_rows(values)
        return check_expiry(relation, values, settings, follows, timed=timed)

    def _no_duplicates(self, schema: Schema, s: st.Statement) -> None:
        seen: set[str] = set()
        for column in schema:
            if column.name.lower() == "_seq":
                self._queries.errors.append(
                    SqlError('a column cannot be named "_seq": it is the order of a stream', place=s.place)
                )
            if column.name.lower() in seen:
                self._queries.errors.append(
                    SqlError(f'column "{column.name}" is declared twice', place=s.place)
                )
            seen.add(column.name.lower())
