"""Defines checked statements that neither read nor change rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from millpond.sql import statements as st
from millpond.sql.catalog import Index, Relation
from millpond.sql.checked import Checked


@dataclass(frozen=True)
class CheckedAbout(Checked):
    """Represents a statement about a relation that exists."""

    relation: Relation

    @property
    def needs(self) -> frozenset[str]:
        return frozenset((self.relation.name,))


@dataclass(frozen=True)
class CheckedDescribe(CheckedAbout):
    statement: st.Describe


@dataclass(frozen=True)
class CheckedHistory(CheckedAbout):
    """Represents DESCRIBE HISTORY of a table, or of the source at a URI with these options."""

    statement: st.DescribeHistory
    values: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class CheckedCare(CheckedAbout):
    """Represents OPTIMIZE and VACUUM."""

    statement: st.Optimize | st.Vacuum


@dataclass(frozen=True)
class CheckedShowCreate(CheckedAbout):
    statement: st.ShowCreate


@dataclass(frozen=True)
class CheckedReplay(CheckedAbout):
    statement: st.Replay


@dataclass(frozen=True)
class CheckedDrop(CheckedAbout):
    """Represents DROP of a stream, table or view."""

    statement: st.Drop


@dataclass(frozen=True)
class CheckedAlter(CheckedAbout):
    """Represents ALTER TABLE. ``after`` is the table as it is then."""

    statement: st.AlterTable
    after: Relation

    @property
    def changes_nothing(self) -> bool:
        before, after = self.relation, self.after
        same = before.name == after.name and before.schema == after.schema
        return same and not isinstance(self.statement.action, st.SetOptions)


@dataclass(frozen=True)
class CheckedSwap(CheckedAbout):
    """Represents ALTER TABLE … SWAP WITH."""

    statement: st.AlterTable


@dataclass(frozen=True)
class CheckedDropQuery(Checked):
    statement: st.Drop


@dataclass(frozen=True)
class CheckedIndex(Checked):
    """Represents CREATE INDEX."""

    statement: st.CreateIndex
    index: Index

    @property
    def needs(self) -> frozenset[str]:
        return frozenset((self.index.table,))


@dataclass(frozen=True)
class CheckedDropIndex(Checked):
    statement: st.Drop
    index: Index

    @property
    def needs(self) -> frozenset[str]:
        return frozenset((self.index.table,))


@dataclass(frozen=True)
class CheckedUpgrade(Checked):
    """Represents EXPLAIN UPGRADE."""

    statement: st.ExplainUpgrade


@dataclass(frozen=True)
class CheckedBegin(Checked):
    statement: st.Begin


@dataclass(frozen=True)
class CheckedEnd(Checked):
    statement: st.Commit | st.Rollback


@dataclass(frozen=True)
class CheckedShow(Checked):
    statement: st.Show


@dataclass(frozen=True)
class CheckedControl(Checked):
    """Represents PAUSE, RESUME, STOP and START of a query."""

    statement: st.ControlQuery


@dataclass(frozen=True)
class CheckedName(Checked):
    """Represents a running statement by its name, in EXPLAIN ANALYZE QUERY."""

    statement: st.NamedQuery
