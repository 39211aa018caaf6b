"""Checking: statements against the catalog, before anything runs.

`Checker.check` finds every mistake of a statement and tells what it declares; what the engine cannot run yet is
refused here, by name. A name whose statement is wrong is declared all the same, so that one mistake gives one message.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from millpond.errors import (
    AlreadyExists,
    CheckFailed,
    Error,
    InvalidOption,
    SqlError,
)
from millpond.options import read_options
from millpond.sql import statements as st
from millpond.sql.blocks import Blocks, stream_of, whole_stream
from millpond.sql.checked import (
    Checked,
)
from millpond.sql.checking.creates import Creates
from millpond.sql.checking.inserts import Inserts
from millpond.sql.checking.mutations import (
    check_delete,
    check_merge,
    check_truncate,
    check_update,
    check_upsert,
)
from millpond.sql.errortables import check_errors_into, error_relation
from millpond.sql.fold import Fold
from millpond.sql.identity import identity
from millpond.sql.indexes import check_create_index, check_drop_index
from millpond.sql.misses import check_misses, miss_options
from millpond.sql.mutation import Mutation
from millpond.sql.printer import print_name
from millpond.sql.querynames import FILLS, filling, made_name, unknown_query
from millpond.sql.words import point_at_word, title

_CREATES = (st.CreateStream, st.CreateTable, st.CreateView)


class Checker(Creates, Inserts):
    """Checks the statements of one text in order; the catalog grows with what they declare."""

    def check(self, statement: st.Statement) -> Checked | None:
        """The checked statement, or None; then ``errors`` has grown."""
        before = len(self.errors)
        self.catalog.making = None
        self._source_values = {}
        self._query_values = {}
        self._defaults = {}
        method = getattr(self, "_" + type(statement).__name__.lower(), None)
        if method is None:
            self.refuse(title(statement), statement)
            return None
        checked = self._checked(method, statement)
        for error in self.errors[before:]:
            point_at_word(error, statement)
        if checked is None or len(self.errors) != before:
            return None
        if isinstance(statement, st.Explain):
            return checked  # its statement has been through here
        into = getattr(statement, "errors_into", None)
        if checked.running and not isinstance(statement, st.CreateView):
            return self._as_running(checked, into)
        if checked.live or (
            checked.running and isinstance(statement, st.CreateView) and statement.materialized
        ):
            self._name(checked)
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

    def _as_running(self, checked: Checked, errors_into: str | None) -> Checked | None:
        """The statement with what its options say; ``Error`` places itself."""
        before = len(self.errors)
        place = checked.statement.place
        if errors_into is not None:
            self.errors.extend(check_errors_into(self.catalog, errors_into, checked.target, place))
        try:
            self._check_query_name(checked)
            checked = self._with_misses(checked)
        except (InvalidOption, AlreadyExists) as error:
            error.place = error.place or place
            self.errors.append(error)
        if len(self.errors) != before:
            return None
        checked = dataclasses.replace(checked, query_options=self._query_values)
        name = self._name(checked)
        if errors_into is None and self._query_values.get("on.error") != "fail":
            self.catalog.add(error_relation(name))
        return checked

    def _check_query_name(self, checked: Checked) -> None:
        """Queries, and the tables and streams that they fill, share their names: error tables are named by them."""
        named = self._query_values.get("query.name")
        if named and checked.relation is not None:
            raise InvalidOption(
                f'option "query.name" is for INSERT, SELECT and the like: this query is known by the name of'
                f' {checked.relation.kind} "{checked.relation.name}"',
                hint="leave it out",
            )
        if named and (not named.strip() or named.lower().startswith(FILLS)):
            raise InvalidOption(
                f'"{named}" cannot be the name of a query',
                hint="it has letters, and does not begin with table: or stream:",
            )
        name = named or (checked.relation.name if checked.relation is not None else "")
        taken = self._queries.get(name.lower())
        if taken is not None:
            raise AlreadyExists(f'query "{taken}" already exists', hint="give it another 'query.name'")

    def _name(self, checked: Checked) -> str:
        """Notes by which names a statement that will run is known; answers the shortest."""
        key, relation = identity(checked.statement), checked.relation
        if relation is not None:
            own = filling(relation.kind, relation.name)
            self._queries |= {relation.name.lower(): own, own.lower(): own}
            return relation.name
        name: str = checked.query_options.get("query.name") or made_name(
            checked, self._counts[key], self._queries
        )
        self._counts[key] += 1
        self._queries[name.lower()] = name
        return name

    def _with_misses(self, checked: Checked) -> Checked:
        query, how = checked.resolved if checked.fold is None else None, miss_options(self._query_values)
        found = check_misses(query, how, self._defaults)
        return checked if found is None else dataclasses.replace(checked, resolved=found[0], misses=found[1])

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

    # the rest

    def _createindex(self, s: st.CreateIndex) -> Checked | None:
        return check_create_index(self.catalog, s)

    def _drop(self, s: st.Drop) -> Checked | None:
        if s.kind == "index":
            return check_drop_index(self.catalog, s)
        if s.kind == "query":
            if not s.if_exists and not self._knows_query(s.name, s):
                return None
            own = self._queries.get(s.name.lower())
            if own is not None and not own.startswith(FILLS):
                self._forget_query(own)
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
                    hint=f"DROP {relation.kind.upper()} {print_name(relation.name)}",
                    place=s.place,
                )
            )
            return None
        self.catalog.remove(s.name)
        self._forget_query(filling(relation.kind, relation.name))
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
        return Checked(s) if self._knows_query(s.name, s) else None

    def _knows_query(self, name: str, s: st.Statement) -> bool:
        """Whether a running statement has this name."""
        if name.lower() in self._queries or name.lower() in self._dropped:
            return True
        self.errors.append(unknown_query(name, self._queries.values(), s.place))
        return False

    def _forget_query(self, query: str) -> None:
        self._queries = {name: own for name, own in self._queries.items() if own.lower() != query.lower()}

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
        if isinstance(s.statement, st.NamedQuery):
            return Checked(s) if self._knows_query(s.statement.name, s.statement) else None
        catalog, queries, counts = self.catalog, self._queries, self._counts
        self.catalog, self._queries, self._counts = catalog.copy(), dict(queries), counts.copy()
        there = catalog.find(s.statement.name) if s.analyze and isinstance(s.statement, _CREATES) else None
        if there is not None:  # it is looked at
            self._forget_query(filling(there.kind, there.name))
            self.catalog.remove(there.name)
        try:
            inner = self.check(s.statement)
        finally:
            self.catalog, self._queries, self._counts = catalog, queries, counts
        if inner is None:
            return None
        return dataclasses.replace(inner, statement=s, skip=False)
