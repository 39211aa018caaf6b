"""What each statement does, once it has been checked."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from millpond import faults
from millpond.app import describe
from millpond.app.analyze import analyze
from millpond.app.drop import drop, drop_query
from millpond.app.indexes import create_index, drop_index
from millpond.changes import Changes
from millpond.connectors.sink import find_sink
from millpond.dml.mutate import changes_of
from millpond.errors import NotSupported
from millpond.plan.load import plan_load
from millpond.plan.pipeline import plan_block, plan_pipeline
from millpond.plan.plans import PipelinePlan, Target, target_of
from millpond.plan.view import plan_view
from millpond.query.change_kind import emitted_schema
from millpond.query.result import Result
from millpond.sql import statements as st
from millpond.sql.catalog import Relation
from millpond.sql.checked import Checked
from millpond.store.store import Moment
from millpond.store.undo import Unit
from millpond.streaming.delivery import deliver

if TYPE_CHECKING:
    from millpond.app.app import App

_NOTHING = pa.table({})


def execute(app: App, checked: Checked) -> Result:
    """Runs one statement and answers. If it fails the app is as it was before."""
    if checked.skip:
        return Result(_NOTHING, count=0)
    with Unit() as unit:
        app._stand(checked, unit)
        faults.reach("statement checked")
        return _HANDLERS[type(checked.statement)](app, checked, unit)


def _create_stream(app: App, checked: Checked, unit: Unit) -> Result:
    assert isinstance(checked.statement, st.CreateStream) and checked.relation is not None
    relation = checked.relation
    entry = app._declare(checked, unit)
    if checked.resolved is not None:
        plan = plan_pipeline(checked, f"stream:{relation.name}", Target("stream", relation.name))
        app._start_pipeline(plan, checked, unit, entry)
        return Result(_NOTHING, count=0)
    app._keep(entry, (relation,))
    if checked.tapped is not None:
        app._taps.add(checked)
        faults.reach("stream tapped")
    return Result(_NOTHING, count=0)


def _create_table(app: App, checked: Checked, unit: Unit) -> Result:
    assert checked.relation is not None
    checked = app._with_types(checked)
    assert checked.relation is not None
    entry = app._declare(checked, unit)
    name = f"table:{checked.relation.name}"
    target = Target("table", checked.relation.name)
    if checked.running:
        app._start_pipeline(plan_pipeline(checked, name, target), checked, unit, entry)
        return Result(_NOTHING, count=0)
    app._keep(entry, (checked.relation,))
    if checked.resolved is None:
        return Result(_NOTHING, count=0)
    if checked.live:
        schema = checked.relation.schema
        return Result(_NOTHING, count=app._views.add(plan_view(checked, name, target), schema))
    plan = plan_load(checked, name, target)
    if app._in_file and app._table_loads.is_from_outside(plan):
        app._loader.begin(plan, checked, undo=unit.undo)
        return Result(_NOTHING, count=0)
    return Result(_NOTHING, count=app._table_loads.load(plan, checked))


def _create_view(app: App, checked: Checked, unit: Unit) -> Result:
    assert isinstance(checked.statement, st.CreateView) and checked.relation is not None
    if checked.statement.materialized:
        return _create_table(app, checked, unit)
    app._keep(app._declare(checked, unit), (checked.relation,))
    return Result(_NOTHING, count=0)


def _run_on(app: App, plan: PipelinePlan, checked: Checked, unit: Unit) -> Result:
    """A statement that runs for as long as the app."""
    app._start_pipeline(plan, checked, unit, app._query_entry(plan.name, checked))
    return Result(_NOTHING, count=0)


def _insert(app: App, checked: Checked, unit: Unit) -> Result:
    assert isinstance(checked.statement, st.Insert) and checked.target is not None
    target = checked.target
    if target.kind == "sink" and not checked.running:
        return _write_outside(app, checked, target)
    if target.kind == "sink":
        name = app._query_name(checked, unit)
        return _run_on(app, plan_pipeline(checked, name, app._target(checked, name)), checked, unit)
    if checked.running:
        name = app._query_name(checked, unit)
        return _run_on(app, plan_pipeline(checked, name, target_of(target)), checked, unit)
    if checked.resolved is not None:
        rows = app._answer(checked)
    else:
        rows = app._values(checked)
    faults.reach("rows found")
    if target.kind == "stream":
        app._store.commit(sent={target.name: rows}, done=app._statement_done(checked.statement))
    else:
        app._write(checked.statement, target.name, lambda moment: (_inserted(target, rows, moment), None))
    return Result(_NOTHING, count=rows.num_rows)


def _write_outside(app: App, checked: Checked, target: Relation) -> Result:
    """Rows of tables for a sink, once."""
    if app._transaction is not None:
        raise NotSupported(
            "INSERT INTO a URI in a transaction: what left the app cannot be taken back",
            hint="write the rows after COMMIT",
            place=checked.statement.place,
        )
    checked = app._with_types(checked)
    assert checked.resolved is not None
    if app._rooms.stands_in(target.name):
        rows, name = app._answer(checked), f"insert {len(app._emitted.results) + 1}"
        app._emitted.open(name, rows.schema).add(rows)
        return Result(_NOTHING, count=rows.num_rows)
    sink = find_sink(target.name)(target.name, checked.table_options, checked.resolved.schema)
    try:
        sink.open("insert")
        faults.reach("sink opened once")
        rows = app._answer(checked)
        if rows.num_rows:
            deliver(app._spark, sink, rows)
    finally:
        sink.close()
    app._store.commit(done=app._statement_done(checked.statement))
    return Result(_NOTHING, count=rows.num_rows)


def _inserted(target: Relation, rows: pa.Table, moment: Moment) -> dict[str, Changes]:
    if target.strict:
        moment.snapshot(target.name).refuse_taken(rows, f'table "{target.name}"')
    return {target.name: Changes(rows)}


def _mutate(app: App, checked: Checked, unit: Unit) -> Result:
    if checked.fold is not None:
        target = checked.fold.target
        name = app._query_name(checked, unit)
        return _run_on(app, plan_pipeline(checked, name, target_of(target)), checked, unit)
    mutation = checked.mutation
    assert mutation is not None
    unit.put(app._sources.values, checked.source_options)

    def find(moment: Moment) -> tuple[dict[str, Changes], int]:
        changes, count = changes_of(
            mutation,
            lambda query: app._evaluator.answer(query, app._inputs.read(query, moment)),
            moment.snapshot(mutation.target.name),
        )
        faults.reach("rows found")
        return ({mutation.target.name: changes} if len(changes) else {}), count

    return Result(_NOTHING, count=app._write(checked.statement, mutation.target.name, find))


def _block(app: App, checked: Checked, unit: Unit) -> Result:
    """BEGIN … COMMIT that a stream drives."""
    checked = dataclasses.replace(checked, block=tuple(app._with_types(c) for c in checked.block))
    _kept_alike(app, checked)
    name = app._query_name(checked, unit)
    return _run_on(app, plan_block(checked, name), checked, unit)


def _kept_alike(app: App, block: Checked) -> None:
    """One position stands for all targets of a block: either all of them survive a restart, or none."""
    targets = {c.target.name: c.target for c in block.block if c.target is not None}.values()
    kept = {t.name: t.kind == "stream" or app._store.keeps(t.name) for t in targets}
    if len(set(kept.values())) > 1:
        lost = next(name for name, keeps in kept.items() if not keeps)
        raise NotSupported(
            f'a block cannot change table "{lost}", which is empty after a restart, together with others that are not',
            hint="give all tables of the block the same durability",
            place=block.statement.place,
        )


def _begin(app: App, checked: Checked, unit: Unit) -> Result:
    app._begin_block(app.begin_transaction())
    return Result(_NOTHING, count=0)


def _commit(app: App, checked: Checked, unit: Unit) -> Result:
    assert app._transaction is not None
    app._transaction.commit(done=tuple(app._block_done))
    app._end_block()
    return Result(_NOTHING, count=0)


def _rollback(app: App, checked: Checked, unit: Unit) -> Result:
    assert app._transaction is not None
    done = tuple(app._block_done)
    app._end_block()
    if done:
        app._store.commit(done=done)
    return Result(_NOTHING, count=0)


def _select(app: App, checked: Checked, unit: Unit) -> Result:
    if not checked.running and not checked.live:
        return Result(app._answer(checked))
    checked = app._with_types(checked)
    assert checked.resolved is not None
    name = app._query_name(checked, unit)
    result = app._emitted.open(name, emitted_schema(checked.resolved.schema.arrow(), checked.op))
    options = {} if checked.op is None else {"op": checked.op}
    if checked.live:
        printed = app._emitted.printed if app._in_file else None
        plan = plan_view(checked, name, Target("emit", f"{name}$rows", options))
        app._views.add_emitting(plan, result.add if printed is None else partial(printed, name))
        return result
    _run_on(app, plan_pipeline(checked, name, Target("emit", name, options)), checked, unit)
    return result


def _create_index(app: App, checked: Checked, unit: Unit) -> Result:
    create_index(app, checked, unit)
    return Result(_NOTHING, count=0)


def _drop(app: App, checked: Checked, unit: Unit) -> Result:
    s = checked.statement
    assert isinstance(s, st.Drop)
    if checked.index is not None:
        drop_index(app, checked.index)
        return Result(_NOTHING, count=0)
    if s.kind == "query":
        act = partial(drop_query, app, s.name, if_exists=s.if_exists, place=s.place)
        return _tell(app, s, s.name, "drop", act)
    assert checked.relation is not None
    drop(app, checked.relation, cascade=s.cascade, place=s.place)
    return Result(_NOTHING, count=0)


def _control(app: App, checked: Checked, unit: Unit) -> Result:
    s = checked.statement
    assert isinstance(s, st.ControlQuery)
    return _tell(app, s, s.name, s.action, partial(app._queries.control, s.name, s.action, unit))


def _tell(app: App, s: st.Statement, query: str, action: str, act: Callable[[], object]) -> Result:
    """Tells a query what to do. A statement of the file does that once: after a restart the query is as it was left.
    A query that a restart does not find is told each time."""
    done = (app._count(s),) if app._in_file and app._queries.is_kept(query) else ()
    if not app._in_file or not app._queries.is_done(query, action):
        act()
    if done:
        app._store.commit(done=done)
    return Result(_NOTHING, count=0)


def _replay(app: App, checked: Checked, unit: Unit) -> Result:
    assert checked.relation is not None
    return Result(_NOTHING, count=app._runner.replay(checked.relation.name))


def _show(app: App, checked: Checked, unit: Unit) -> Result:
    assert isinstance(checked.statement, st.Show)
    return Result(describe.show(app, checked.statement.what))


def _describe(app: App, checked: Checked, unit: Unit) -> Result:
    assert isinstance(checked.statement, st.Describe) and checked.relation is not None
    return Result(describe.describe(app, checked.relation, extended=checked.statement.extended))


def _show_create(app: App, checked: Checked, unit: Unit) -> Result:
    assert checked.relation is not None
    return Result(describe.show_create(app, checked.relation))


def _explain(app: App, checked: Checked, unit: Unit) -> Result:
    assert isinstance(checked.statement, st.Explain)
    if not checked.statement.analyze:
        return Result(describe.explain(app, checked))
    return Result(analyze(app, checked, lambda inner: _HANDLERS[type(inner.statement)](app, inner, unit)))


_HANDLERS: dict[type[st.Statement], Callable[[App, Checked, Unit], Result]] = {
    st.CreateStream: _create_stream,
    st.CreateTable: _create_table,
    st.CreateView: _create_view,
    st.CreateIndex: _create_index,
    st.Insert: _insert,
    st.Update: _mutate,
    st.Delete: _mutate,
    st.Merge: _mutate,
    st.Upsert: _mutate,
    st.Truncate: _mutate,
    st.Block: _block,
    st.Begin: _begin,
    st.Commit: _commit,
    st.Rollback: _rollback,
    st.Select: _select,
    st.Drop: _drop,
    st.ControlQuery: _control,
    st.Replay: _replay,
    st.Show: _show,
    st.Describe: _describe,
    st.ShowCreate: _show_create,
    st.Explain: _explain,
}
