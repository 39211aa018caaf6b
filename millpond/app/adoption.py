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
from millpond.connectors.job_progress import AdoptedTables, Adopts
from millpond.errors import AdoptionRefused, CheckFailed, UnknownName, without_passwords
from millpond.extensions import classes_of
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
"""What is done with an unfinished batch of appended rows, if the table does not say whether it has them."""


@dataclass(frozen=True, slots=True)
class Writer:
    """Describes a running statement that writes to the table, which is one of ``tables``. ``values`` are the options of
    that.
    """

    tables: AdoptedTables
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
    """Returns how the app of a text goes on for the job of a checkpoint, which writes to the table at ``table``.
    ``transactions`` is the 'txnAppId' that the job sets, if it does. Raises what prevents that.
    """
    job = SparkCheckpoint.read(checkpoint)
    found = check_text(text)
    if found.errors:
        raise CheckFailed(found.errors)
    writers = _writers(found.statements, table)
    first = writers[0]
    batch = first.tables.last_batch(first.place, first.values, transactions or job.query)
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
    after, why = _after(job, writer, batch, named=named, unclear=unclear)
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
    job: SparkCheckpoint, writer: Writer, batch: int | None, *, named: bool, unclear: Unclear
) -> tuple[int, str]:
    """Returns the batch of the job after which the app begins, and why. ``batch`` is the last one that the table says
    that it has, ``named`` that the job has named its transactions itself: it need not write every batch then.
    """
    kind = writer.tables.kind
    if batch is not None and batch > job.planned:
        raise AdoptionRefused(
            f"the {kind} has batch {batch} of the job, and the last one of the checkpoint is {job.planned}",
            hint="name the checkpoint that the job used last, not a copy from before",
        )
    if batch is not None and batch < job.finished and not named:
        raise AdoptionRefused(
            f"batch {job.finished} of the job is finished, and the last one that the {kind} has is {batch}",
            hint="name the table that the job writes to; if an earlier version was restored, restore the newest one",
        )
    if job.finished == job.planned:
        return job.finished, "every batch is finished"
    if batch == job.planned:
        return job.planned, "the table has the unfinished batch"
    if writer.upserts:
        return job.finished, f"batch {job.planned} is repeated, which replaces its rows by themselves"
    if batch is not None:
        return job.finished, "the table does not have the unfinished batch"
    if unclear == "repeat":
        return job.finished, f"batch {job.planned} is repeated, as you said"
    if unclear == "skip":
        return job.planned, f"batch {job.planned} is taken as written, as you said"
    raise AdoptionRefused(
        f"batch {job.planned} of the job is not finished, and the {kind} does not say whether it has its rows",
        hint="look for them: --skip-last begins after the batch, --repeat-last begins with it. If the job sets "
        "'txnAppId', name it with --txn-app-id",
    )


def _writers(statements: tuple[Checked, ...], table: str) -> list[Writer]:
    """Returns the running statements that write to a table of a system whose jobs can be taken over."""
    systems = [kind() for kind in classes_of("adopted_tables", AdoptedTables)]
    targets = [target for system in systems for target in _targets(statements, system)]
    found = [_writer(*target) for target in targets if target[0].is_at(target[2], table)]
    if not found:
        kinds = " or ".join(system.kind for system in systems)
        places = ", ".join(target[2] for target in targets)
        examples = " or ".join(system.example for system in systems)
        raise UnknownName(
            f'no running statement of the app writes to the {kinds} "{systems[0].place(table)}"',
            hint=f"those that do write to: {places}" if places else f"append with {examples} FROM a stream",
        )
    return found


Target = tuple[AdoptedTables, CheckedRunnable, str, Mapping[str, Any]]
"""The system of a table, the statement that writes to it, its place and its options."""


def _targets(statements: tuple[Checked, ...], system: AdoptedTables) -> Iterator[Target]:
    """Yields the running statements whose targets are tables of a system, with the places and options of these."""
    tables = {
        checked.relation.name.lower(): checked.table_options
        for checked in statements
        if isinstance(checked, CheckedTable)
    }
    for checked in statements:
        if not isinstance(checked, CheckedRunnable) or not checked.running or checked.changes is None:
            continue
        target = checked.changes
        values = checked.sink_options if isinstance(checked, CheckedInsert) else {}
        if target.kind == "sink" and (found := system.of_sink(target.name, values)) is not None:
            yield system, checked, *found
            continue
        options = tables.get(target.name.lower(), {})
        if (place := system.of_table(options)) is not None:
            yield system, checked, place, options


def _writer(system: AdoptedTables, checked: CheckedRunnable, place: str, values: Mapping[str, Any]) -> Writer:
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
        return Writer(system, plan, place, values, system.has_key(values, checked.resolved.schema))
    if not target.schema.key:
        raise AdoptionRefused(
            f'table "{target.name}" has no key: its {system.kind} would need the numbers of its rows',
            hint=f"append to the {system.kind} itself: {system.example}",
            place=checked.statement.place,
        )
    return Writer(system, plan, place, values, upserts=values.get("on.conflict") != "error")
