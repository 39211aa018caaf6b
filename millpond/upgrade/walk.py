"""Goes through a changed file, and decides what becomes of each statement of the state directory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from millpond.errors import CheckFailed, Error
from millpond.plan.connectors import options_of_table
from millpond.query.column_defaults import value_of
from millpond.query.evaluate import Evaluator
from millpond.sql import statements as st
from millpond.sql.blocks import grouped
from millpond.sql.catalog import Catalog, Relation
from millpond.sql.checked import Checked, CheckedCreate, CheckedInsert, CheckedStream
from millpond.sql.identity import identity
from millpond.sql.meaning import telling
from millpond.sql.parse import parse
from millpond.sql.printer import print_name
from millpond.sql.reads import names_used, targets_of
from millpond.sql.reserved_names import difference_of, shadow_of
from millpond.statements.handlers import WithTypes
from millpond.statements.saved_statements import SavedStatements
from millpond.statements.script import Checks, Locate
from millpond.store.catalog import Saved, SavedIndex, SavedQuery, SavedRelation, table_options, widths_of
from millpond.types import Column
from millpond.upgrade.chains import Chains, with_readers
from millpond.upgrade.compare import Context, Stored, compare, follows, same_query
from millpond.upgrade.decisions import (
    Altered,
    Decision,
    Difference,
    Kept,
    Rebuilt,
    Refused,
    Regrouped,
    being_built,
    decision_of,
    kept_as_shadow,
    revalued,
)
from millpond.upgrade.edits import Edit, Upgrade, edit_of
from millpond.upgrade.facts import Facts, begins_late, is_empty
from millpond.upgrade.match import CREATES, Match, changed_names, has_others
from millpond.upgrade.new_statements import new_once, refused_name, what_to_do
from millpond.upgrade.queries import goes_on, shown, stays_meanwhile, targets_of_saved
from millpond.upgrade.regroup import regrouped


@dataclass(frozen=True, eq=False, repr=False)
class PlanTools:
    """Contains what a plan is made with."""

    catalog: Catalog
    saved: SavedStatements
    checks: Checks
    facts: Facts
    with_types: WithTypes
    evaluator: Evaluator


@dataclass(eq=False, repr=False)
class Walk:
    """Goes through the statements of a file in order, with the catalog as it is after the upgrade."""

    of: PlanTools
    locate: Locate
    matches: Sequence[Match]
    left: dict[str, Saved]
    ran: Callable[[st.Statement], bool]
    left_out: Mapping[str, list[str]]
    """The marks of statements that ran and that the file has no longer, by what they changed."""
    shadow: bool
    chains: Chains = field(default_factory=Chains)
    beside: list[str] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)
    edits: list[Edit] = field(default_factory=list)
    errors: list[Error] = field(default_factory=list)
    again: dict[str, list[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        of = self.of
        self._catalog = of.catalog.copy()
        self._before = of.facts.stream_options(of.saved.entries.values())
        self._after: dict[str, Mapping[str, Any]] = dict(self._before)
        self._touched: set[str] = set()
        """The names of what is changed: statements that use them are compared again."""
        self._restarted: set[str] = set()
        """The names of streams whose rows begin again: positions in them mean nothing."""
        self._emptied: set[str] = set()
        """The names of tables that a query fills again."""
        self._remade: set[str] = set()
        """The names of tables whose rows or columns become others without a change that is written."""
        self._revalued: set[str] = set()
        """The names of views in which a variable has another value."""
        for m in self.matches:
            if m.entry is not None and not m.same and m.entry.kind != "index":
                self._remove(m.entry.name)
        for entry in self.left.values():
            if entry.of_file and entry.kind not in ("index", "query"):
                self._remove(entry.name)

    def _remove(self, name: str) -> None:
        self._catalog.remove(name)
        self._touched.add(name.lower())
        self._remove_shadow(name)

    def _remove_shadow(self, table: str) -> None:
        """Removes what is kept beside a table that changes."""
        if table not in self.beside and self.of.saved.relation(f"table:{shadow_of(table)}") is not None:
            self.beside.append(table)
            self._remove(shadow_of(table))
            self._remove(difference_of(table))

    def result(self) -> Upgrade:
        for m in self.matches:
            self._statement(m)
        for entry in [e for e in self.left.values() if not e.of_file]:
            statement = grouped(parse(entry.text).require())[0]
            if isinstance(entry, SavedQuery):
                self._query(statement, entry)
            elif names_used(statement) & self._touched:
                self._create(statement, entry, same=True)
        if self.errors:
            raise self.errors[0] if len(self.errors) == 1 else CheckFailed(self.errors)
        self._take_back()
        for entry in [e for e in self.left.values() if e.of_file]:
            why = "its rows stay where they are" if entry.kind == "query" else ""
            asks = entry.kind in ("table", "stream", "query") and not entry.dropping
            rows = self.of.facts.rows(entry)
            self.decisions.append(Decision("dropped", entry.kind, entry.name, why, rows=rows, asks=asks))
            if not entry.dropping:
                self.edits.append(Edit(_copy(entry, dropping=True)))
        return Upgrade(tuple(self.decisions), tuple(self.edits), tuple(self.beside), self.again)

    def _take_back(self) -> None:
        """Keeps what an upgrade that could not finish has dropped, and the file has again."""
        again = {m.entry.id: m.entry for m in self.matches if m.entry is not None and m.entry.dropping}
        edited = {e.entry.id for e in self.edits}
        self.edits += [Edit(entry) for name, entry in again.items() if name not in edited]
        self.edits = [replace(e, entry=_copy(e.entry, dropping=False)) for e in self.edits]

    def _statement(self, m: Match) -> None:
        s = m.statement
        if m.past:
            self.ran(s)
        elif isinstance(s, (*CREATES, st.CreateIndex)):
            if m.entry is None:
                self._new(s)
            else:
                self._create(s, m.entry, same=m.same)
        elif isinstance(m.entry, SavedQuery):
            self._query(s, m.entry)
        elif self.ran(s):
            if isinstance(s, st.AlterTable) and s.name.lower() in changed_names(self.matches):
                why = "the file changes its declaration, and has an ALTER TABLE that changed it before"
                hint = "write the columns into CREATE TABLE as they are to be, and leave out the ALTER TABLE"
                self.decisions.append(Decision("refused", "table", s.name, why, hint, place=s.place))
        else:
            self._new(s)

    # statements that the state directory does not have

    def _new(self, s: st.Statement) -> None:
        checked = self._check(s)
        self.chains.refuse(names_used(s))  # it would begin with the old one
        if checked is None or st.only_reads(s):
            return
        if isinstance(s, (*CREATES, st.CreateIndex)):
            kind = checked.declares.kind if checked.declares is not None else "index"
            self.decisions.append(Decision("new", kind, s.name, place=s.place))
        elif checked.running:
            self._new_query(s, checked)
        else:
            found = targets_of(s) & self.left_out.keys()
            again = {name: self.left_out[name] for name in found if self.of.facts.rows_of(name)}
            self.again |= again
            self.decisions.append(new_once(s, self.left.values(), again))

    def _new_query(self, s: st.Statement, checked: Checked) -> None:
        """Compares a query with one that changes the same target, and that the file has no longer."""
        targets = targets_of(s)
        left = [e for e in self.left.values() if isinstance(e, SavedQuery) and e.of_file]
        found = [e for e in left if targets_of_saved(e) & targets]
        if not found:
            new = Decision("new", "query", shown(targets), place=s.place)
            self.decisions.append(refused_name(checked, left) or new)
            return
        entry = found[0]
        self.left.pop(entry.id)
        why = (
            f"it changes {shown(targets)}, which the query {entry.name} of the old file has changed:"
            " rows would be there twice"
        )
        self._other_query(s, entry, checked, why, alone=len(found) == 1)

    def _other_query(
        self, s: st.Statement, entry: SavedQuery, checked: Checked, why: str, *, alone: bool = True
    ) -> None:
        """Decides about a query that goes on with another meaning: only one into a sink, without state, can."""
        hint = f"start with the old text, drop {shown(targets_of(s))}, then start with the new one"
        difference: Difference = Refused(why, hint)
        if alone and isinstance(checked, CheckedInsert) and checked.target.kind == "sink":
            if goes_on(entry.name, self._checked_before(entry), checked, self._restarted):
                difference = Altered("rows that come from now on follow the new text")
                self.edits.append(
                    Edit(replace(entry, text=s.text, identity=identity(s), widths=widths_of(checked)))
                )
        self.decisions.append(decision_of(difference, "query", entry.name, None, s.place))

    # statements that it has

    def _query(self, s: st.Statement, entry: SavedQuery) -> None:
        if not names_used(s) & self._touched:
            self.decisions.append(Decision("kept", "query", entry.name, place=s.place))
            return
        checked = self._check(s, f'query "{entry.name}"')
        if checked is None:
            return
        checked = self.of.with_types(checked)
        before = self._checked_before(entry)
        reads = {n.lower() for n in checked.reads} | names_used(s)
        again = sorted((reads & self._restarted) | (targets_of(s) & self._emptied))
        remade = sorted(reads & self._remade)
        hint = f"DROP QUERY {print_name(entry.name)}, and what it has filled, with the old file"
        if again:
            why = f'it uses "{again[0]}", which is rebuilt, and has inserted rows that would be there twice'
            self.decisions.append(Decision("refused", "query", entry.name, why, hint, place=s.place))
        elif remade and getattr(checked, "form", None) is not None:
            why = follows(remade[0])
            self.decisions.append(Decision("refused", "query", entry.name, why, hint, place=s.place))
        elif not same_query(before, checked, self._context(s, before, checked)):
            why = "what it reads has another meaning, and it has written rows that had the old one"
            self._other_query(s, entry, checked, why)
        else:
            why = f'rows that are there have the values that "{remade[0]}" had before' if remade else ""
            self.decisions.append(Decision("kept", "query", entry.name, why, place=s.place))

    def _create(self, s: st.Statement, entry: Saved, *, same: bool) -> None:
        other_values = names_used(s) & self._revalued or has_others(Match(s, entry, same), self.of.saved)
        if same and not other_values and not names_used(s) & self._touched:
            decision = Decision("kept", entry.kind, entry.name, place=s.place)
            if isinstance(entry, SavedRelation) and entry.following is not None:
                decision = being_built(decision, shadowed=entry.shadowed)
            self.decisions.append(decision)
            return
        self._remove_shadow(entry.name)
        known = self._catalog.find(entry.name) if entry.kind != "index" else None
        if entry.kind == "index":
            self._catalog.remove_index(entry.name)
        else:
            self._catalog.remove(entry.name)
        checked = self._check(s, f'{entry.kind} "{entry.name}"' if same else None)
        if checked is None:
            return
        if isinstance(entry, SavedIndex):
            if not same:
                self.decisions.append(
                    Decision("altered", "index", entry.name, "it is made again", place=s.place)
                )
                self.edits.append(Edit(replace(entry, text=s.text, identity=identity(s), of_file=True)))
            else:
                self.decisions.append(Decision("kept", "index", entry.name, place=s.place))
            return
        assert isinstance(entry, SavedRelation) and isinstance(checked, CheckedCreate)
        checked = self.of.with_types(checked)
        before = self._checked_before(entry)
        difference = self._difference(s, entry, before, checked)
        if other_values and isinstance(difference, Kept):
            difference = revalued(difference, entry.kind)
            self._revalued |= {entry.name.lower()} if entry.kind == "view" else set()
        facts, rows = self.of.facts, None
        if isinstance(difference, Rebuilt):
            rows, trimmed = facts.input_rows(checked), facts.trimmed(checked)
            reasons = (trimmed, "its errors are written again" if getattr(s, "errors_into", None) else None)
            difference = Rebuilt("; ".join((difference.why, *(t for t in reasons if t))))
        filled = facts.has_rows(entry)
        decision = decision_of(difference, entry.kind, entry.name, rows, s.place, filled=filled)
        if getattr(s, "or_replace", False):
            decision = replace(decision, asks=False)  # the statement says so
        self.decisions.append(decision)
        if isinstance(difference, Kept) and known is not None:
            self._catalog.add(replace(known, query=checked.relation.query))
        if not isinstance(difference, Kept) or entry.kind == "view":
            # What reads a view may have to read other rows, also if the view means the same.
            self._touched.add(entry.name.lower())
        outside = self.of.facts.is_outside(entry)
        others = [m.statement for m in self.matches if m.entry is not entry]
        others += [grouped(parse(e.text).require())[0] for e in self.left.values()]
        touched = self._touched - self.chains.names
        beside = stays_meanwhile(entry, checked, others, touched, live=self.shadow)
        beside = beside and self.chains.allows(
            entry.kind, entry.name, names_used(s), late=begins_late(checked)
        )
        if self.shadow and (other_values or entry.kind == "stream"):
            beside = False  # the old statement has the new values, too
        self.chains.note(entry.kind, entry.name, names_used(s), difference, beside=beside)
        self.decisions[-1] = decision = with_readers(decision, checked, beside=beside)
        if entry.kind == "table" and not isinstance(difference, Kept):
            if not isinstance(difference, Altered) or difference.changes:
                self._remade.add(entry.name.lower())
        if self.shadow and isinstance(difference, Rebuilt) and not is_empty(checked):
            self.decisions[-1] = kept_as_shadow(decision, possible=beside)
        if isinstance(difference, Rebuilt) and not is_empty(checked):
            begins = self._restarted if entry.kind == "stream" else set() if beside else self._emptied
            begins.add(entry.name.lower())
        edit = edit_of(
            s, entry, checked, difference, same=same, outside=outside, beside=beside, shadow=self.shadow
        )
        self.edits += [] if edit is None else [edit]

    def _difference(
        self, s: st.Statement, entry: SavedRelation, before: Checked | None, checked: CheckedCreate
    ) -> Difference:
        facts = self.of.facts
        stored = Stored(
            entry.kind,
            entry.name,
            entry.schema,
            entry.options,
            before,
            facts.has_rows(entry),
            facts.is_outside(entry),
            entry.first_name is not None,
            facts.has_failed(entry, getattr(s, "errors_into", None)),
        )
        found = compare(stored, checked, self._context(s, before, checked))
        if isinstance(found, Regrouped):
            return regrouped(found, entry.name, before, checked, facts.store, self.of.evaluator)
        return found

    def _context(self, s: st.Statement, before: Checked | None, checked: Checked) -> Context:
        options = table_options(checked) if isinstance(checked, CheckedCreate) else {}
        columns = s.columns if isinstance(s, st.CreateTable) else ()
        named = {c.name.lower(): c for c in columns}

        def default(column: Column) -> Any:
            return value_of(named[column.name.lower()], column, self.of.evaluator)

        return Context(
            lambda r: self._telling(r, before, self._before),
            lambda r: self._telling(r, checked, self._after),
            options_of_table(options),
            frozenset(self._restarted),
            frozenset(self._remade),
            default,
        )

    def _telling(
        self, relation: Relation, checked: Checked | None, streams: Mapping[str, Mapping[str, Any]]
    ) -> dict[str, Any]:
        """Returns the options of an input outside that decide which rows it has."""
        assert relation.uri is not None
        values = streams.get(relation.name.lower()) if relation.kind == "stream" else None
        own = getattr(checked, "source_options", {})
        found = values if values is not None else own.get(relation.uri, own.get(relation.name.lower(), {}))
        return telling(found, self.of.facts.source_options(relation.uri))

    def _checked_before(self, entry: SavedRelation | SavedQuery) -> Checked | None:
        """Returns a saved statement as it is checked with all others of the state directory; None if it cannot be."""
        parsed = parse(entry.text)
        try:
            statement = grouped(parsed.require())[0]
            widths = entry.widths
            checked = self.of.checks.kept(entry, statement, parsed.script.place, widths, streams=self._before)
            return self.of.with_types(checked)
        except Error:
            return None

    def _check(self, s: st.Statement, goes_on: str | None = None) -> Checked | None:
        """Returns the statement as it is checked with the new file; None after adding its errors. ``goes_on`` names a
        statement that is the same, and that something else in the file breaks.
        """
        checker = self.of.checks.checker(self._catalog, self.locate, streams=self._after)
        checked = checker.check(s)
        if checked is None:
            for error in checker.errors:
                if goes_on is None:
                    self.errors.append(error)
                else:
                    kind, _, name = goes_on.partition(" ")
                    hint = what_to_do(kind, name.strip('"'), self.of.saved)
                    self.decisions.append(
                        Decision("refused", kind, name.strip('"'), error.message, hint, place=s.place)
                    )
            return None
        if isinstance(checked, CheckedStream):
            self._after.update({k.lower(): v for k, v in checked.source_options.items()})
        return checked


def _copy(entry: Saved, **values: Any) -> Saved:
    return replace(entry, **values)
