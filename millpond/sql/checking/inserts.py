"""Checks INSERT and SELECT."""

from __future__ import annotations

import pyarrow as pa
from sqlglot import exp

from millpond.errors import (
    InvalidOption,
    InvalidRecord,
    SqlError,
    TypeMismatch,
    UnknownName,
    did_you_mean,
)
from millpond.options import find_option, read_options, unknown_option
from millpond.sql import statements as st
from millpond.sql.assign import assign, assignable, build_type, check_count
from millpond.sql.catalog import Relation
from millpond.sql.checked import Checked, CheckedInsert, CheckedSelect, CheckedValues
from millpond.sql.checking.queries import Queries
from millpond.sql.checking.sink_inserts import check_sink_insert
from millpond.sql.defaults import default_of, is_default, without_last
from millpond.sql.materialized_view import check_live, follows_its_query
from millpond.sql.options import SELECT_OPTIONS
from millpond.sql.reserved_names import is_shadow
from millpond.sql.resolve import Resolved
from millpond.sql.timeliterals import HINT, is_impossible
from millpond.types import Column, Schema, type_name


class Inserts:
    """Checks statements that add rows to a target, or return them."""

    def __init__(self, queries: Queries):
        self._queries = queries

    def insert(self, s: st.Insert) -> Checked | None:
        if s.target_is_uri:
            return check_sink_insert(self._queries, s)
        target = self._queries.catalog.find(s.target)
        if target is None:
            self._queries.errors.append(self._queries.catalog.unknown(s.target, place=s.place))
            return None
        if target.kind not in ("table", "stream") or (target.kind == "stream" and target.uri):
            self._queries.errors.append(
                SqlError(
                    f'"{s.target}" cannot be inserted into: it is a {target.kind}'
                    + (" that reads a connector" if target.uri else ""),
                    place=s.place,
                )
            )
            return None
        if target.live or is_shadow(target.name):
            self._queries.errors.append(follows_its_query(target.name, s.place))
            return None
        columns = self._target_columns(s, target)
        if columns is None or (target.is_open and s.query is None):
            return None
        if s.query is None:
            if s.settings:
                raise unknown_option("INSERT … VALUES", (), s.settings[0])
            return self._insert_values(s, target, columns)
        types = [c.type for n in columns if (c := target.schema.find(n)) is not None]
        resolved = self._queries.resolve(s.query, s.settings, (), f'INSERT INTO "{s.target}"', s, types)
        if resolved is None or target.is_open:
            return None
        groups = self._queries.group_outputs(resolved, s)
        if not s.columns:
            columns = without_last(columns, len(resolved.schema), target.schema)
        resolver = self._queries.resolver()
        shaped, errors = assign(
            resolved, target.schema, columns, s.place, lambda c: resolver.value(default_of(c))
        )
        self._queries.errors.extend(errors)
        if groups is not None and target.kind == "table" and not errors:
            filled = Schema(tuple(c for n in columns if (c := target.schema.find(n)) is not None))
            self._queries.group_key(groups, filled, target.schema.key, s)
        return CheckedInsert(
            s, shaped, self._queries.source_values, target, query_options=self._queries.query_values
        )

    def _target_columns(self, s: st.Insert, target: Relation) -> list[str] | None:
        if not s.columns:
            return list(target.schema.names)
        found: list[str] = []
        for name in s.columns if not target.is_open else ():
            column = target.schema.find(name)
            if column is None:
                self._queries.errors.append(
                    UnknownName(
                        f'column "{name}" is not in {target.kind} "{target.name}"',
                        hint=did_you_mean(
                            name, target.schema.names, f"its columns: {', '.join(target.schema.names)}"
                        ),
                        place=s.place,
                    )
                )
            elif column.name in found:
                self._queries.errors.append(SqlError(f'column "{name}" is named twice', place=s.place))
            else:
                found.append(column.name)
        return found if len(found) == len(s.columns) or target.is_open else None

    def _insert_values(self, s: st.Insert, target: Relation, columns: list[str]) -> Checked | None:
        resolver = self._queries.resolver()
        rows: list[tuple[exp.Expr, ...]] = []
        for number, row in enumerate(s.values):
            if not s.columns:
                columns = without_last(target.schema.names, len(row), target.schema)
            error = check_count(len(row), columns, "a row of VALUES", resolver.place(row[0]) or s.place)
            if error is not None:
                self._queries.errors.append(error)
                continue
            cells: dict[str, exp.Expr] = {}
            given: set[str] = set()
            for name, cell in zip(columns, row, strict=True):
                column = target.schema.find(name)
                assert column is not None
                value = resolver.value(default_of(column) if is_default(cell) else cell)
                dtype = self._queries.type_of(value, resolver)
                if not _insertable(dtype, column.type):
                    self._queries.errors.append(
                        TypeMismatch(
                            f'column "{column.name}" is {type_name(column.type)}, '
                            f"this value is {type_name(dtype)}",
                            hint=f"write CAST(… AS {type_name(column.type)}) if it is meant",
                            place=resolver.place(cell) or s.place,
                        )
                    )
                if _is_no_time(value, column.type):
                    self._queries.errors.append(
                        TypeMismatch(
                            f'"{value.name}" is no {type_name(column.type)}',
                            hint=HINT,
                            place=resolver.place(cell) or s.place,
                        )
                    )
                if not isinstance(value, exp.Null):
                    given.add(column.name)
                if column.type is not None and dtype != column.type:
                    value = exp.Cast(this=value, to=build_type(column.type))
                cells[name.lower()] = value
            for column in target.schema:
                if column.default is not None and column.name.lower() not in cells:
                    cells[column.name.lower()] = resolver.value(default_of(column))
                    given.add(column.name)
            for name in target.schema.key if not target.null_keys else ():
                if name not in given:
                    self._queries.errors.append(
                        InvalidRecord(
                            f'row {number} for table "{target.name}": field "{name}" is NULL or missing, but it is a'
                            " primary key",
                            row=number,
                            field=name,
                            place=s.place,
                        )
                    )
            rows.append(tuple(cells.get(c.name.lower(), _null(c)) for c in target.schema))
        self._queries.errors.extend(resolver.errors)
        return CheckedValues(s, target, tuple(rows))

    def select(self, s: st.Select) -> Checked | None:
        resolved = self._queries.resolve(s.query, s.settings, SELECT_OPTIONS, "SELECT", s)
        if resolved is None:
            return None
        op = self._op_column(s, resolved)
        if s.query.emit == "changes" and not resolved.running:
            if not any(i.relation.kind == "table" for i in resolved.inputs):
                self._queries.refuse("EMIT CHANGES on a query that reads neither a stream nor a table", s)
            self._queries.errors.extend(check_live(resolved, s.place))
        options = {} if resolved.running else self._queries.query_values
        return CheckedSelect(s, resolved, self._queries.source_values, op, query_options=options)

    def _op_column(self, s: st.Select, resolved: Resolved) -> str | None:
        """Returns the name of the column that says what happened to a row, if requested."""
        setting = next((x for x in s.settings if find_option(SELECT_OPTIONS, x.name)), None)
        if setting is None:
            return None
        name: str = read_options("SELECT", SELECT_OPTIONS, [setting])["op.column"]
        if not resolved.running and s.query.emit != "changes":
            raise InvalidOption(
                f'option "{setting.name}" is for queries that run: this one ends by itself',
                hint="EMIT CHANGES makes a query of tables a running one",
                place=setting.place,
            )
        if not name.strip() or name in resolved.schema:
            raise InvalidOption(
                f"\"{name}\" cannot be the column of 'op.column'",
                hint="give a name that no column of the query has, such as '_op'",
                place=setting.place,
            )
        return name


def _insertable(source: pa.DataType | None, target: pa.DataType | None) -> bool:
    """Returns whether VALUES may store this type: also accepts dates and times written as text."""
    if source is not None and target is not None and pa.types.is_string(source):
        if pa.types.is_date(target) or pa.types.is_timestamp(target):
            return True
    return assignable(source, target)


def _is_no_time(value: exp.Expr, dtype: pa.DataType | None) -> bool:
    """Returns whether a text is meant as a date or time but is not a valid one."""
    is_text = isinstance(value, exp.Literal) and value.is_string
    timed = dtype is not None and (pa.types.is_date(dtype) or pa.types.is_timestamp(dtype))
    return is_text and timed and is_impossible(value.name, dtype)


def _null(column: Column) -> exp.Expr:
    return exp.Cast(this=exp.Null(), to=build_type(column.type or pa.string()))
