"""DROP: what goes with a relation, and what must not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millpond.app.capturing import Copying, release_kept
from millpond.app.catalog import Saved
from millpond.app.filling import Filling
from millpond.app.indexes import drop_index
from millpond.app.origins import origins_table
from millpond.app.tapping import Tapping
from millpond.errors import InUse, Place, UnknownName
from millpond.plan.plans import PipelinePlan
from millpond.sql.catalog import Relation
from millpond.sql.errortables import error_table
from millpond.sql.reads import names_read

if TYPE_CHECKING:
    from millpond.app.app import App


def drop(app: App, relation: Relation, *, cascade: bool, place: Place | None) -> None:
    """Drops a stream, table or view with the query that fills it; with ``cascade`` also what uses it."""
    own = f"{relation.kind}:{relation.name}"
    users = {p.plan.query: p.plan for p in app._runner if p.plan.query != own and uses(p.plan, relation)}
    live = app._views.users(relation.name)
    views = [r for r in app._catalog if r.query is not None and view_reads(r, relation)]
    if (users or views or live) and not cascade:
        named = [f'query "{name}"' for name in users] + [f'view "{v.name}"' for v in views]
        names = ", ".join(named + [f'table "{v.plan.target.name}"' for v in live])
        raise InUse(
            f'{relation.kind} "{relation.name}" is used by {names}',
            hint=f"DROP {relation.kind.upper()} {relation.name} CASCADE drops them too",
            place=place,
        )
    for follower in live:
        table = app._catalog.find(follower.plan.target.name)
        if table is not None:
            drop(app, table, cascade=True, place=place)
    for view in views:
        drop(app, view, cascade=True, place=place)
    for name, plan in users.items():
        app._runner.remove(name)
        target = app._catalog.find(plan.target.name)
        if target is not None and name == f"{target.kind}:{target.name}":
            drop(app, target, cascade=True, place=place)
        forget_named(app, "query", name)
    followed = f"stream:{relation.name.lower()}" if relation.kind == "stream" else relation.name.lower()
    kept = app._living.kept(followed)
    app._living.remove(followed)
    if isinstance(kept, Filling | Tapping):
        kept.release()
    else:
        release_kept(app, relation.kind, relation.name)
    app._runner.remove(own)
    for index in app._catalog.indexes(relation.name):
        drop_index(app, index)
    app._views.remove(own)
    app._catalog.remove(relation.name)
    forget_named(app, relation.kind, relation.name)
    app._publications.remove(relation.name)
    if relation.kind == "table":
        app._loads.pop(relation.name.lower(), None)
        app._store.forget(own)
        if app._store.table(error_table(own)) is not None:
            app._catalog.remove(error_table(own))
            app._store.drop(error_table(own))
        if app._store.table(origins_table(own)) is not None:
            app._store.drop(origins_table(own))
        app._store.drop(relation.name)
    elif relation.kind == "stream":
        app._store.forget(own)
        app._journal.drop_stream(relation.name)
    drop_copies(app)
    app._columns.forget_unused()


def drop_query(app: App, name: str, *, if_exists: bool, place: Place | None) -> None:
    """Ends a running statement for good. One that fills a table or stream of its own goes with that."""
    try:
        name = app._runner.find(name)
    except UnknownName as error:
        if if_exists:
            return
        error.place = place
        raise
    kind, _, filled = name.partition(":")
    if filled:
        raise InUse(
            f'query "{name}" fills {kind} "{filled}"',
            hint=f"DROP {kind.upper()} {filled} drops both; PAUSE or STOP QUERY holds it",
            place=place,
        )
    forget_named(app, "query", name)
    app._runner.drop(name)
    app._emitted.pop(name, None)
    drop_copies(app)
    app._columns.forget_unused()


def drop_copies(app: App) -> None:
    """Copies of captured tables that nothing reads any more go, and what their databases keep for them."""
    copies = {name: kept for name, kept in app._living if isinstance(kept, Copying) and kept.hidden}
    met = {name for pipeline in app._runner for name in pipeline.plan.beside} if copies else set()
    for name, kept in copies.items():
        if name not in met and not app._views.users(kept.plan.target.name):
            app._living.remove(name)
            app._store.drop(kept.plan.target.name)


def uses(plan: PipelinePlan, relation: Relation) -> bool:
    names = {n.lower() for n in (*plan.reads, *plan.writes, plan.errors)}
    return relation.name.lower() in names


def view_reads(view: Relation, relation: Relation) -> bool:
    return view.query is not None and relation.name.lower() in names_read(view.query)


def forget_named(app: App, kind: str, name: str) -> None:
    for entry in list(app._saved.values()):
        if entry.kind == kind and entry.name.lower() == name.lower():
            forget(app, entry)


def forget(app: App, entry: Saved) -> None:
    app._saved.pop(entry.id, None)
    app._unclaimed.pop(entry.id, None)
    app._journal.drop_entry(entry.kind, entry.name)
    if entry.kind == "query":
        app._runner.remove(entry.name)
        app._store.forget(entry.name)
