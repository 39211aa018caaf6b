"""Names points in the code at which tests inject a fault: an exception, or the end of the process.

``millpond.testing.faults`` puts faults there. Outside of tests a point costs one comparison.
"""

from __future__ import annotations

from collections.abc import Callable

POINTS: dict[str, str] = {
    "capture: begun": "the place in the log of a database is known, and the moment there; nothing is loaded",
    "capture: read": "changes of a log were read for a table, and are not committed",
    "capture: applied": "changes of a log are committed; the database does not know",
    "stored: read": "changes of a stored table were read from the log of its database",
    "stored: reached": "the position behind them is durable, and nobody was told of them yet",
    "load: begun": "what is to be read is known; nothing of this step is committed",
    "load: chunk read": "a chunk of a source was read, and is not committed",
    "load: chunk committed": "a chunk of a source is committed, others may follow",
    "load: all chunks committed": "all chunks of a step are committed, not that it has ended",
    "load: compared": "the difference between a table and its sources is known, and not committed",
    "load: difference committed": "the difference between a table and its sources is committed",
    "tap: begun": "the place in the log of a database is known; nothing is sent to the stream",
    "tap: part of the rows sent": "some of the rows that were there before are in the stream",
    "tap: read": "rows for a stream of changes were read; neither they nor the place are committed",
    "tap: sent": "rows of a stream of changes are committed with the place; the database does not know",
    "journal: prepared": "the files of a commit are written, and its transaction has not begun",
    "journal: written": "everything of a commit is in its transaction, which is not committed",
    "journal: committed": "the journal's file holds a commit, and nobody knows of it",
    "journal: folding": "small commits are in the log, and are about to be written to the database too",
    "changelog: filled": "the rows of a table are in its changelog, which does not count yet",
    "stream: rolling": "rows of a stream are about to move from the database into a file",
    "old rows: trimmed": "old rows of a stream are no longer in the journal, and their files are still there",
    "compaction: scanned": "the rows of a table are written beside the journal, and do not count",
    "compaction: swapped": "the rows of a table count, and the changes before them are still there",
    "compaction: swept": "a piece of the changes that do not count is removed",
    "flush: set apart": "the changes of a table that its base gets are set apart, and not written",
    "flush: in the base": "the base of a table has its changes, and the journal has them too",
    "flush: forgotten": "the base of a table has its changes, and those in the journal do not count",
    "executors: intended": "the journal knows which batch its base gets from executors, and the base does not have it",
    "executors: in the base": "the base of a table has a batch of executors, and the journal does not know",
    "executors: noted": "the journal knows that the base of a table has a batch, and readers may not",
    "commit: views found": "what views get in the same commit is known, and nothing is written",
    "commit: journalled": "the journal holds a commit, and the next of its tables has not applied it",
    "commit: fed": "all tables have applied a commit, and those who watch them are not told",
    "commit: visible": "readers see a commit, and those who wait for it are not called",
    "sink: put aside": "rows of a batch that cannot be written are in the error table; the batch is not in the sink",
    "sink: begun": "a transaction of a sink has begun, and is empty",
    "sink: produced": "a transaction of a sink has the rows of a batch, and not its position",
    "sink: positioned": "a transaction of a sink has the rows and the position of a batch, and is not committed",
    "files: named": "the manifest of a sink names the files of a batch, and they do not have their final names",
    "sink: written": "a sink has a batch, and the app does not know",
    "sink: noted": "the app knows that a sink has a batch",
    "database: read": "a transaction of a database has begun, and what it changes is known",
    "database: applied": "a transaction of a database has the rows and the position of a batch, and is not committed",
    "database: committed": "a database has a batch, and the app does not know",
    "documents: stored": "the changes of a commit are stored, and it is not the newest commit of its documents",
    "documents: decided": "a commit of documents holds, and none of them is changed",
    "documents: applied in part": "some documents of a commit that holds are changed",
    "alter: checked": "a change of a table is known, and nothing is done",
    "alter: pending": "the journal has a change of a table as pending, and its database does not know",
    "alter: changed in the database": "a database has a change of a table, and the journal has it as pending",
    "alter: journalled": "the journal has a change of a table, and readers see the table as it was",
    "alter: shown": "readers see a table after a change, and statements that wait for it have not gone on",
    "upgrade: planned": "what a changed file does to the state directory is known, and nothing is done",
    "upgrade: committed": "the journal has the statements of a changed file, and nothing of it is open",
    "upgrade: finished": "what a changed file has no longer is removed, and its new statements have not run",
    "replace: begun": "a relation is about to be replaced; the journal may know that something is built beside it",
    "replace: caught up": "a table that is built beside another one has all rows, and nobody uses it",
    "replace: stopped": "the statements of both tables are stopped, and both are as they were",
    "replace: journalled": "the journal has the new one in the place of the old one, and readers see the old one",
    "replace: shown": "readers see the new one, and statements that wait for it have not gone on",
    "shadow: begun": "a table is being built beside another one, and a start would remove it",
    "shadow: kept": "the journal has it as a table that stays, with the view that compares both; readers do not",
    "edit: put": "the cells of a single row are written, and nothing leads to them",
    "table: appended": "rows are appended to a table in memory, and nothing leads to them",
    "table: linked": "rows that are replaced are marked so, and their keys lead to them",
    "table: pointed": "keys lead to the new rows, and readers do not see them",
    "table: published": "readers of a table see the rows, and its writer has not returned",
    "table: copied": "a compaction of a table in memory has copied the rows, and readers have the old ones",
    "statement checked": "a statement is about to run",
    "relation opened": "a stream, table or view is in the catalog, and not in the journal",
    "statement declared": "the journal has the statement",
    "inputs kept": "what a running statement meets outside is kept in tables that nobody sees",
    "sources prepared": "the sources of a running statement are there",
    "error table made": "a running statement has its table of errors",
    "sink opened": "the sink of a running statement is open",
    "sink opened once": "the sink of an INSERT that runs once is open",
    "sink written once": "the sink of an INSERT that runs once has its rows, and the app does not know",
    "statement set up": "a running statement has all that it needs beside its target",
    "pipeline added": "a running statement is in line, to be started",
    "adopted position kept": "the place where a job has ended is kept, not the statement that goes on there",
    "pipeline enrolled": "a running statement is a member of its stream",
    "query launched": "Spark reads the streams of all running statements",
    "view added": "a live table follows its inputs, and is empty",
    "view filled": "a live table has its rows",
    "table loaded": "a table has the rows of its sources, and does not follow them yet",
    "table follows": "a table follows its sources",
    "stream tapped": "a stream has what a database logged",
    "rows found": "what a statement changes is known, and not committed",
    "index made": "a table has an index, and the journal does not know",
    "index declared": "the journal has an index",
    "index dropped": "the journal has forgotten an index, and the app has not",
    "query told": "the journal has what a query was told by PAUSE, RESUME, STOP or START",
    "drop gathered": "what is dropped is known, and nothing has happened",
    "drop journalled": "the journal has forgotten what is dropped, and the app has not",
    "query ended": "a query that is dropped has ended",
    "relation let go": "a relation that is dropped is gone",
    "drop done": "all that is dropped is gone",
}
"""Every point by its name, with what has happened when it is reached. A test visits all of them."""

_reached: Callable[[str], None] | None = None


def reach(point: str) -> None:
    """Does nothing, unless a test has put a fault at the point."""
    if _reached is not None:
        _reached(point)


def on_reach(reached: Callable[[str], None] | None) -> None:
    """Calls ``reached`` with the name of each point from now on; None stops that."""
    global _reached
    _reached = reached
