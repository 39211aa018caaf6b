"""Ends an app as a kill would."""

from __future__ import annotations

from millpond.app.app import App, runtime_of


def crash(app: App) -> None:
    """Ends the app as a kill would, but in this process: nothing is finished, written or cleaned up."""
    parts = runtime_of(app)
    parts.lifetime.closed = True
    parts.followers.close()
    parts.loader.close()
    parts.runner.crash()
    parts.views.close()
    parts.publications.close()
    parts.evaluator.close()
    parts.old_rows.end()
    parts.compactor.end(flush=False)
    for _, table in parts.store.flushed.items():
        table.close()
    parts.journal.abandon()
    parts.state.close()
