"""Finds the columns of tables that a view only shows: no condition, no join and no expression reads them."""

from __future__ import annotations

import sqlglot.expressions as exp

from millpond.sql.incremental.nodes import JoinNode, Node, Outputs, ScanNode, StepNode, column_at

Origin = tuple[str, str]
"""A view in the query, and a column of its table."""


def shown_columns(root: Node) -> list[Origin | None] | None:
    """Returns for each column of a view the column that it shows, if that is not read anywhere else; None if the view
    is more than filters, columns and joins.
    """
    read: set[Origin | None] = set()
    found = _origins(root, read)
    return None if found is None else [None if origin in read else origin for origin in found]


def _origins(node: Node, read: set[Origin | None]) -> list[Origin | None] | None:
    """Returns where the columns of an operator come from, and adds what it reads."""
    match node:
        case ScanNode(view=view, names=names):
            return [(view, name) for name in names]
        case StepNode(child=child, outputs=outputs):
            below = _origins(child, read)
            if below is None:
                return None
            _add_read(outputs, below, read)
            return [None if pick is None else below[pick] for pick in outputs.picks]
        case JoinNode(left=left, right=right, pairs=pairs, residual=residual):
            a, b = _origins(left, read), _origins(right, read)
            if a is None or b is None:
                return None
            read.update(a[x] for x, _ in pairs)
            read.update(b[y] for _, y in pairs)
            if residual is not None:
                _add_read(residual, [*a, *b], read)
            return [*a, *b][: len(node.types)]
        case _:
            return None


def _add_read(outputs: Outputs, below: list[Origin | None], read: set[Origin | None]) -> None:
    """Adds the columns that are read for more than to be passed on."""
    places = {column_at(i): i for i in range(len(below))}
    for column in outputs.query.expression.find_all(exp.Column):
        above = column.parent.parent if isinstance(column.parent, exp.Alias) else column.parent
        passed = isinstance(above, exp.Select) and column.find_ancestor(exp.Where, exp.Join) is None
        if not passed and column.name in places:
            read.add(below[places[column.name]])
