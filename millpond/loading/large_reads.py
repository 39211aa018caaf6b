"""Decides which loads of files are read and evaluated by Spark's executors."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from millpond.clock import Clock
from millpond.connectors import abilities
from millpond.connectors.source import Source
from millpond.engine_rule import Engine, EngineRule
from millpond.errors import BadData, Closed, Error, ResultTooLarge, SourceError
from millpond.loading.chunks import Groups, Splits, size_of
from millpond.plan.load import order_matters
from millpond.query.evaluate import Evaluator
from millpond.sql.options import only_spark
from millpond.sql.resolve import Input, Resolved

if TYPE_CHECKING:
    from millpond.engine.load_stage import LoadStage

GROUP_ROWS = 1_000_000
GROUP_BYTES = 64 << 20
"""Rows and bytes of a chunk that executors read. This process holds up to three at a time."""

_PAUSE = 0.1
"""Seconds until jobs are cancelled again."""


class LargeReads:
    """Decides what executors read, by the setting of the app; ``spark`` returns its session, and starts it; ``mask``
    hides secrets in what is logged.
    """

    def __init__(
        self,
        spark: Callable[[], Any],
        clock: Clock,
        engine: Engine,
        evaluator: Evaluator,
        mask: Callable[[str], str],
    ):
        self.mask = mask
        self._spark = spark
        self._clock = clock
        self._engine = engine
        self._evaluator = evaluator
        self._stages: WeakSet[LoadStage] = WeakSet()
        self._closed = False

    def rule(self, rule: EngineRule) -> EngineRule:
        """Returns the rule of a statement in this app."""
        return rule.in_app(self._engine)

    def check(self, rule: EngineRule, query: Resolved, sources: Mapping[str, Source]) -> None:
        """Raises NotSupported if only Spark can evaluate a query over files, and the rule does not allow that."""
        if self.rule(rule).engine == "process" and (not sources or any(map(_can_spread, sources.values()))):
            who, why = self._evaluator.way(query)
            if who == "spark":
                raise only_spark(why)

    def groups(self) -> Groups:
        """Returns how the splits of a new load are grouped."""
        return Groups(GROUP_ROWS, GROUP_BYTES)

    def takes(
        self,
        rule: EngineRule,
        query: Resolved,
        by: Input | None,
        sources: Mapping[str, Source],
        splits: Splits,
        *,
        keyed: bool,
    ) -> bool:
        """Returns whether executors read these splits and evaluate the query over them. ``keyed``: the target keeps the
        last row of a key.
        """
        if not self.may_take(rule, query, sources, keyed=keyed):
            return False
        if by is not None and all(self.groups().is_huge(s) for s in splits[by.view]):
            return False  # this process reads what is more than it should hold at once
        return not self.rule(rule).in_process(*size_of(splits))

    def may_take(
        self,
        rule: EngineRule,
        query: Resolved,
        sources: Mapping[str, Source],
        *,
        keyed: bool,
    ) -> bool:
        """Returns whether executors read the sources of the query if they are large."""
        rule = self.rule(rule)
        if rule.engine == "process" or not sources or not all(_can_spread(s) for s in sources.values()):
            return False
        return rule.engine == "spark" or not order_matters(query, keyed=keyed)

    def stage(self, name: str, *, sifts: bool) -> LoadStage:
        """Returns what evaluates by Spark for a statement."""
        from millpond.engine.load_stage import LoadStage

        made = LoadStage(name, self._spark, self._clock, sifts=sifts)
        self._stages.add(made)
        if self._closed:
            made.cancel()
        return made

    def close(self) -> None:
        """Cancels what Spark reads, and waits until it has ended. Nothing is read by Spark afterwards."""
        self._closed = True
        while any([stage.cancel() for stage in list(self._stages)]):
            time.sleep(_PAUSE)

    def is_left_here(self, rule: EngineRule, error: Error) -> bool:
        """Returns whether this process reads after executors have failed with an error: it can, if they do not see the
        files or lack a package, and it knows more about what is wrong with the data. If Spark was asked for, only then.
        """
        if isinstance(error, Closed):
            return False
        return self.rule(rule).engine == "auto" or isinstance(error, BadData | SourceError | ResultTooLarge)


def _can_spread(source: Source) -> bool:
    """Returns whether executors can read a source, and Spark tells its columns apart."""
    names = source.schema().names
    return isinstance(source, abilities.Spreads) and len({name.lower() for name in names}) == len(names)
