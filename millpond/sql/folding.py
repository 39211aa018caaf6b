"""Checks running UPDATE, DELETE, MERGE and UPSERT: each becomes a fold over the events of its stream."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from sqlglot import exp

from millpond.errors import NotSupported, SqlError
from millpond.sql import statements as st
from millpond.sql.assign import check_count
from millpond.sql.builder import MutationBuilder, assigned_by, inserted_by
from millpond.sql.catalog import Relation
from millpond.sql.conjuncts import all_of, bare, conjuncts
from millpond.sql.events import Events, column, inputs_of, named, seq
from millpond.sql.fold import (
    EVENTS,
    SEQ,
    TURN,
    E,
    Fold,
    KeyFold,
    Returning,
    RowFold,
    T,
    When,
    identity_columns,
)
from millpond.sql.resolve import Input, Resolved
from millpond.sql.running_queries import check_running
from millpond.types import Column, Schema


def fold_rows(build: MutationBuilder, s: st.Update | st.Delete) -> Fold | None:
    """Builds the fold of a running UPDATE or DELETE."""
    target = build.target
    given = s.assignments if isinstance(s, st.Update) else ()
    row = build.new_row(given, keep=True) if isinstance(s, st.Update) else []
    into = _returning_stream(build, s) if s.returning_into else None
    select = build.select([*row, *s.returning], s.source, s.joins, s.where)
    resolved = _resolve(build, select)
    if resolved is None:
        return None
    tree = resolved.expression
    assert isinstance(tree, exp.Select)
    events = Events(target, build.alias, [name for name, _ in given], build.report)
    where = tree.args.get("where")
    own, fixed, rest = _split(list(conjuncts(where.this)) if where is not None else [], events)
    outputs = [o.unalias() for o in tree.expressions]
    values = tuple(
        events.of_step(build.fit(v, c)) for v, c in zip(outputs[: len(row)], target.schema, strict=False)
    )
    rests = all_of([events.of_step(c) for c in rest])
    returning = None
    if into is not None:
        returning = _returning(build, events, into, outputs[len(row) :], values)
    read = _read(
        events, (*values, *((rests,) if rests is not None else ()), *(returning.values if returning else ()))
    )
    keys = events.equalities(fixed)
    among = events.equalities(rest) if not keys else []
    lookup = events.lookup(keys or among)
    pairs = _pairs(resolved, events, fixed, among, read, turns=returning is not None)
    found = events.query(tree, resolved.inputs, _view(tree), own)
    _check(build, found)
    return RowFold(target, found, pairs, Schema(read), rests, values, lookup, returning)


def _split(
    conditions: list[exp.Expr], events: Events
) -> tuple[list[exp.Expr], list[exp.Expr], list[exp.Expr]]:
    """Splits conditions: those on the source alone, those that no assignment changes, and the others."""
    own = [c for c in conditions if not events.reads_row(c)]
    rest = [c for c in conditions if events.reads_assigned(c)]
    return own, [c for c in conditions if c not in own and c not in rest], rest


def _read(events: Events, nodes: Sequence[exp.Expr]) -> tuple[Column, ...]:
    """Returns the columns of an event that the steps of the fold read."""
    used = {c.name for node in nodes for c in node.find_all(exp.Column) if c.table == E}
    return tuple(c for c in (*events.columns, *(c for _, c in events.fixed)) if c.name in used)


def _pairs(
    resolved: Resolved,
    events: Events,
    fixed: list[exp.Expr],
    among: list[tuple[exp.Column, exp.Expr]],
    read: tuple[Column, ...],
    *,
    turns: bool,
) -> Resolved:
    """Finds which events can concern which rows. ``among`` are conditions that some event of the batch must satisfy
    with the row as it is before the batch: a row without such an event is not changed by the first event, nor by a
    later one.
    """
    tree = resolved.expression
    identity = identity_columns(events.target)
    hoisted = {c.name: node for node, c in events.fixed}
    outputs: list[exp.Expr] = [
        exp.alias_(column(tree.args["from_"].this.alias, c), f"i{n}", quoted=True)
        for n, c in enumerate(identity)
    ]
    outputs += [named(hoisted.get(c.name, column(E, c)).copy(), c.name) for c in read]
    outputs.append(exp.alias_(seq(), SEQ, quoted=True))
    if turns:
        outputs.append(exp.alias_(_turn([o.this for o in outputs[: len(identity)]]), TURN, quoted=True))
    on = all_of([events.of_pair(c) for c in fixed])
    join = exp.Join(this=_events(E), on=on) if on is not None else exp.Join(this=_events(E), kind="CROSS")
    select = exp.Select(
        expressions=outputs, from_=exp.From(this=tree.args["from_"].this.copy()), joins=[join]
    )
    if among:
        first = [exp.EQ(this=mine.copy(), expression=_of(events.event(value))) for mine, value in among]
        some = exp.Select(
            expressions=[exp.alias_(exp.Literal.number(1), "one", quoted=True)],
            from_=exp.From(this=_events("__x")),
            where=exp.Where(this=all_of(list(first))),
        )
        select.set("where", exp.Where(this=exp.Exists(this=some)))
    columns = (
        *(Column(f"i{n}", c.type) for n, c in enumerate(identity)),
        *read,
        Column(SEQ, pa.int64()),
        *((Column(TURN, pa.int32()),) if turns else ()),
    )
    source = Relation(EVENTS, "source", Schema((*events.columns, Column(SEQ, pa.int64()))))
    inputs = (*inputs_of(select, resolved.inputs), Input(EVENTS, E, source))
    return Resolved(select, Schema(columns), inputs)


def _turn(row: list[exp.Expr]) -> exp.Expr:
    """Returns the ordinal of a pair's event for its row."""
    order = exp.Order(expressions=[exp.Ordered(this=seq(), nulls_first=True)])
    return exp.Window(this=exp.RowNumber(), partition_by=[r.copy() for r in row], order=order)


def _events(alias: str) -> exp.Table:
    return exp.Table(
        this=exp.to_identifier(EVENTS), alias=exp.TableAlias(this=exp.to_identifier(alias, quoted=True))
    )


def _of(value: exp.Column) -> exp.Column:
    value.set("table", exp.to_identifier("__x", quoted=True))
    return value


def _returning_stream(build: MutationBuilder, s: st.Update | st.Delete) -> Relation | None:
    into = build.checker.catalog.find(s.returning_into or "")
    if into is None or into.kind != "stream" or into.uri:
        build.error(
            build.checker.catalog.unknown(s.returning_into or "", "stream", s.place)
            if into is None or into.kind != "stream"
            else SqlError(f'stream "{into.name}" reads a connector: rows cannot be sent to it')
        )
        return None
    if build.target.stored_in is not None:
        build.error(
            NotSupported(
                f'RETURNING … INTO needs a table of the app: "{build.target.name}" lives in a database, and rows of '
                "a stream cannot be in its commit",
                hint="keep the table in memory, or leave RETURNING out",
            )
        )
    return into


def _returning(
    build: MutationBuilder,
    events: Events,
    into: Relation,
    outputs: list[exp.Expr],
    values: tuple[exp.Expr, ...],
) -> Returning | None:
    """Returns what an applied event returns: columns of the target are those of the new row, or of the deleted one."""
    wrong = check_count(len(outputs), into.schema.names, "RETURNING", build.statement.place)
    if wrong is not None:
        build.error(wrong)
        return None
    made: list[exp.Expr] = []
    for output, target in zip(outputs, into.schema, strict=True):
        value = events.of_step(build.fit(output, target))
        for read in list(value.find_all(exp.Column)) if values else ():
            if read.table == T:
                new = exp.Paren(this=values[int(read.name[1:])].copy())
                value = new if read is value else value
                read.replace(new)
        made.append(value)
    return Returning(into, tuple(made))


def fold_merge(build: MutationBuilder, s: st.Merge) -> Fold | None:
    """Builds the fold of a running MERGE."""
    merge = s.expression
    source, on = merge.args["using"], merge.args["on"]
    whens: list[tuple[str, exp.Expr | None, list[exp.Expr]]] = []
    for when in merge.args["whens"].expressions:
        then, condition = when.args["then"], when.args.get("condition")
        if not when.args.get("matched") and when.args.get("source"):
            build.error(
                NotSupported(
                    "WHEN NOT MATCHED BY SOURCE has no meaning on a stream: it has no end",
                    hint="delete by a running DELETE, or MERGE from a table",
                )
            )
            return None
        if isinstance(then, exp.Insert):
            whens.append(("insert", condition, build.new_row(inserted_by(build, then, source), keep=False)))
        elif isinstance(then, exp.Update):
            whens.append(("update", condition, build.new_row(assigned_by(build, then, source), keep=True)))
        else:
            whens.append(("delete", condition, []))
    return _fold_keys(build, source, on, whens)


def fold_upsert(
    build: MutationBuilder, source: exp.Subquery, on: exp.Expr, assigned: list[tuple[str, exp.Expr]]
) -> Fold | None:
    """Builds the fold of a running UPSERT."""
    return _fold_keys(
        build,
        source,
        on,
        [
            ("update", None, build.new_row(assigned, keep=True)),
            ("insert", None, build.new_row(assigned, keep=False)),
        ],
    )


def _fold_keys(
    build: MutationBuilder,
    source: exp.Expr,
    on: exp.Expr,
    whens: list[tuple[str, exp.Expr | None, list[exp.Expr]]],
) -> Fold | None:
    outputs: list[exp.Expr] = [
        named(part.unalias().copy(), f"x{n}")
        for n, part in enumerate(
            p for _, condition, row in whens for p in (*([condition] if condition is not None else []), *row)
        )
    ]
    resolved = _resolve(build, build.select(outputs or [exp.alias_(exp.true(), "x0")], source, (), on))
    if resolved is None:
        return None
    tree = resolved.expression
    assert isinstance(tree, exp.Select)
    target = build.target
    parts = [o.unalias() for o in tree.expressions]
    events = Events(target, build.alias, target.schema.names, build.report)
    shaped: list[tuple[str, exp.Expr | None, list[exp.Expr]]] = []
    for action, condition, row in whens:
        test = parts.pop(0) if condition is not None else None
        fitted = [build.fit(parts.pop(0), c) for c, _ in zip(target.schema, row, strict=False)]
        if action == "insert" and any(events.reads_row(n) for n in (*fitted, *([test] if test else []))):
            build.error(SqlError("WHEN NOT MATCHED there is no row of the table to read"))
            return None
        shaped.append((action, test, fitted))
    condition = tree.args["where"].this
    keys = [
        (mine, value)
        for mine, value in events.equalities(conjuncts(condition))
        if all(_keeps(build, mine, value, row) for _, _, row in shaped if row)
    ]
    fold = KeyFold(
        target,
        events=resolved,
        on=events.of_step(condition, pairs=False),
        whens=tuple(
            When(
                action,  # type: ignore[arg-type]
                None if test is None else events.of_step(test, pairs=False),
                tuple(events.of_step(v, pairs=False) for v in row),
            )
            for action, test, row in shaped
        ),
        lookup=_group_by(target, events.lookup(keys), inserts=any(a == "insert" for a, _, _ in shaped)),
    )
    found = events.query(tree, resolved.inputs, _view(tree), [])
    _check(build, found)
    return KeyFold(target, found, fold.on, fold.whens, fold.lookup)


def _group_by(
    target: Relation, lookup: tuple[tuple[str, str], ...], *, inserts: bool
) -> tuple[tuple[str, str], ...]:
    """Returns the columns by which rows and events are folded together. A new row replaces the one with its key: if the
    columns do not determine where that row is, all rows are folded together.
    """
    key = set(target.schema.key)
    if not key or not inserts:
        return lookup
    return tuple(pair for pair in lookup if pair[0] in key) if key <= {mine for mine, _ in lookup} else ()


def _keeps(build: MutationBuilder, mine: exp.Column, value: exp.Expr, row: list[exp.Expr]) -> bool:
    """Returns whether a new row has, in this column, the value that its event was found by, or its old value."""
    names = [n.lower() for n in build.target.schema.names]
    new = bare(row[names.index(mine.name.lower())])
    return value in (new, bare(new.this) if isinstance(new, exp.Cast) else new) or new == mine


def _resolve(build: MutationBuilder, select: exp.Select) -> Resolved | None:
    resolved = build.resolve(select)
    if resolved is None:
        return None
    streams = [i for i in resolved.inputs if i.relation.running]
    again = [i for i in resolved.inputs if i.relation.name.lower() == build.target.name.lower()]
    if again:
        build.error(
            NotSupported(
                f'a running statement cannot read "{build.target.name}" a second time while it changes it',
                hint="its rows change with every event; WHERE and SET read the row that is changed",
            )
        )
        return None
    return resolved if streams else None


def _check(build: MutationBuilder, events: Resolved) -> None:
    resolver = build.resolver
    build.checker.errors.extend(check_running(events, resolver.place, build.statement.place))


def _view(tree: exp.Select) -> str:
    return str(tree.args["from_"].this.name)
