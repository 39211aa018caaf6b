"""Expressions of our own that stand beside sqlglot's."""

from __future__ import annotations

from decimal import Decimal

from sqlglot import exp

IN_PARENTHESES = "in_parentheses"
"""Meta of VALUES in parentheses: an alias behind them is that of an input, not a part of the query."""
LETTER = "letter"
"""Meta of a CAST that was written as the letter of a number: the letter."""

NEVER_NULL = "never_null"
"""In the notes of a struct: none of its fields is NULL, so that every engine orders it in the same way."""


class StreamWindow(exp.Expression):
    """``WINDOW TUMBLING(…)`` of a query that is not the outermost: an entry of its Select's ``windows``.

    ``this`` is Var tumbling, hopping or session; ``size`` and ``slide`` are numbers of seconds.
    """

    arg_types = {"this": True, "time": False, "size": True, "slide": False}


class Path(exp.Expression):
    """A path with wildcards: ``positions.*.shares``, ``portfolio.**.price``, ``a[*].b``.

    ``expressions`` are its steps: Identifier, Star for ``*``, AnyDepth for ``**``, Index for ``[…]``.
    """

    arg_types = {"expressions": True}

    @property
    def steps(self) -> list[exp.Expression]:
        return list(self.expressions)


class AnyDepth(exp.Expression):
    """The step ``**`` of a Path: any number of levels."""

    arg_types = {}


class Index(exp.Expression):
    """The step ``[…]`` of a Path; ``this`` is the index, or Star."""

    arg_types = {"this": True}


class PathValues(exp.Expression):
    """The array of the values that a path finds from resolved columns. ``meta["steps"]`` are the steps from each of
    them (``sql/paths.py``); ``text`` is the path, so that different paths are different nodes."""

    arg_types = {"expressions": True, "text": True}


class AnyValue(exp.Expression):
    """Whether ``condition`` holds for any value of the array ``this``; ``variable`` is the Element in it."""

    arg_types = {"this": True, "variable": True, "condition": True}


class HeldValues(exp.Expression):
    """The values of the array ``this`` for which ``condition`` holds; ``variable`` is the Element in it."""

    arg_types = {"this": True, "variable": True, "condition": True}


class Element(exp.Expression):
    """A value of the array of an AnyValue or HeldValues; ``this`` is its name."""

    arg_types = {"this": True}


class ArraySum(exp.Expression):
    """The sum of the values of an array that are not NULL, in the type ``to``; NULL if there is none."""

    arg_types = {"this": True, "to": True}


class EachOnce(exp.Expression):
    """The different values in an array of arrays, as one array; NULL is left out."""

    arg_types = {"this": True}


def seconds_text(seconds: float) -> str:
    """A number of seconds that reads back as the same number, without an exponent."""
    return f"{Decimal(repr(seconds)):f}".removesuffix(".0")


class WindowStart(exp.Expression):
    """When the window of a time begins: the time rounded down to a multiple of ``size`` microseconds.

    With a ``size`` of 0 it is the time itself, where a session begins that nothing has been added to.
    """

    arg_types = {"this": True, "size": True, "offset": False}


def copied(tree: exp.Expr) -> exp.Expr:
    """A copy of a tree. What is noted of a node is not looked into, which takes sqlglot's own copy most of its time."""
    root = tree.__class__()
    waiting: list[tuple[exp.Expr, exp.Expr]] = [(tree, root)]
    while waiting:
        node, made = waiting.pop()
        made.comments, made._type = node.comments, node._type
        if node._meta is not None:
            made._meta = dict(node._meta)
        for key, value in node.args.items():
            if isinstance(value, exp.Expr):
                child = value.__class__()
                waiting.append((value, child))
                made.set(key, child)
            elif type(value) is list:
                made.args[key] = []
                for item in value:
                    one = item.__class__() if isinstance(item, exp.Expr) else item
                    if isinstance(item, exp.Expr):
                        waiting.append((item, one))
                    made.append(key, one)
            else:
                made.args[key] = value
    return root
