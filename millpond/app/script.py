"""Checks a text against what the app already contains: every statement, before the first one runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from millpond.errors import CheckFailed, Error, Place, StateForeign
from millpond.plan.connectors import Connectors, narrow
from millpond.sql import statements as st
from millpond.sql.blocks import Blocks, grouped
from millpond.sql.catalog import Catalog, CatalogVersion
from millpond.sql.check import Checker
from millpond.sql.checked import Checked, CheckedExplain, CheckedSelect, CheckedTransaction
from millpond.sql.identity import identity
from millpond.sql.parse import parse
from millpond.sql.printer import print_name
from millpond.sql.userfunctions import UserFunction
from millpond.store.catalog import Saved, SavedQuery, SavedRelation
from millpond.types import Schema

Locate = Callable[[int, int], Place]


@dataclass(frozen=True, slots=True)
class Step:
    """Contains a statement to run, or one that the restored state already contains."""

    checked: Checked | None
    claimed: Saved | None = None


class Checks:
    """Checks statements against what the app contains."""

    def __init__(
        self,
        catalog: Catalog,
        connectors: Connectors,
        functions: Mapping[str, UserFunction],
        options: Mapping[str, Mapping[str, Any]],
    ):
        self._catalog = catalog
        self._connectors = connectors
        self._functions = functions
        self._options = options

    def one(
        self,
        statement: st.Statement,
        locate: Locate,
        catalog: Catalog | None = None,
        connectors: Connectors | None = None,
        kept: Schema | None = None,
    ) -> Checked:
        """Returns the checked statement; raises its errors."""
        checker = Checker(
            self._catalog.copy() if catalog is None else catalog,
            self._connectors if connectors is None else connectors,
            locate=locate,
            functions=self._functions,
            streams=self._options,
            kept=kept,
        )
        checked = checker.check(statement)
        if checked is None:
            raise_all(checker.errors)
        assert checked is not None
        return checked

    def kept(
        self,
        entry: SavedRelation | SavedQuery,
        statement: st.Statement,
        locate: Locate,
        widths: Mapping[str, int],
    ) -> Checked:
        """Checks a saved statement again together with all others. ``widths`` says how many of the discovered columns
        of each stream it knows; without an entry it gets all current ones.
        """
        catalog = self._catalog.copy()
        known = catalog.find(entry.name) if entry.kind == "table" else None
        if isinstance(entry, SavedRelation):
            catalog.remove(entry.name)
        catalog.add(*(narrow(relation, widths) for relation in catalog))
        kept = known.schema if known is not None else None
        return self.one(statement, locate, catalog, self._connectors.narrowed(widths), kept)

    def text(
        self,
        statements: Sequence[st.Statement],
        locate: Locate,
        *,
        unclaimed: Mapping[str, Saved],
        queries: Mapping[str, str],
        dropped: Sequence[str],
        counts: Mapping[str, int],
        in_block: bool = False,
        version: CatalogVersion | None = None,
    ) -> list[Step]:
        """Checks all statements of a text; raises the error, or CheckFailed with all of them.

        ``unclaimed`` are the statements of the state directory that the file has not named. ``in_block`` says that they
        are part of a transaction. ``version`` is the version of the catalog, by default the current one.
        """
        checker = Checker(
            self._catalog.copy() if version is None else Catalog(version),
            self._connectors,
            locate=locate,
            functions=self._functions,
            streams=self._options,
            queries=queries,
            dropped=dropped,
            counts=counts,
        )
        left = dict(unclaimed)
        steps: list[Step] = []
        blocks = Blocks(in_block)
        for statement in grouped(statements) if not in_block else statements:
            try:
                claimed = _claim(statement, left)
            except Error as error:
                checker.errors.append(error)
                continue
            if claimed is not None:
                left.pop(claimed.id)
                steps.append(Step(None, claimed))
                continue
            checked = checker.check(statement)
            checker.errors.extend(blocks.check(statement, checked))
            if checked is not None:
                members = checked.members if isinstance(checked, CheckedTransaction) else (checked,)
                steps += [Step(c) for c in members]
        checker.errors.extend(blocks.finish())
        checker.errors.extend(_changed_queries(steps, left))
        if checker.errors:
            raise_all(checker.errors)
        return steps


def is_passing(checked: Checked) -> bool:
    """Returns whether a statement leaves nothing behind after its result."""
    plain = isinstance(checked, CheckedSelect | CheckedExplain) and st.only_reads(checked.statement)
    return plain and not checked.running and not checked.live


def targets_of(statement: st.Statement) -> set[str]:
    """Returns what a statement, or each of a block, changes."""
    inner = statement.statements if isinstance(statement, st.Block) else (statement,)
    return {s.target.lower() for s in inner if isinstance(s, st.WRITES)}


def _changed_queries(steps: Sequence[Step], unclaimed: dict[str, Saved]) -> Iterator[Error]:
    """Finds a query into a table that another query of the state filled: its rows would be inserted a second time."""
    left = {
        name
        for e in unclaimed.values()
        if isinstance(e, SavedQuery)
        for name in targets_of(grouped(parse(e.text).require())[0])
    }
    for step in steps:
        s = step.checked.statement if step.checked is not None and step.checked.running else None
        for name in sorted(targets_of(s) & left) if s is not None else ():
            yield StateForeign(
                f'the query that changes "{name}" was another one when the state directory was created',
                hint=f"start with the old text, DROP TABLE {print_name(name)} CASCADE, then start with the new one; "
                "or name another state directory",
                place=s.place if s is not None else None,
            )


def raise_all(errors: Sequence[Error]) -> None:
    if len(errors) == 1:
        raise errors[0]
    raise CheckFailed(sorted(errors, key=lambda e: (e.line or 0, e.column or 0)))


def _claim(statement: st.Statement, unclaimed: dict[str, Saved]) -> Saved | None:
    """Returns the restored entry of a statement; a different statement of the same name is an error."""
    if isinstance(statement, (*st.WRITES, st.Block)):
        same = identity(statement)
        return next((e for e in unclaimed.values() if isinstance(e, SavedQuery) and e.identity == same), None)
    if not isinstance(statement, st.CreateStream | st.CreateTable | st.CreateView | st.CreateIndex):
        return None
    kinds = ("index",) if isinstance(statement, st.CreateIndex) else ("stream", "table", "view")
    name = statement.name.lower()
    entry = next((e for e in unclaimed.values() if e.kind in kinds and e.name.lower() == name), None)
    if entry is None:
        return None
    if entry.identity == identity(statement) or statement.if_not_exists:
        return entry
    raise StateForeign(
        f'"{statement.name}" was declared differently when the state directory was created',
        hint=f"drop it first (DROP {entry.kind.upper()} {print_name(entry.name)}), or name another state directory",
        place=statement.place,
    )
