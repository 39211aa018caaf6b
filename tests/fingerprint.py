"""All that an app is, for comparing: what it holds in memory, in its journal, in files and in threads."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from millpond import App
from millpond.journal.catalog import Entry
from millpond.journal.revision import FINDINGS
from millpond.loading.discovered_columns import COLUMNS
from millpond.loading.file_origins import origins_table
from millpond.store.dropped_tables import LEAVING

PASSING = (LEAVING, COLUMNS)
"""The kinds of journal entries that may be removed later than what they belong to."""
RECORDED = (FINDINGS,)
"""Kinds that come by themselves, when nothing has changed for a while."""
ELSEWHERE = ("positions", "passing", "columns", "columns found", "open sources")
"""What two apps may differ in that have done the same in two places, or one of them with a fault after it: columns that
nobody reads any more, and their source, are forgotten with the next DROP."""


def fingerprint(app: App) -> dict[str, str]:
    """The app as texts. Times, and how far something was tried, are not among them; the place of the state directory is
    left out of them."""
    return _texts(app, _kept(app) | _here(app))


def kept(app: App) -> dict[str, str]:
    """As ``fingerprint``, without what a restart changes."""
    return _texts(app, _kept(app))


def _texts(app: App, values: dict[str, Any]) -> dict[str, str]:
    return {
        key: repr(value).replace(str(app._runtime.state.path.parent), "") for key, value in values.items()
    }


def _here(app: App) -> dict[str, Any]:
    return {
        "unclaimed": sorted(app._runtime.saved.unclaimed),
        "options of sources": {k: repr(sorted(v.items())) for k, v in app._runtime.sources.values.items()},
        "options of tables": {k: repr(sorted(v.items())) for k, v in app._runtime.store.options.items()},
        "counts": {key: number for key, number in app._runtime.text.counts.items() if number},
        "open sources": sorted(uri for uri, _ in app._runtime.connectors.opened()),
        "columns found": {k: repr(v) for k, v in app._runtime.connectors.found.items()},
        "emitted": sorted(app._runtime.emitted.results),
        "transaction": app._runtime.text.transaction is not None,
        "streams that are read": sorted(s.source.uri for s in app._runtime.runner.readers),
        "threads": sorted(
            t.name for t in threading.enumerate() if t.name.startswith(("millpond-follow", "millpond-load"))
        ),
    }


def _kept(app: App) -> dict[str, Any]:
    journal = app._runtime.journal
    journal.boundary()
    facts = journal._writer.facts
    noted = origins_table("")
    shown = [name for name in sorted(app._runtime.store._tables) if not name.endswith(noted)]
    """Of which file a row comes is read when it is asked for, sooner after a kill; ``journalled`` has it."""
    return {
        "catalog": sorted(
            repr((r.name, r.kind, r.schema, r.uri, r.running, r.live)) for r in app._runtime.catalog
        ),
        "indexes": sorted(repr(i) for i in app._runtime.catalog.indexes()),
        "saved": sorted(
            (e.id, e.text, repr(e.entry().data["schema"])) for e in app._runtime.saved.entries.values()
        ),
        "journal": sorted(_entry(e) for e in journal.entries() if e.kind not in (*PASSING, *RECORDED)),
        "passing": sorted(_entry(e) for e in journal.entries() if e.kind in PASSING),
        "positions": sorted(repr(p) for p in journal.positions().values()),
        "placed": sorted(journal.positions()),
        "journalled": sorted(facts.ledgers),
        "ends": dict(sorted(facts.ends.items())),
        "done": sorted(facts.done),
        "tables": {name: rows_of(app, name) for name in shown},
        "durability": {name: app._runtime.store._durability[name] for name in shown},
        "fills": dict(sorted(app._runtime.store.filled.items())),
        "queries": sorted((q["name"], q["state"]) for q in app.sql("SHOW QUERIES").rows()),
        "held": dict(sorted(app._runtime.query_states._states.items())),
        "followers": sorted(name for name, _ in app._runtime.followers),
        "beside": sorted(app._runtime.followers.side_tables),
        "loads": {name: (load.source, load.error) for name, load in sorted(app._runtime.loads.items())},
        "columns": {k: repr(v) for k, v in sorted(app._runtime.columns._kept.items())},
        "published": sorted(app._runtime.publications._made),
        "files": files(app._runtime.state.path),
    }


def _entry(entry: Entry) -> tuple[str, ...]:
    """What the journal has; the identity of a statement is made of the text, that of the directory at random."""
    drawn = "id" if entry.kind == "identity" else "identity"
    data = {key: value for key, value in entry.data.items() if key != drawn}
    return (entry.kind, entry.name, entry.text, repr(data))


def rows_of(app: App, name: str) -> list[str]:
    table = app._runtime.store.table(name)
    assert table is not None
    return sorted(repr(row) for row in table.scan().to_pylist())


def files(directory: Path) -> list[str]:
    """The files of a state directory that are not of the journal or of Spark."""
    passing = ("journal.db", "journal.rows", "scratch", "spark", "query.sock")
    names = [p.relative_to(directory) for p in directory.rglob("*") if p.is_file()]
    return sorted(str(n) for n in names if not str(n).startswith(passing))
