"""The inputs of a query: names, URIs, queries in parentheses, and how they are joined."""

from __future__ import annotations

import pyarrow as pa
from sqlglot import exp

from millpond.errors import Error, NotSupported, SqlError, TypeMismatch, UnknownName
from millpond.sql.catalog import Relation
from millpond.sql.resolve.expressions import Columns, Expressions, column_node
from millpond.sql.resolve.model import Input
from millpond.sql.scope import Item, Scope, Visible
from millpond.sql.spans import span_of
from millpond.sql.typing import widest
from millpond.sql.windowing import lower_window

_ITEM = frozenset({"this", "alias", "db", "catalog", "joins", "expressions", "with_"})


class Inputs(Expressions):
    """Resolves FROM."""

    def _renamed(self, node: exp.Expr, columns: Columns) -> Columns:
        """The columns under the names of an alias ``q(a, b)``."""
        alias = node.args.get("alias")
        if not isinstance(alias, exp.TableAlias) or not alias.args.get("columns"):
            return columns
        names = alias.args["columns"]
        if len(names) != len(columns):
            self.errors.append(
                TypeMismatch(
                    f'"{alias.name}" names {len(names)} columns, but the query gives {len(columns)}',
                    place=self.place(alias),
                )
            )
        return [(n.name, dtype) for n, (_, dtype) in zip(names, columns, strict=False)]

    def _values(self, node: exp.Values, outer: Scope | None) -> tuple[exp.Expr, Columns]:
        scope = Scope(outer)
        rows = [r if isinstance(r, exp.Tuple) else exp.Tuple(expressions=[r]) for r in node.expressions]
        node.set("expressions", [self._expr(r, scope) for r in rows])
        width = len(node.expressions[0].expressions) if node.expressions else 0
        columns: Columns = []
        for i in range(width):
            types = [self._type(r.expressions[i]) for r in node.expressions if len(r.expressions) == width]
            columns.append((f"col{i + 1}", widest(types) if None not in types else None))
        return node, self._renamed(node, columns)

    def _from(self, node: exp.Select, scope: Scope) -> None:
        from_ = node.args.get("from_")
        if from_ is None:
            return
        self._add(from_, from_.this, scope)
        for join in node.args.get("joins") or ():
            left = list(scope.items)
            self._add(join, join.this, scope)
            self._join_condition(join, left, scope)
        for lateral in node.args.get("laterals") or ():
            self._lateral(lateral, scope)

    def _nothing_more(self, node: exp.Expr, known: frozenset[str], where: str) -> None:
        """Refuses a clause that would otherwise be passed over."""
        for key, value in node.args.items():
            if value and key not in known:
                clause = key.strip("_").removesuffix("s").upper()
                self.errors.append(NotSupported(f"{clause} {where} is not supported", place=self.place(node)))

    def _add(self, holder: exp.Expr, node: exp.Expr, scope: Scope) -> None:
        """One item of FROM: a name, a source, a query in parentheses, VALUES."""
        self._nothing_more(node, _ITEM, "after an input")
        columns: Columns
        if isinstance(node, exp.Table):
            alias = node.alias or node.name
            tree, columns = self._table(node, alias, scope)
            if tree is not node:
                holder.set("this", tree)
            node = tree
        elif isinstance(node, exp.Subquery) and isinstance(node.this, exp.Table):
            self._add(node, node.this, scope)
            return
        elif isinstance(node, exp.Subquery | exp.Values):
            if not node.alias:
                node.set("alias", exp.TableAlias(this=exp.to_identifier(f"__q{len(scope.items)}")))
            alias = node.alias
            if isinstance(node, exp.Values):
                _, columns = self._values(node, scope)
                if not node.args["alias"].args.get("columns"):
                    names = [exp.to_identifier(name, quoted=True) for name, _ in columns]
                    node.args["alias"].set("columns", names)
            else:
                inner, columns = self._query(node.this, Scope(scope.outer, [], {}, _all_ctes(scope)))
                node.set("this", inner)
                columns = self._renamed(node, columns)
        else:
            lateral = isinstance(node, exp.Lateral)
            self.errors.append(
                NotSupported(
                    f"{type(node).__name__.upper()} in FROM is not supported",
                    hint="a join, or a subquery in SELECT or WHERE, can say the same" if lateral else None,
                    place=self.place(node),
                )
            )
            return
        if scope.item(alias):
            self.errors.append(
                SqlError(
                    f'"{alias}" stands twice in FROM',
                    hint="give one of them another alias",
                    place=self.place(node),
                )
            )
        if isinstance(node, exp.Subquery) and node.args.get("joins"):
            self.errors.append(NotSupported("a join in parentheses is not supported", place=self.place(node)))
        shown = len(columns) - int(node.meta.get("hidden") or 0)
        visible = [Visible(alias, name, dtype, i >= shown) for i, (name, dtype) in enumerate(columns)]
        self.is_open |= not columns
        scope.items.append(Item(alias, visible))

    def _table(self, node: exp.Table, alias: str, scope: Scope) -> tuple[exp.Expr, Columns]:
        is_uri = bool(node.meta.get("uri"))
        if not is_uri:
            cte = None if node.args.get("db") else scope.cte(node.name)
            if cte is not None:
                return node, self._renamed(node, cte)
        relation = self._relation(node, alias, is_uri)
        if relation is None:
            return node, []
        if relation.kind == "view" and relation.query is not None:
            expression, _ = lower_window(relation.query, self.catalog, outputs=True)
            inner, columns = self._query(expression.copy(), None)
            columns = [(c.name, t) for c, (_, t) in zip(relation.schema, columns, strict=True)]
            names = [exp.to_identifier(n, quoted=True) for n, _ in columns]
            outer_alias = exp.TableAlias(this=exp.to_identifier(alias, quoted=True), columns=names)
            return exp.Subquery(this=inner, alias=outer_alias), columns
        view = f"__t{len(self.inputs)}"
        self.inputs.append(Input(view, alias, relation))
        fresh = exp.Table(
            this=exp.to_identifier(view), alias=exp.TableAlias(this=exp.to_identifier(alias, quoted=True))
        )
        hidden = [(c.name, c.type) for c in relation.schema if c.hidden]
        columns = [(c.name, c.type) for c in relation.schema if not c.hidden]
        declared = node.args.get("alias")
        if isinstance(declared, exp.TableAlias) and declared.args.get("columns"):
            columns = self._renamed(node, columns)
            named = [exp.to_identifier(n, quoted=True) for n, _ in (*columns, *hidden)]
            fresh.args["alias"].set("columns", named)
        span = span_of(node)
        if span:
            fresh.meta.update(start=span[0], end=span[1] - 1)
        fresh.meta["hidden"] = len(hidden)
        return fresh, [*columns, *hidden]

    def _relation(self, node: exp.Table, alias: str, is_uri: bool) -> Relation | None:
        place = self.place(node.this, own=True) if node.this else None
        if not is_uri and isinstance(node.this, exp.Func):
            self.errors.append(
                NotSupported(f"{node.this.sql()} in FROM is not supported", place=self.place(node))
            )
            return None
        if is_uri:
            if self.describe is None:
                self.errors.append(NotSupported("a source cannot be read here", place=place))
                return None
            try:
                return self.describe(node.name, alias)
            except Error as error:
                error.place = error.place or place
                self.errors.append(error)
                return None
        relation = self.catalog.find(node.name) if not node.args.get("db") else None
        if relation is None:
            name = ".".join(p.name for p in node.parts)
            self.errors.append(self.catalog.unknown(name, place=place))
        return relation

    def _join_condition(self, join: exp.Join, left: list[Item], scope: Scope) -> None:
        right = scope.items[-1] if len(scope.items) > len(left) else None
        using = [u.name for u in join.args.get("using") or ()]
        if (join.args.get("method") or "").upper() == "NATURAL" and right:
            join.set("method", None)
            using = [c.name for c in right.columns if Scope(None, left).matches(c.name)]
        if using and right:
            join.set("using", None)
            join.set("on", self._using(join, using, left, right, scope))
        elif join.args.get("on") is not None:
            join.set("on", self._condition(join.args["on"], scope))

    def _using(
        self, join: exp.Join, names: list[str], left: list[Item], right: Item, scope: Scope
    ) -> exp.Expr:
        conditions: list[exp.Expr] = []
        for name in names:
            there = Scope(None, left).matches(name)
            here = [c for c in right.columns if c.name.lower() == name.lower()]
            known = scope.merged.get(name.lower())
            if not here or not (there or known):
                if not all(i.columns for i in (*left, right)):
                    continue  # an input that is not known takes its columns with it
                self.errors.append(
                    UnknownName(
                        f'column "{name}" of USING is not on both sides of the join', place=self.place(join)
                    )
                )
                continue
            a = known.copy() if known is not None else column_node(there[0])
            b = column_node(here[0])
            conditions.append(exp.EQ(this=a.copy(), expression=b.copy()))
            side = (join.side or "").upper()
            if side == "RIGHT":
                scope.merged[name.lower()] = b
            elif side == "FULL":
                both = exp.Coalesce(this=a, expressions=[b])
                scope.merged[name.lower()] = both
            else:
                scope.merged[name.lower()] = a
        return exp.and_(*conditions, copy=False) if conditions else exp.true()

    def _lateral(self, node: exp.Lateral, scope: Scope) -> None:
        node.set("this", self._expr(node.this, scope))
        alias = node.args.get("alias")
        names = [c.name for c in (alias.args.get("columns") or ())] if alias else []
        inner = self._type(node.this.this) if isinstance(node.this, exp.Explode | exp.Posexplode) else None
        types: list[pa.DataType | None] = [None] * len(names)
        if inner is not None and pa.types.is_list(inner) and names:
            types[-1] = inner.value_type
        scope.items.append(
            Item(node.alias, [Visible(node.alias, n, t) for n, t in zip(names, types, strict=True)])
        )


def _all_ctes(scope: Scope) -> dict[str, Columns]:
    found: dict[str, Columns] = {}
    for level in reversed(list(scope.around())):
        found.update(level.ctes)
    return found
