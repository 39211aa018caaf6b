"""Defines our own expressions, in addition to sqlglot's."""

from __future__ import annotations

from decimal import Decimal

from sqlglot import exp

IN_PARENTHESES = "in_parentheses"
"""Meta of VALUES in parentheses: an alias after them names an input, and is not part of the query."""
LETTER = "letter"
"""Meta of a CAST that was written as the type letter of a number: the letter."""

NEVER_NULL = "never_null"
"""In the notes of a struct: none of its fields is NULL, so that every engine orders it the same way."""


class StreamWindow(exp.Expression):
    """Represents ``WINDOW TUMBLING(…)`` of a query that is not the outermost: an entry of its Select's ``windows``.

    ``this`` is Var tumbling, hopping or session; ``size`` and ``slide`` are numbers of seconds.
    """

    arg_types = {"this": True, "time": False, "size": True, "slide": False}


class Path(exp.Expression):
    """Represents a path with wildcards: ``positions.*.shares``, ``portfolio.**.price``, ``a[*].b``.

    ``expressions`` are its steps: Identifier, Star for ``*``, AnyDepth for ``**``, Index for ``[…]``.
    """

    arg_types = {"expressions": True}

    @property
    def steps(self) -> list[exp.Expression]:
        return list(self.expressions)


class AnyDepth(exp.Expression):
    """Represents the step ``**`` of a Path: any number of levels."""

    arg_types = {}


class Index(exp.Expression):
    """Represents the step ``[…]`` of a Path; ``this`` is the index, or Star."""

    arg_types = {"this": True}


class PathValues(exp.Expression):
    """Represents the array of the values that a path finds from resolved columns. ``meta["steps"]`` are the steps from
    each column (``sql/paths.py``); ``text`` is the path, so that different paths are different nodes.
    """

    arg_types = {"expressions": True, "text": True}


class AnyValue(exp.Expression):
    """Tests whether ``condition`` is true for any value of the array ``this``; ``variable`` is the Element in it."""

    arg_types = {"this": True, "variable": True, "condition": True}


class FilteredValues(exp.Expression):
    """Represents the values of the array ``this`` for which ``condition`` is true; ``variable`` is the Element
    in it.
    """

    arg_types = {"this": True, "variable": True, "condition": True}


class Element(exp.Expression):
    """Represents a value of the array of an AnyValue or FilteredValues; ``this`` is its name."""

    arg_types = {"this": True}


class ArraySum(exp.Expression):
    """Computes the sum of the values of an array that are not NULL, in the type ``to``; NULL if there is none."""

    arg_types = {"this": True, "to": True}


class EachOnce(exp.Expression):
    """Represents the distinct values in an array of arrays, as one array, without NULL."""

    arg_types = {"this": True}


def seconds_text(seconds: float) -> str:
    """Returns a number of seconds as text that reads back as the same number, without an exponent."""
    return f"{Decimal(repr(seconds)):f}".removesuffix(".0")


class WindowStart(exp.Expression):
    """Computes when the window of a time begins: the time rounded down to a multiple of ``size`` microseconds.

    With a ``size`` of 0 it is the time itself, where a session begins to which nothing was added.
    """

    arg_types = {"this": True, "size": True, "offset": False}
