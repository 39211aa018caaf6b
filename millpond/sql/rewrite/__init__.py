"""Rewrites a resolved query: replaces what an evaluator does not support with equivalent forms.

Each rewrite is a function from tree to tree in the file of its name; the tuples are their order.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from millpond.sql.notes import copied
from millpond.sql.rewrite.any_all import any_all
from millpond.sql.rewrite.groups_first import groups_first
from millpond.sql.rewrite.in_value import in_value
from millpond.sql.rewrite.ordered_list import ordered_list
from millpond.sql.rewrite.window_start import window_start

Rewrite = Callable[[exp.Expr], exp.Expr]

FOR_DUCKDB: tuple[Rewrite, ...] = (groups_first, any_all)
FOR_SPARK: tuple[Rewrite, ...] = (groups_first, any_all, in_value, ordered_list, window_start)


def rewrite(tree: exp.Expr, rewrites: tuple[Rewrite, ...]) -> exp.Expr:
    """Returns a copy of the tree with every rewrite applied in order."""
    tree = copied(tree)
    for step in rewrites:
        tree = step(tree)
    return tree
