"""BEGIN … COMMIT in a text: what may stand between them."""

from __future__ import annotations

from collections.abc import Iterator

from millpond.errors import NotSupported, SqlError, without_passwords
from millpond.sql import statements as st
from millpond.sql.catalog import Relation
from millpond.sql.checked import Checked

_ALLOWED = (st.Insert, st.Update, st.Delete, st.Merge, st.Upsert, st.Truncate, st.Select, st.Explain)


def _shown(table: Relation) -> str:
    return "the journal" if table.place is None else without_passwords(table.place)


class Blocks:
    """Follows the statements of one text. ``inside`` says that a transaction is open before the first."""

    def __init__(self, inside: bool = False):
        self._outer = inside
        self._begin: st.Statement | None = None
        self._changes: Relation | None = None

    def check(self, s: st.Statement, checked: Checked | None) -> Iterator[SqlError]:
        """What is wrong with a statement at this place. ``checked`` is None when it is wrong in itself."""
        if isinstance(s, st.Begin):
            if self._begin is not None or self._outer:
                yield SqlError(
                    "a transaction is open already", hint="COMMIT or ROLLBACK it first", place=s.place
                )
            self._begin, self._changes = s, None
        elif isinstance(s, st.Commit | st.Rollback):
            if self._begin is None:
                name = type(s).__name__.upper()
                where = (
                    "end the transaction by its methods"
                    if self._outer
                    else "write BEGIN before its statements"
                )
                yield SqlError(f"{name} without BEGIN", hint=where, place=s.place)
            self._begin = None
        elif self._begin is not None or self._outer:
            yield from self._inside(s, checked)

    def _inside(self, s: st.Statement, checked: Checked | None) -> Iterator[SqlError]:
        if not isinstance(s, _ALLOWED):
            yield NotSupported(
                "a transaction holds INSERT, UPDATE, DELETE, MERGE, UPSERT and SELECT on tables only",
                hint="put this statement before BEGIN or after COMMIT: it cannot be rolled back",
                place=s.place,
            )
        elif checked is not None and checked.running:
            yield NotSupported("a running statement in a transaction is not supported yet", place=s.place)
        elif isinstance(s, st.Insert) and checked is not None and checked.target is not None:
            if checked.target.kind == "stream":
                yield NotSupported(
                    "INSERT INTO a stream in a transaction is not supported yet",
                    hint="put it after COMMIT",
                    place=s.place,
                )

        yield from self._one_place(s, checked)

    def _one_place(self, s: st.Statement, checked: Checked | None) -> Iterator[SqlError]:
        """All tables that a block changes must be able to change in one commit."""
        target = None if checked is None or isinstance(s, st.Select | st.Explain) else checked.target
        if target is None or target.kind != "table":
            return
        first = self._changes = self._changes or target
        if first.place != target.place:
            yield NotSupported(
                f'a transaction cannot change table "{first.name}", which is in {_shown(first)}, and table'
                f' "{target.name}", which is in {_shown(target)}: a crash in between would leave one behind',
                hint="change them in transactions of their own, or keep both tables in one place",
                place=s.place,
            )

    def finish(self) -> Iterator[SqlError]:
        """What is wrong at the end of the text."""
        if self._begin is not None:
            yield SqlError(
                "BEGIN without COMMIT or ROLLBACK in the same text",
                hint="a block stands in one text; programs use app.begin_transaction()",
                place=self._begin.place,
            )
