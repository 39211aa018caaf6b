"""Resolves the outputs of a SELECT: its list, and `*`."""

from __future__ import annotations

from collections import Counter

from sqlglot import exp

from millpond.errors import SqlError, UnknownName, did_you_mean
from millpond.sql.autoname import auto_name
from millpond.sql.calls import called
from millpond.sql.grouping import contains_aggregate
from millpond.sql.resolve.context import Context
from millpond.sql.resolve.expressions import Expressions
from millpond.sql.resolve.generators import generated, generates
from millpond.sql.resolve.inputs import column_of
from millpond.sql.resolve.names import Aliases, ambiguous, column_node
from millpond.sql.resolve.stars import excepted, star_of
from millpond.sql.scope import Scope, Visible


class Outputs:
    """Resolves the list of a SELECT."""

    def __init__(self, context: Context, expressions: Expressions):
        self._context = context
        self._expressions = expressions

    def resolve(self, node: exp.Select, scope: Scope) -> list[exp.Alias]:
        outputs: list[exp.Alias] = []
        for projection in node.expressions:
            star = star_of(projection)
            if star is not None and not self._is_path(projection, scope):
                outputs.extend(self._expand(projection, star, scope))
                continue
            name = projection.alias if isinstance(projection, exp.Alias) else auto_name(projection)
            value = projection.this if isinstance(projection, exp.Alias | exp.Aliases) else projection
            resolved = self._expressions.resolve(value, scope, Aliases(outputs))
            if generates(value) and (found := self._generated(projection, resolved, node)) is not None:
                outputs.extend(found)
                continue
            if isinstance(projection, exp.Aliases):
                self._context.add(
                    SqlError("several aliases are for a function that gives several columns"), projection
                )
            self._context.type_of(resolved)
            outputs.append(exp.Alias(this=resolved, alias=exp.to_identifier(name, quoted=True)))
        node.set("expressions", outputs)
        return outputs

    def _generated(self, projection: exp.Expr, call: exp.Expr, node: exp.Select) -> list[exp.Alias] | None:
        """Resolves a function that returns several columns: it becomes one more input. None for one that returns a
        single column.
        """
        columns = generated(call, self._context.type_of)
        several = isinstance(projection, exp.Aliases)
        if columns is None or (len(columns) == 1 and not several):
            return None
        if several:
            names = [a.name for a in projection.expressions]
        else:
            names = [projection.alias] if isinstance(projection, exp.Alias) else [n for n, _ in columns]
        problem = None
        if len(names) != len(columns):
            problem = f"{called(call)} gives {len(columns)} columns here, and has {len(names)} aliases"
        elif node.args.get("group") or sum(generates(p.unalias()) for p in node.expressions) > 1:
            problem = f"{called(call)} stands alone in its SELECT, without GROUP BY"
        elif any(contains_aggregate(p) for p in node.expressions):
            problem = f"{called(call)} does not stand beside an aggregate"
        if problem is not None:
            self._context.add(SqlError(problem), projection)
        alias = self._context.unique("__g")
        own = [exp.to_identifier(f"c{i}", quoted=True) for i in range(len(columns))]
        table = exp.TableAlias(this=exp.to_identifier(alias, quoted=True), columns=own)
        if node.args.get("from_") is None:
            node.set("from_", exp.From(this=exp.Table(this=call, alias=table)))
        else:
            node.append("joins", exp.Join(this=exp.Lateral(this=call, alias=table), kind="CROSS"))
        return [
            exp.Alias(this=column_of(alias, c.name, dtype), alias=exp.to_identifier(name, quoted=True))
            for c, name, (_, dtype) in zip(own, names, columns, strict=False)
        ]

    def _is_path(self, projection: exp.Expr, scope: Scope) -> bool:
        """Returns whether ``x.*`` is a path: x is not an input of the query, but a column."""
        table = projection.table if isinstance(projection, exp.Column) else ""
        return bool(table) and not scope.has(table) and bool(scope.matches(table))

    def _expand(self, projection: exp.Expr, star: exp.Star, scope: Scope) -> list[exp.Alias]:
        """Returns the columns of `*` or `x.*`; a name that several inputs have becomes alias_name."""
        table = projection.table if isinstance(projection, exp.Column) else ""
        own = scope
        while table and not scope.has(table) and scope.outer is not None and scope.outer.lateral:
            scope = scope.outer
        if table and not scope.has(table):
            scope = own
            self._context.errors.append(
                UnknownName(
                    f'"{table}" is not an input of this query',
                    hint=did_you_mean(table, scope.inputs),
                    place=self._context.part(projection, 0),
                )
            )
            return []
        if not (scope.inputs or scope.columns or scope.unknown):
            self._context.add(SqlError("SELECT * needs a FROM"), projection)
        columns = [c for c in scope.of(table) if not c.hidden] if table else scope.shown()
        dropped = excepted(self._context, star, columns)
        columns = [c for c in columns if c not in dropped]
        names = Counter(c.name.lower() for c in columns)
        replaced = self._replaced(star, columns, scope)
        twice = [names[c.name.lower()] > 1 and bool(c.alias) for c in columns]
        shown = [f"{c.alias}_{c.name}" if t else c.name for c, t in zip(columns, twice, strict=True)]
        self._context.mentions.star(projection, star, columns, shown)
        outputs: list[exp.Alias] = []
        for column, name in zip(columns, shown, strict=True):
            if column.name.lower() in replaced:
                outputs.append(replaced[column.name.lower()])
                continue
            made = exp.Alias(this=column_node(column), alias=exp.to_identifier(name, quoted=True))
            made.meta["star"] = True
            outputs.append(made)
        return outputs

    def _replaced(self, star: exp.Star, columns: list[Visible], scope: Scope) -> dict[str, exp.Alias]:
        """Returns the values that replace columns of `*`, by the name of the column."""
        found: dict[str, exp.Alias] = {}
        for value in star.args.get("replace") or ():
            mine = [c for c in columns if c.name.lower() == value.alias.lower()]
            at = value.args["alias"]
            if not mine:
                hint = did_you_mean(value.alias, [c.name for c in columns])
                message = f'column "{value.alias}" is not there to be replaced'
                self._context.add(UnknownName(message, hint=hint), at)
            elif len(mine) > 1:
                self._context.add(ambiguous(value.alias, mine), at)
            resolved = self._expressions.resolve(value.this, scope)
            self._context.type_of(resolved)
            name = exp.to_identifier(value.alias, quoted=True)
            found[value.alias.lower()] = exp.Alias(this=resolved, alias=name)
        return found
