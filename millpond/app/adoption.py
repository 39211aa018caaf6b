"""Finds the statement that can go on where a Structured Streaming job has ended, and the offset at which it does.

Nothing is changed by that: the offset becomes the first position of the statement when the app is opened.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from millpond.app.check import check_text
from millpond.changes import Offset
from millpond.connectors.delta.adopted_table import is_at, last_batch
from millpond.connectors.delta.client import place_of
from millpond.connectors.delta.sink import DeltaSink
from millpond.connectors.job_progress import Adopts
from millpond.errors import AdoptionRefused, CheckFailed, UnknownName, without_passwords
from millpond.loading.open_sources import Sources
from millpond.loading.spark_checkpoint import SparkCheckpoint
from millpond.plan.connectors import Connectors
from millpond.plan.pipeline import plan_pipeline
from millpond.plan.plans import PipelinePlan, RowsPlan
from millpond.plan.statement_plan import own_target
from millpond.sql.checked import (
    Checked,
    CheckedInsert,
    CheckedRunnable,
    CheckedStream,
    CheckedTable,
    CheckedWrite,
)

Unclear = Literal["repeat", "skip"] | None
"""What is done with an unfinished batch of appended rows, if the Delta table does not say whether it has them."""


@dataclass(frozen=True, slots=True)
class Writer:
    """Describes a running statement that writes to the Delta table. ``values`` are the options of that."""

    plan: RowsPlan
    place: str
    values: Mapping[str, Any]
    upserts: bool


@dataclass(frozen=True, slots=True)
class Adoption:
    """Says where a statement goes on: after the batch ``after`` of the job, at ``offset``. ``lines`` tell people what
    was found.
    """

    plan: PipelinePlan
    after: int
    offset: Offset
    lines: tuple[str, ...]

    def begins(self, plan: PipelinePlan) -> Offset | None:
        """Returns where a statement begins, if it is the one that goes on for the job."""
        same = plan.target.kind == self.plan.target.kind and plan.target.name == self.plan.target.name
        return self.offset if same and plan.batch.stream.relation.name == self.stream else None

    @property
    def stream(self) -> str:
        """Returns the name of the stream that the statement reads."""
        return self.plan.batch.stream.relation.name


def find_adoption(
    text: str, checkpoint: Path, table: str, transactions: str | None = None, unclear: Unclear = None
) -> Adoption:
    """Returns how the app of a text goes on for the job of a checkpoint, which writes to the Delta table at ``table``.
    ``transactions`` is the 'txnAppId' that the job sets, if it does. Raises what prevents that.
    """
    job = SparkCheckpoint.read(checkpoint)
    found = check_text(text)
    if found.errors:
        raise CheckFailed(found.errors)
    writers = _writers(found.statements, table)
    batch = last_batch(writers[0].place, writers[0].values, transactions or job.query)
    connectors = Connectors()
    try:
        sources = Sources(connectors, Path())
        for checked in found.statements:
            if isinstance(checked, CheckedStream | CheckedWrite):
                sources.values.update(checked.source_options)
        return _matching(job, writers, sources, batch, named=transactions is not None, unclear=unclear)
    finally:
        connectors.close()


def _matching(
    job: SparkCheckpoint,
    writers: list[Writer],
    sources: Sources,
    batch: int | None,
    *,
    named: bool,
    unclear: Unclear,
) -> Adoption:
    """Returns the adoption by the one statement that reads what the job has read."""
    found: list[Adoption] = []
    refused: list[AdoptionRefused] = []
    for writer in writers:
        try:
            found.append(_adoption(job, writer, sources, batch, named=named, unclear=unclear))
        except AdoptionRefused as error:
            error.place = error.place or writer.plan.place
            refused.append(error)
    if not found:
        raise refused[0]
    if len(found) > 1:
        raise AdoptionRefused(
            f"{len(found)} statements read what the job has read, and write to its table",
            hint="leave one of them in the file",
            place=found[1].plan.place,
        )
    return found[0]


def _adoption(
    job: SparkCheckpoint,
    writer: Writer,
    sources: Sources,
    batch: int | None,
    *,
    named: bool,
    unclear: Unclear,
) -> Adoption:
    source = sources.open(writer.plan.batch.stream.relation)
    if not isinstance(source, Adopts):
        raise AdoptionRefused(
            f"the statement reads {source.kind}://, and a job can be taken over that reads a topic or files",
            hint="CREATE STREAM s (…) WITH ('connector' = 'file://…') is a stream over files",
        )
    after, why = _after(job, batch, upserts=writer.upserts, named=named, unclear=unclear)
    progress = job.progress(after)
    offset = source.adopted(progress)
    has = "no entry of the job" if batch is None else f"batch {batch} of the job is its last"
    last = "" if job.finished == job.planned else f", batch {job.planned} is not finished"
    lines = (
        f"job        query {job.query}: batch {job.finished} is finished{last}",
        f"source     {progress}",
        f"table      {without_passwords(writer.place)}: {has}",
        f"statement  {' '.join(writer.plan.text.split())}",
        f"begins     after batch {after}: {why}",
    )
    return Adoption(writer.plan, after, offset, lines)


def _after(
    job: SparkCheckpoint, batch: int | None, *, upserts: bool, named: bool, unclear: Unclear
) -> tuple[int, str]:
    """Returns the batch of the job after which the app begins, and why. ``batch`` is the last one that the table says
    that it has, ``named`` that the job has named its transactions itself: it need not write every batch then.
    """
    if batch is not None and batch > job.planned:
        raise AdoptionRefused(
            f"the Delta table has batch {batch} of the job, and the last one of the checkpoint is {job.planned}",
            hint="name the checkpoint that the job used last, not a copy from before",
        )
    if batch is not None and batch < job.finished and not named:
        raise AdoptionRefused(
            f"batch {job.finished} of the job is finished, and the last one that the Delta table has is {batch}",
            hint="name the table that the job writes to; if an earlier version was restored, restore the newest one",
        )
    if job.finished == job.planned:
        return job.finished, "every batch is finished"
    if batch == job.planned:
        return job.planned, "the table has the unfinished batch"
    if upserts:
        return job.finished, f"batch {job.planned} is repeated, which replaces its rows by themselves"
    if batch is not None:
        return job.finished, "the table does not have the unfinished batch"
    if unclear == "repeat":
        return job.finished, f"batch {job.planned} is repeated, as you said"
    if unclear == "skip":
        return job.planned, f"batch {job.planned} is taken as written, as you said"
    raise AdoptionRefused(
        f"batch {job.planned} of the job is not finished, and the Delta table does not say whether it has its rows",
        hint="look for them: --skip-last begins after the batch, --repeat-last begins with it. If the job sets "
        "'txnAppId', name it with --txn-app-id",
    )


def _writers(statements: tuple[Checked, ...], table: str) -> list[Writer]:
    """Returns the running statements that write to a Delta table."""
    found, places = list[Writer](), list[str]()
    for checked, place, values in _delta_targets(statements):
        places.append(place)
        if is_at(place, table):
            found.append(_writer(checked, place, values))
    if not found:
        raise UnknownName(
            f'no running statement of the app writes to the Delta table "{place_of(table.removeprefix("delta://"))}"',
            hint="those that do write to: " + ", ".join(places)
            if places
            else "append with INSERT INTO delta://… SELECT … FROM a stream",
        )
    return found


def _delta_targets(
    statements: tuple[Checked, ...],
) -> Iterator[tuple[CheckedRunnable, str, Mapping[str, Any]]]:
    """Yields the running statements whose targets are Delta tables, with the places and options of these."""
    tables = {
        checked.relation.name.lower(): checked.table_options
        for checked in statements
        if isinstance(checked, CheckedTable)
    }
    for checked in statements:
        if not isinstance(checked, CheckedRunnable) or not checked.running or checked.changes is None:
            continue
        target = checked.changes
        if target.kind == "sink" and target.name.lower().startswith("delta://"):
            values = checked.sink_options if isinstance(checked, CheckedInsert) else {}
            values = {**values, **DeltaSink.named_in(target.name)}
            yield checked, DeltaSink.target(target.name, values)[0], values
            continue
        options = tables.get(target.name.lower(), {})
        if options.get("extension") == "delta" and options.get("path"):
            yield checked, place_of(str(options["path"])), options


def _writer(checked: CheckedRunnable, place: str, values: Mapping[str, Any]) -> Writer:
    """Returns a statement as one that can go on for a job. Raises AdoptionRefused if it cannot."""
    plan = plan_pipeline(checked, "", own_target(checked))
    if not isinstance(plan, RowsPlan) or plan.join is not None or not isinstance(checked, CheckedInsert):
        raise AdoptionRefused(
            "only INSERT … SELECT without an aggregate or a join of streams can go on for a job",
            hint="what others have stored is not in the checkpoint",
            place=checked.statement.place,
        )
    target = checked.target
    if target.kind == "sink":
        return Writer(plan, place, values, bool(DeltaSink.columns_of(values, checked.resolved.schema).key))
    if not target.schema.key:
        raise AdoptionRefused(
            f'table "{target.name}" has no key: its Delta table would need the numbers of its rows',
            hint="append to the Delta table itself: INSERT INTO delta://… SELECT …",
            place=checked.statement.place,
        )
    return Writer(plan, place, values, upserts=values.get("on.conflict") != "error")
