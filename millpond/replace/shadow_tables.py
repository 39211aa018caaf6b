"""Keeps what an upgrade has built beside a table: both go on, until a statement swaps them or drops the new one.

What is kept is a saved table as any other, ``t$next``, so a restart continues it from its position. The view
``t$difference`` compares both. The entry of the old table has the statement that it gets with the swap.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from millpond import faults
from millpond.alter.interruption import durable
from millpond.errors import Conflict, InUse, NotSupported, Place
from millpond.journal.revision import Revision
from millpond.query.result import Result
from millpond.replace.difference import difference
from millpond.replace.leftovers import BUILDING
from millpond.replace.or_replace import Replacements
from millpond.replace.shadow import HELD, Shadow
from millpond.sql.catalog import Relation
from millpond.sql.checked import CheckedTableAs
from millpond.sql.checked_commands import CheckedSwap
from millpond.sql.identity import identity
from millpond.sql.parse import parse
from millpond.sql.printer import print_name
from millpond.sql.reserved_names import difference_of, shadow_of
from millpond.statements.handlers import NOTHING, Handlers, handle
from millpond.statements.script import Checks
from millpond.statements.text_run import TextRun
from millpond.store.catalog import SavedRelation, saved
from millpond.store.undo import Undo


@dataclass(frozen=True, eq=False, repr=False)
class ShadowTables:
    """Keeps tables beside those that they may replace, and swaps them."""

    text: TextRun
    checks: Checks
    replacements: Replacements

    @property
    def handlers(self) -> Handlers:
        return dict((handle(CheckedSwap, self.swap),))

    def following(self, entry: SavedRelation) -> CheckedTableAs:
        """Returns the statement that a table gets."""
        assert entry.following is not None
        parsed = parse(entry.following[0])
        checked = self.checks.anew(parsed.require()[0], parsed.script.place)
        assert isinstance(checked, CheckedTableAs)
        return checked

    def kept(self, entry: SavedRelation) -> Shadow | None:
        """Returns what is kept beside a table."""
        catalog, name = self.replacements.catalog, shadow_of(entry.name)
        before, beside = catalog.find(entry.name), catalog.find(name)
        if before is None or beside is None or self.replacements.saved.relation(f"table:{name}") is None:
            return None
        return Shadow(beside, before)

    def keep(self, checked: CheckedTableAs, before: Relation, undo: Undo) -> Shadow:
        """Begins to build the table of a statement beside ``before``, and keeps it."""
        of = self.replacements
        checked = of.alters.with_types(checked)
        shadow = of.shadows.begin(checked, before, undo)
        name = shadow.relation.name
        made = replace(saved(checked, identity(checked.statement)), name=name)
        view, relation = difference(before, shadow.relation, self.checks)
        revision = Revision([made.entry(), view.entry()], drop=[(BUILDING, name)])
        faults.reach("shadow: begun")
        of.store.journal.revise(revision)
        with durable(of.store):
            faults.reach("shadow: kept")
            of.saved.add(made)
            of.saved.add(view)
            of.declarations.open(relation, {})
        return shadow

    def swap(self, checked: CheckedSwap, undo: Undo) -> Result:
        """Puts what is kept beside a table in its place."""
        s, of = checked.statement, self.replacements
        entry = of.saved.relation(f"table:{checked.relation.name}")
        shadow = None if entry is None else self.kept(entry)
        if self.text.in_file or of.alters.read_only:
            raise NotSupported(
                "ALTER TABLE … SWAP WITH is for an app that runs, not for its file",
                hint="millpond query, the shell or app.sql runs it once",
                place=s.place,
            )
        if entry is None or entry.following is None or shadow is None:
            raise NotSupported(
                f'table "{checked.relation.name}" is being rebuilt: both are swapped when the new one has caught up',
                place=s.place,
            )
        self._refuse_users(shadow, s.place)
        state = of.shadows.state_of(shadow)
        if state in HELD:
            action = "RESUME" if state == "paused" else "START"
            raise Conflict(
                f'the query "{shadow.query}", which fills "{shadow.relation.name}", is {state}: it does not catch up',
                hint=f"{action} QUERY {print_name(shadow.query)} first",
                place=s.place,
            )
        after = of.alters.with_types(self.following(entry))
        if of.way_of(after).kind != "rebuilt":
            raise Conflict(
                f'"{shadow.relation.name}" means the same as table "{entry.name}" by now',
                hint=f"DROP TABLE {print_name(shadow.relation.name)}",
                place=s.place,
            )
        made = saved(after, identity(after.statement))
        made.of_file = entry.of_file
        of.swap(shadow, after, made)
        return Result(NOTHING, count=0)

    def _refuse_users(self, shadow: Shadow, place: Place | None) -> None:
        name = shadow.relation.name
        own = (shadow.query, f"view:{difference_of(shadow.before.name)}")
        users = [u for u in self.replacements.users.of(shadow.relation) if u.name not in own]
        if users:
            raise InUse(
                f'table "{name}" is used by {", ".join(u.shown for u in users)}, which would not find it any more',
                hint="drop that first, and create it again after the swap",
                place=place,
            )
