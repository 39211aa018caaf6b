"""Evaluates the query of a load over what is to be read of its sources: in this process, or by Spark's executors."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millpond import allowance, steps
from millpond.connectors import prefetch
from millpond.connectors.source import SEQ, Source, Split
from millpond.errors import Closed, DataError, Error, ResultTooLarge
from millpond.formats.read_records import none_rejected
from millpond.loading.chunks import Answer, Groups, Splits, chunks_of, grouped, rows_of
from millpond.loading.inputs import Inputs
from millpond.loading.large_reads import LargeReads
from millpond.plan.load import with_seq
from millpond.plan.pipeline import plan_batch
from millpond.plan.plans import LoadPlan
from millpond.query.evaluate import Evaluator
from millpond.sql.pushdown import need_of
from millpond.sql.render import spark
from millpond.sql.resolve import Input
from millpond.sql.table_copies import copied
from millpond.steps import each
from millpond.store.snapshot import StoreSnapshot

if TYPE_CHECKING:
    from millpond.engine.load_stage import LoadStage

log = logging.getLogger("millpond")
_BY_SPARK = "read and evaluate by Spark"


class Evaluation:
    """Evaluates the query of one load. ``plan`` may be replaced by one with more columns. ``keyed`` tells whether
    of several rows with the same key the last one stays.
    """

    def __init__(
        self,
        plan: LoadPlan,
        large: LargeReads,
        evaluator: Evaluator,
        inputs: Inputs,
        snapshots: Callable[[], StoreSnapshot],
        *,
        keyed: Callable[[], bool],
    ):
        self.plan = plan
        self._keyed = keyed
        self._stays_here = False
        self._large = large
        self._evaluator = evaluator
        self._inputs = inputs
        self._snapshots = snapshots

    @property
    def _sifts(self) -> bool:
        return self.plan.errors is not None

    @cached_property
    def _stage(self) -> LoadStage:
        return self._large.stage(self.plan.name, sifts=self._sifts)

    def groups(self, sources: Mapping[str, Source], splits: Splits) -> Groups | None:
        """Returns how a new step is divided into chunks: by groups of splits, if executors read them, else by rows."""
        return self._large.groups() if self.plan.by is not None and self._takes(sources, splits) else None

    def _takes(self, sources: Mapping[str, Source], splits: Splits) -> bool:
        if self._stays_here:
            return False
        plan = self.plan
        return self._large.takes(plan.rule, plan.query, plan.by, sources, splits, keyed=self._keyed())

    def answers(
        self,
        sources: Mapping[str, Source],
        splits: Splits,
        groups: Groups | None,
        *,
        skip: int = 0,
        numbered: bool = False,
    ) -> Iterator[Answer]:
        """Yields the rows of the query over what is to be read, chunk by chunk if possible; the first are skipped.
        ``numbered``: with their sequence numbers. What Spark does can be cancelled meanwhile.
        """
        try:
            with allowance.ending(self._cancel):
                yield from self._answers(sources, splits, groups, skip, numbered=numbered)
        except Closed:
            self.__dict__.pop("_stage", None)
            allowance.check()  # the work of this thread alone may have been cancelled
            raise

    def _cancel(self) -> None:
        stage: LoadStage | None = self.__dict__.get("_stage")
        if stage is not None:
            stage.cancel()

    def _answers(
        self,
        sources: Mapping[str, Source],
        splits: Splits,
        groups: Groups | None,
        skip: int,
        *,
        numbered: bool,
    ) -> Iterator[Answer]:
        self._large.check(self.plan.rule, self.plan.query, sources)
        by = self.plan.by
        if by is None:
            if not skip:
                yield self._whole(sources, splits)
        elif groups is not None:
            on_spark = self._takes(sources, splits)
            chunks = self._by_groups(by, sources[by.view], splits[by.view], groups, skip, on_spark=on_spark)
            if on_spark:
                chunks = each(_BY_SPARK, prefetch.ahead(chunks, 1))
            for chunk in chunks:
                yield chunk if numbered else chunk._replace(rows=chunk.rows.drop_columns([SEQ]))
        else:
            chunks = chunks_of(sources[by.view], splits[by.view], self._sifts, numbered=numbered)
            for number, chunk in enumerate(each(f"read {by.relation.name}", chunks)):
                if number >= skip:
                    yield chunk._replace(rows=self.over(by.view, chunk.rows))

    def over(self, view: str, rows: pa.Table) -> pa.Table:
        """Returns the rows of the query over some of its source's."""
        query, by = self.plan.query, self.plan.by
        found = self._copied(rows)
        if found is not None:
            return found.append_column(SEQ, rows[SEQ]) if SEQ in rows.column_names else found
        if SEQ in rows.column_names and by is not None:
            query = with_seq(query, by)
        inputs = self._inputs.read(query, self._snapshots(), sources={view: rows})
        return self._evaluator.answer(query, inputs)

    def _copied(self, rows: pa.Table) -> pa.Table | None:
        """Returns the rows of a query that copies columns, from those of its source; None for one that does more."""
        names, arrow = copied(self.plan.query), self.plan.query.schema.arrow()
        by_name = {name.lower(): name for name in rows.column_names}
        if names is None or not all(name.lower() in by_name for name in names):
            return None
        found = [rows[by_name[n.lower()]].cast(f.type) for n, f in zip(names, arrow, strict=True)]
        return pa.table(found, schema=arrow)

    def _by_groups(
        self, by: Input, source: Source, splits: Sequence[Split], groups: Groups, skip: int, *, on_spark: bool
    ) -> Iterator[Answer]:
        """Yields a chunk for each group of splits, with ``_seq``. This process reads a split that is too large to be a
        chunk, and divides it by rows.
        """
        read, number, files = 0, 0, set[str | None]()
        for group in grouped(splits, groups):
            files = files.union(s.file for s in group)
            if groups.is_huge(group[0]):
                for chunk in chunks_of(source, group, self._sifts, numbered=True):
                    if number >= skip:
                        rows = self._typed(self.over(by.view, chunk.rows))
                        yield Answer(rows, chunk.rejected, read + chunk.read, len(files))
                    number += 1
                read += sum(s.bytes or 0 for s in group)
                continue
            read += sum(s.bytes or 0 for s in group)
            if number >= skip:
                found = self._group_by_spark(by, source, group) if on_spark else None
                on_spark = found is not None
                rows, rejected = found or self._group_here(by, source, group)
                yield Answer(rows, rejected, read, len(files))
            number += 1

    def _group_by_spark(
        self, by: Input, source: Source, group: Sequence[Split]
    ) -> tuple[pa.Table, pa.Table] | None:
        """Returns the rows of a chunk that executors read, and its error records; None if they cannot."""
        try:
            if (names := copied(self.plan.query)) is None:
                plan = plan_batch(self.plan.query, by)
                rows, rejected = self._stage.chunk(plan, source, group, self._snapshots())
            else:  # nothing is to be evaluated
                wanted = {name.lower() for name in names}
                columns = [n for n in source.schema().names if n.lower() in wanted]
                rows, rejected = self._stage.rows(source, group, columns)
                rows = self.over(by.view, rows)
            return self._typed(rows), rejected
        except Error as error:
            self._leave_here(error)
            return None

    def _group_here(self, by: Input, source: Source, group: Sequence[Split]) -> tuple[pa.Table, pa.Table]:
        """Returns the rows of a chunk that this process reads, and its error records."""
        chunks = list(chunks_of(source, group, self._sifts, numbered=True))
        rows = [self._nothing(), *(self._typed(self.over(by.view, c.rows)) for c in chunks)]
        return pa.concat_tables(rows), pa.concat_tables([none_rejected(), *(c.rejected for c in chunks)])

    def _leave_here(self, error: Error) -> None:
        """Raises an error of the executors, unless this process can do better."""
        if not self._large.is_left_here(self.plan.rule, error):
            raise error
        if isinstance(error, DataError):
            return  # this process says what is wrong
        self._stays_here = not isinstance(error, ResultTooLarge)
        log.warning(
            'table "%s" is loaded by the process of the app, not by executors: %s',
            self.plan.target.name,
            self._large.mask(error.message),
        )

    def _nothing(self) -> pa.Table:
        return self.plan.query.schema.arrow().append(pa.field(SEQ, pa.int64())).empty_table()

    def _typed(self, rows: pa.Table) -> pa.Table:
        """Returns rows with ``_seq`` with the names and types of the query."""
        schema = self._nothing().schema
        return rows.rename_columns(schema.names).cast(schema)

    def _whole(self, sources: Mapping[str, Source], splits: Splits) -> Answer:
        """Returns the rows of the query over everything."""
        if self._takes(sources, splits):
            try:
                return steps.timed(_BY_SPARK, lambda: self._whole_by_spark(sources, splits))
            except Error as error:
                self._leave_here(error)
        return self._whole_here(sources, splits)

    def _whole_by_spark(self, sources: Mapping[str, Source], splits: Splits) -> Answer:
        query = self.plan.query
        given = {view: source.schema().arrow().empty_table() for view, source in sources.items()}
        inputs = self._inputs.read(query, self._snapshots(), sources=given)
        tables = {view: rows for view, rows in inputs.items() if view not in sources}
        needed = {i.view: need_of(query, i).columns for i in query.inputs}
        reads = {view: (source, splits[view], needed[view]) for view, source in sources.items()}
        rows, rejected = self._stage.whole(spark.render(query.expression), reads, tables)
        return Answer(
            rows.rename_columns(list(query.schema.names)).cast(query.schema.arrow()), rejected, 0, 0
        )

    def _whole_here(self, sources: Mapping[str, Source], splits: Splits) -> Answer:
        """Evaluates in this process. If the query reads one source once, it streams the rows: no more of them are in
        memory than the query needs.
        """
        query, rejected = self.plan.query, [none_rejected()]
        names = {i.view: i.relation.name for i in query.inputs}
        inputs: dict[str, Any] = {}
        for view, source in sources.items():
            chunks = rows_of(chunks_of(source, splits[view], self._sifts), rejected)
            schema = source.schema().arrow()
            if len(sources) == 1 and self._evaluator.reads_once(query, view):
                batches = (batch for chunk in chunks for batch in chunk.to_batches())
                inputs[view] = pa.RecordBatchReader.from_batches(schema, batches)
            else:
                inputs[view] = pa.concat_tables([schema.empty_table(), *each(f"read {names[view]}", chunks)])
        inputs = self._inputs.read(query, self._snapshots(), sources=inputs)
        rows = self._evaluator.answer(query, inputs)
        return Answer(rows, pa.concat_tables(rejected), 0, 0)
