"""Recognises expressions that equal a grouping key, however they are written."""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from millpond.sql.grouping import clauses_of, grouping_keys, is_aggregate

_EITHER_WAY = (exp.Add, exp.Mul, exp.And, exp.Or, exp.EQ)


def spell_keys(select: exp.Select, views: Mapping[str, str]) -> None:
    """Writes a grouping key the same way everywhere: ``(a + b)`` and ``b + a`` as in GROUP BY.

    ``views`` are the names of the tables that the query reads as views: a subquery may read one again.
    """
    if select.args.get("group") is None:
        return
    same = _Same(views)
    keys = {same.text(key): key for key in reversed(grouping_keys(select))}
    for key in grouping_keys(select):
        if key != (first := keys[same.text(key)]):
            key.replace(first.copy())
    keys = {text: key for text, key in keys.items() if not isinstance(key, exp.Column)}
    for clause in clauses_of(select) if keys else ():
        _spell(clause, keys, same)


def _spell(node: exp.Expr, keys: Mapping[str, exp.Expr], same: _Same) -> None:
    key = keys.get(same.text(node)) if not isinstance(node, exp.Alias) else None
    if key is not None:
        if node != key:
            inside = isinstance(node.parent, exp.Binary | exp.Unary)
            node.replace(exp.Paren(this=key.copy()) if inside else key.copy())
        return
    if not is_aggregate(node):
        for child in list(node.iter_expressions()):
            _spell(child, keys, same)


class _Same:
    """Builds a text for an expression that is the same for expressions that differ only in parentheses, in the order of
    operands, and in the aliases of their subqueries.
    """

    def __init__(self, views: Mapping[str, str]):
        self._views = views

    def text(self, node: exp.Expr) -> str:
        aliases = {a.name: f"alias {i}" for i, a in enumerate(node.find_all(exp.TableAlias))}
        return self._text(node, {**self._views, **aliases})

    def _text(self, node: exp.Expr, names: Mapping[str, str]) -> str:
        while isinstance(node, exp.Paren):
            node = node.this
        if isinstance(node, _EITHER_WAY):
            sides = sorted((self._text(node.this, names), self._text(node.expression, names)))
            return f"{node.key}({', '.join(sides)})"
        if isinstance(node, exp.Identifier) and _is_of_input(node):
            return names.get(node.name, node.name)
        parts = []
        for key, value in sorted(node.args.items()):
            for item in value if isinstance(value, list) else [value]:
                if item is not None and item is not False:
                    parts.append(
                        f"{key}={self._text(item, names) if isinstance(item, exp.Expr) else repr(item)}"
                    )
        return f"{node.key}({', '.join(parts)})"


def _is_of_input(node: exp.Identifier) -> bool:
    """Returns whether an identifier is the name of an input, not of a column."""
    parent = node.parent
    return isinstance(parent, exp.Table | exp.TableAlias) or (
        isinstance(parent, exp.Column) and parent.args.get("table") is node
    )
