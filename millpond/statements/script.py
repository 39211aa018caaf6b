"""Checks a text against what the app already contains: every statement, before the first one runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from millpond.errors import CheckFailed, Error, Place
from millpond.plan.connectors import Connectors, narrow
from millpond.sql import statements as st
from millpond.sql.blocks import Blocks, grouped
from millpond.sql.catalog import Catalog, CatalogVersion
from millpond.sql.check import Checker
from millpond.sql.checked import Checked, CheckedExplain, CheckedSelect, CheckedTableAs, CheckedTransaction
from millpond.sql.reserved_names import is_shadow, without_shadow
from millpond.sql.userfunctions import UserFunction
from millpond.statements.claims import claim
from millpond.statements.file_drops import passed_over
from millpond.store.catalog import Saved, SavedQuery, SavedRelation
from millpond.types import Schema

Locate = Callable[[int, int], Place]
StreamOptions = Mapping[str, Mapping[str, Any]]
"""The values of the options of streams, by their names in lower case."""


@dataclass(frozen=True, slots=True)
class Step:
    """Contains a statement to run, or one that the restored state already contains; or one that ``ran`` before a
    restart, with those that follow it in its block. ``anew`` is the text that takes the place of the one in the state.
    """

    checked: Checked | None
    claimed: Saved | None = None
    anew: st.Statement | None = None
    ran: st.Statement | None = None


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
        streams: StreamOptions | None = None,
    ) -> Checked:
        """Returns the checked statement; raises its errors."""
        checker = self.checker(
            self._catalog.copy() if catalog is None else catalog, locate, connectors, kept, streams
        )
        checked = checker.check(statement)
        if checked is None:
            raise_all(checker.errors)
        assert checked is not None
        return checked

    def checker(
        self,
        catalog: Catalog,
        locate: Locate,
        connectors: Connectors | None = None,
        kept: Schema | None = None,
        streams: StreamOptions | None = None,
    ) -> Checker:
        """Returns a checker that declares names in this catalog. ``streams`` are the options of the streams in it, by
        default those of the app.
        """
        return Checker(
            catalog,
            self._connectors if connectors is None else connectors,
            locate=locate,
            functions=self._functions,
            streams=self._options if streams is None else streams,
            kept=kept,
        )

    def kept(
        self,
        entry: SavedRelation | SavedQuery,
        statement: st.Statement,
        locate: Locate,
        widths: Mapping[str, int],
        catalog: Catalog | None = None,
        streams: StreamOptions | None = None,
    ) -> Checked:
        """Checks a saved statement again together with all others. ``widths`` says how many of the discovered columns
        of each stream it knows; without an entry it gets all current ones. ``catalog`` and ``streams`` are by default
        those of the app.
        """
        catalog = (self._catalog if catalog is None else catalog).copy()
        known = catalog.find(entry.name) if entry.kind == "table" else None
        if isinstance(entry, SavedRelation):
            catalog.remove(entry.name)
            catalog.remove(without_shadow(entry.name))
        catalog.add(*(narrow(relation, widths) for relation in catalog))
        kept = known.schema if known is not None else None
        checked = self.one(statement, locate, catalog, self._connectors.narrowed(widths), kept, streams)
        if is_shadow(entry.name) and isinstance(checked, CheckedTableAs):
            # Its statement has the name of the table beside it.
            return replace(checked, relation=replace(checked.relation, name=entry.name))
        return checked

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
        ran: Callable[[st.Statement], bool] = lambda _: False,
        in_file: bool = False,
    ) -> list[Step]:
        """Checks all statements of a text; raises the error, or CheckFailed with all of them.

        ``unclaimed`` are the statements of the state directory that the file has not named. ``in_block`` says that they
        are part of a transaction. ``version`` is the version of the catalog, by default the current one. ``ran`` says
        which statements ran before a restart: they are not checked, since tables may have changed after them. With
        ``in_file`` the same holds for those that a DROP of the file has undone.
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
        every = grouped(statements) if not in_block else statements
        past = passed_over(every, unclaimed.values()) if in_file else frozenset()
        for number, statement in enumerate(every):
            if number in past:
                ran(statement)
                steps.append(Step(None, ran=statement))
                continue
            try:
                found = claim(statement, left, lambda s: self.anew(s, locate))
            except Error as error:
                checker.errors.append(error)
                continue
            if found is not None:
                left.pop(found.entry.id)
                steps.append(Step(None, found.entry, statement if found.anew else None))
                continue
            if ran(statement):
                steps.append(Step(None, ran=statement))
                continue
            checked = checker.check(statement)
            checker.errors.extend(blocks.check(statement, checked))
            if checked is not None:
                members = checked.members if isinstance(checked, CheckedTransaction) else (checked,)
                steps += [Step(c) for c in members]
        checker.errors.extend(blocks.finish())
        if checker.errors:
            raise_all(checker.errors)
        return steps

    def anew(self, statement: st.Statement, locate: Locate, catalog: Catalog | None = None) -> Checked:
        """Checks a statement as if what it declares did not exist. ``catalog`` is by default that of the app."""
        catalog = (self._catalog if catalog is None else catalog).copy()
        catalog.remove(str(getattr(statement, "name", "")))
        return self.one(statement, locate, catalog)


def is_passing(checked: Checked) -> bool:
    """Returns whether a statement leaves nothing behind after its result."""
    plain = isinstance(checked, CheckedSelect | CheckedExplain) and st.only_reads(checked.statement)
    return plain and not checked.running and not checked.live


def raise_all(errors: Sequence[Error]) -> None:
    if len(errors) == 1:
        raise errors[0]
    raise CheckFailed(sorted(errors, key=lambda e: (e.line or 0, e.column or 0)))
