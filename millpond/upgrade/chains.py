"""Notes which derived streams an upgrade builds beside the old ones, and what is built with them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from millpond.sql.checked import Checked, CheckedStreamAs
from millpond.upgrade.decisions import Decision, Difference, Kept, Rebuilt


@dataclass(eq=False)
class Chains:
    """Contains the streams that are built beside the old ones. ``in_place`` are those that cannot be: what reads them
    does not stay meanwhile. All names are in lower case.
    """

    in_place: frozenset[str] = frozenset()
    unfit: set[str] = field(default_factory=set)
    """Streams of which that was found out."""
    names: set[str] = field(default_factory=set)
    """All that is built with them, and the views over them: the old ones stay meanwhile."""
    _roots: dict[str, set[str]] = field(default_factory=dict)
    """The streams that begin again beside the old ones, by those that are read through them, and through views."""

    def read_by(self, names: Iterable[str]) -> set[str]:
        """Returns the streams that a statement with these names reads."""
        return {root for name in names for root in self._roots.get(name, ())}

    def refuse(self, names: Iterable[str]) -> None:
        """Notes that a statement with these names cannot be built with the streams that it reads."""
        self.unfit |= self.read_by(names)

    def allows(self, kind: str, name: str, names: Iterable[str], *, late: bool) -> bool:
        """Returns whether something can be built beside the old one. ``late`` says that it begins at the end of its
        stream, which is no place in another one.
        """
        if late and self.read_by(names):
            return False
        return kind != "stream" or name.lower() not in self.in_place

    def note(
        self, kind: str, name: str, names: Iterable[str], difference: Difference, *, beside: bool
    ) -> None:
        """Notes what becomes of a statement that the state directory has."""
        read, name = self.read_by(names), name.lower()
        if beside and isinstance(difference, Rebuilt) and (read or kind == "stream"):
            self.names.add(name)
            if kind == "stream":
                self._roots[name] = read | {name}
        elif read and kind == "view" and isinstance(difference, Kept):
            self.names.add(name)
            self._roots[name] = read
        elif read and (kind == "view" or isinstance(difference, Rebuilt)):
            self.unfit |= read


def with_readers(decision: Decision, checked: Checked, *, beside: bool) -> Decision:
    """Returns the decision about a derived stream that is rebuilt with what its readers see."""
    if decision.action != "rebuilt" or not isinstance(checked, CheckedStreamAs):
        return decision
    how = (
        "it is built beside the old one, with what reads it, and all are swapped in one commit"
        if beside
        else "it begins again in its place, and so does what reads it"
    )
    return replace(decision, why=f"{decision.why}; {how}")
