"""What a SELECT gives: its list, and `*`."""

from __future__ import annotations

from collections import Counter

from sqlglot import exp

from millpond.errors import SqlError, UnknownName, did_you_mean
from millpond.sql.autoname import auto_name
from millpond.sql.calls import called
from millpond.sql.grouping import contains_aggregate
from millpond.sql.resolve.generators import generated, generates
from millpond.sql.resolve.inputs import column_of
from millpond.sql.resolve.joins import Joins
from millpond.sql.resolve.names import Aliases, ambiguous, column_node
from millpond.sql.resolve.stars import star_of
from millpond.sql.scope import Scope, Visible


class Outputs(Joins):
    """Resolves the list of a SELECT."""

    def _projections(self, node: exp.Select, scope: Scope) -> list[exp.Alias]:
        outputs: list[exp.Alias] = []
        for projection in node.expressions:
            star = star_of(projection)
            if star is not None and not self._is_path(projection, scope):
                outputs.extend(self._expand(projection, star, scope))
                continue
            name = projection.alias if isinstance(projection, exp.Alias) else auto_name(projection)
            value = projection.this if isinstance(projection, exp.Alias | exp.Aliases) else projection
            resolved = self._expr(value, scope, Aliases(outputs))
            if generates(value) and (found := self._generated(projection, resolved, node)) is not None:
                outputs.extend(found)
                continue
            if isinstance(projection, exp.Aliases):
                self.errors.append(
                    SqlError(
                        "several aliases are for a function that gives several columns",
                        place=self.place(projection),
                    )
                )
            self._type(resolved)
            outputs.append(exp.Alias(this=resolved, alias=exp.to_identifier(name, quoted=True)))
        node.set("expressions", outputs)
        return outputs

    def _generated(self, projection: exp.Expr, call: exp.Expr, node: exp.Select) -> list[exp.Alias] | None:
        """The columns of a function that gives rows of several: it becomes an input beside the others. None for one
        that gives a single column."""
        columns = generated(call, self._type)
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
            self.errors.append(SqlError(problem, place=self.place(projection)))
        alias = self._unique("__g")
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
        """Whether ``x.*`` is a path: x is no input of the query, but a column."""
        table = projection.table if isinstance(projection, exp.Column) else ""
        return bool(table) and not scope.has(table) and bool(scope.matches(table))

    def _expand(self, projection: exp.Expr, star: exp.Star, scope: Scope) -> list[exp.Alias]:
        """The columns of `*` or `x.*`; a name that several inputs have comes out as alias_name."""
        table = projection.table if isinstance(projection, exp.Column) else ""
        own = scope
        while table and not scope.has(table) and scope.outer is not None and scope.outer.lateral:
            scope = scope.outer
        if table and not scope.has(table):
            scope = own
            self.errors.append(
                UnknownName(
                    f'"{table}" is not an input of this query',
                    hint=did_you_mean(table, scope.inputs),
                    place=self._part(projection, 0),
                )
            )
            return []
        if not (scope.inputs or scope.columns or scope.unknown):
            self.errors.append(SqlError("SELECT * needs a FROM", place=self.place(projection)))
        columns = [c for c in scope.of(table) if not c.hidden] if table else scope.shown()
        dropped = self._excepted(star, columns)
        columns = [c for c in columns if c not in dropped]
        names = Counter(c.name.lower() for c in columns)
        replaced = self._replaced(star, columns, scope)
        outputs: list[exp.Alias] = []
        for column in columns:
            if column.name.lower() in replaced:
                outputs.append(replaced[column.name.lower()])
                continue
            twice = names[column.name.lower()] > 1 and column.alias
            name = f"{column.alias}_{column.name}" if twice else column.name
            made = exp.Alias(this=column_node(column), alias=exp.to_identifier(name, quoted=True))
            made.meta["star"] = True
            outputs.append(made)
        return outputs

    def _replaced(self, star: exp.Star, columns: list[Visible], scope: Scope) -> dict[str, exp.Alias]:
        """The values that stand in the place of columns of `*`, by the name of the column."""
        found: dict[str, exp.Alias] = {}
        for value in star.args.get("replace") or ():
            mine = [c for c in columns if c.name.lower() == value.alias.lower()]
            at = value.args["alias"]
            if not mine:
                hint = did_you_mean(value.alias, [c.name for c in columns])
                message = f'column "{value.alias}" is not there to be replaced'
                self.errors.append(UnknownName(message, hint=hint, place=self.place(at)))
            elif len(mine) > 1:
                self._note(ambiguous(value.alias, mine), self.place(at))
            resolved = self._expr(value.this, scope)
            self._type(resolved)
            name = exp.to_identifier(value.alias, quoted=True)
            found[value.alias.lower()] = exp.Alias(this=resolved, alias=name)
        return found

    def _excepted(self, star: exp.Star, columns: list[Visible]) -> list[Visible]:
        """The columns that EXCEPT takes out of `*`."""
        found: list[Visible] = []
        for named in star.args.get("except_") or ():
            table = named.table if isinstance(named, exp.Column) else ""
            mine = [
                c
                for c in columns
                if c.name.lower() == named.name.lower() and (not table or c.alias.lower() == table.lower())
            ]
            if not mine:
                self.errors.append(
                    UnknownName(
                        f'column "{named.name}" of EXCEPT is not there',
                        hint=did_you_mean(named.name, [c.name for c in columns]),
                        place=self.place(named) or self.place(star),
                    )
                )
            elif len(mine) > 1:
                self._note(ambiguous(named.name, mine), self.place(named) or self.place(star))
            elif any(c in found for c in mine):
                self.errors.append(
                    SqlError(
                        f'EXCEPT names column "{named.name}" twice',
                        place=self.place(named) or self.place(star),
                    )
                )
            found += mine
        if found and len(found) == len(columns):
            self.errors.append(SqlError("EXCEPT leaves no column of *", place=self.place(star)))
        return found
