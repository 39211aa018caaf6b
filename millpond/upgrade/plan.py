"""Plans the upgrade of a state directory to a changed file: what becomes of each statement, before anything happens."""

from __future__ import annotations

from dataclasses import dataclass

from millpond.errors import StateForeign
from millpond.sql.blocks import grouped
from millpond.sql.parse import parse
from millpond.sql.reads import targets_of
from millpond.statements.shadow_names import without_shadows
from millpond.statements.text_run import TextRun
from millpond.upgrade.chains import Chains
from millpond.upgrade.edits import Upgrade
from millpond.upgrade.match import has_others, match
from millpond.upgrade.walk import PlanTools, Walk


@dataclass(frozen=True, eq=False, repr=False)
class UpgradePlanner(PlanTools):
    """Plans upgrades."""

    def plan(self, text: str, run: TextRun, *, fully: bool, shadow: bool = False) -> Upgrade:
        """Returns the upgrade to a text; raises the errors of the text. If not ``fully``, nothing is checked if the
        text has all statements of the state directory. ``shadow`` is as in ``Upgrades.prepare``."""
        parsed = parse(text)
        statements = grouped(parsed.require())
        matches, left = match(statements, without_shadows(self.saved))
        if any(not e.dropping for e in left.values()) and not any(m.entry for m in matches):
            raise StateForeign(
                f'the state directory "{self.facts.home}" belongs to another app: none of its statements is in this'
                " SQL",
                hint="use another directory, or the SQL that this one was created with",
            )
        gone = [e for e in left.values() if e.of_file]
        changed = [
            m
            for m in matches
            if m.entry is not None and (not m.same or m.entry.dropping or has_others(m, self.saved))
        ]
        left_out = run.left_out(statements)
        ran = run.ran_before(from_start=True)
        again = [s for s in statements if not ran(s) and targets_of(s) & left_out.keys()]
        if not gone and not changed and not again and not fully:
            return Upgrade(())
        in_place: frozenset[str] = frozenset()
        while True:
            ran = run.ran_before(from_start=True)
            chains = Chains(in_place)
            walk = Walk(self, parsed.script.place, matches, dict(left), ran, left_out, shadow, chains)
            made = walk.result()
            if chains.unfit <= in_place:
                return made
            in_place |= chains.unfit  # what reads these streams cannot be built with them
