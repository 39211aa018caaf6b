"""Mistakes that somebody could make: names that are not there or mean two columns, columns too many."""

from __future__ import annotations

from collections.abc import Sequence

from tests.oracle.shapes.choices import Choices
from tests.oracle.shapes.scope import Scope
from tests.oracle.shapes.values import Place


class Mistakes:
    """In some statements, at most one kind of mistake, now and then."""

    def __init__(self, choices: Choices):
        self.choices = choices
        kinds = ["", "name", "ambiguous", "alias", "width", "kind", "ungrouped", "type"]
        self.kind = choices.pick(kinds) if choices.percent(12) else ""

    def leaves(self, scope: Scope, kinds: Sequence[str]) -> list[str]:
        """Other names for columns of these kinds, if there is to be a mistake."""
        if not self.kind or not self.choices.percent(12):
            return []
        names = scope.names()
        match self.kind:
            case "name":
                return ["nope", *(f"{i.alias}.nope" for i in scope.items if i.alias)]
            case "ambiguous":
                return [n for n in names if names.count(n) > 1]
            case "alias":
                return [f"zz.{n}" for n in names[:1]]
            case "type":
                return [
                    r
                    for k in ("num", "text", "array", "bool", "date")
                    if k not in kinds
                    for r in scope.references([k])
                ]
        return []

    def widths(self, kinds: Sequence[str]) -> Sequence[str]:
        """The kinds of the other side of a set operation."""
        if self.kind == "width" and self.choices.percent(50):
            return [*kinds, "num"]
        if self.kind == "kind" and self.choices.percent(50):
            return ["array" if k != "array" else "num" for k in kinds]
        return kinds

    def ungrouped(self, at: Place, listed: Sequence[str]) -> str:
        """The list of a SELECT that groups."""
        extra = at.scope.references(["num", "text"]) if self.kind == "ungrouped" else []
        return ", ".join([*listed, self.choices.pick(extra)] if extra else listed)
