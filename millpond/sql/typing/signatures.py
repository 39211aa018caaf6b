"""Types functions by their parameters and result: what ``takes`` says in the table of functions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import pyarrow as pa
from sqlglot import exp

from millpond.sql.functions import by_name
from millpond.sql.typing.implicit import CONCRETE, implicit, wanted
from millpond.sql.typing.rule import Of, mismatch

_TAKES = re.compile(r"\((?P<parameters>.*)\) (?P<result>\S+)")


@dataclass(frozen=True)
class Signature:
    """Represents the parameters and the result of a function. The last parameter also accepts the arguments
    after it.
    """

    name: str
    parameters: tuple[str, ...]
    result: str

    def bind(self, given: Sequence[pa.DataType]) -> list[pa.DataType]:
        """Returns the types that arguments are cast to. Raises TypeMismatch for one that the function does not
        accept.
        """
        found = []
        for at, dtype in enumerate(given):
            expected = self.parameters[min(at, len(self.parameters) - 1)] if self.parameters else "any"
            target = implicit(dtype, expected)
            if target is None:
                raise mismatch(self.name.upper(), dtype, hint=f"argument {at + 1} is {wanted(expected)}")
            found.append(target)
        return found

    def type(self, given: Sequence[pa.DataType]) -> pa.DataType:
        bound = self.bind(given)
        return bound[int(self.result) - 1] if self.result.isdigit() else CONCRETE[self.result]


@cache
def signatures() -> dict[str, Signature]:
    """Returns all signatures by their names in capitals."""
    return {name.upper(): _signature(name, row.takes) for name, row in by_name().items() if row.takes}


def _signature(name: str, takes: str) -> Signature:
    found = _TAKES.fullmatch(takes)
    assert found is not None, takes
    listed = found["parameters"].replace("[", "").replace("]", "")
    parameters = [p.strip() for p in listed.split(",") if p.strip()]
    return Signature(name, tuple(p.removesuffix("...") for p in parameters), found["result"])


def argument_types(node: exp.Anonymous, of: Of) -> list[pa.DataType] | None:
    """Returns the types of a call's arguments; None if one is unknown, is a lambda or has a name."""
    found = [None if isinstance(a, exp.Lambda | exp.Kwarg) else of(a) for a in node.expressions]
    known = [dtype for dtype in found if dtype is not None]
    return known if len(known) == len(found) else None


def signed(signature: Signature, node: exp.Anonymous, of: Of) -> pa.DataType | None:
    """Returns the type of a call; None if the type of an argument is unknown."""
    given = argument_types(node, of)
    if given is None:
        return CONCRETE.get(signature.result)
    return signature.type(given)
