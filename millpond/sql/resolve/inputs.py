"""Resolves the inputs of a query: names, URIs, queries in parentheses, VALUES."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pyarrow as pa
from sqlglot import exp

from millpond.errors import Error, NotSupported, SqlError, TypeMismatch
from millpond.sql.calls import called
from millpond.sql.catalog import Relation
from millpond.sql.resolve.context import Columns, Context
from millpond.sql.resolve.expressions import Expressions
from millpond.sql.resolve.generators import generated, generates
from millpond.sql.resolve.model import Input
from millpond.sql.resolve.ranges import range_of
from millpond.sql.scope import Cte, Scope, Visible
from millpond.sql.spans import span_of
from millpond.sql.typing import widest
from millpond.sql.versions import no_versions, version_of
from millpond.sql.windowing import lower_window

_ITEM = frozenset({"this", "alias", "db", "catalog", "joins", "expressions", "with_", "version"})
_LATERAL = frozenset({"this", "alias"})


@dataclass(slots=True)
class Side:
    """Represents a part of FROM: inputs that are joined one after the other, and the columns they return."""

    first: exp.Expr
    joins: list[exp.Join] = field(default_factory=list)
    columns: list[Visible] = field(default_factory=list)
    inputs: list[str] = field(default_factory=list)
    unknown: bool = False

    def scope(self, around: Scope) -> Scope:
        """Returns what a join condition over this part can name."""
        return Scope(around.outer, self.columns, self.inputs, self.unknown, all_ctes(around))


class Inputs:
    """Resolves the items of FROM, one input at a time."""

    def __init__(self, context: Context, expressions: Expressions):
        self._context = context
        self._expressions = expressions

    def renamed(self, node: exp.Expr, columns: Columns) -> Columns:
        """Returns the columns under the names of an alias ``q(a, b)``."""
        alias = node.args.get("alias")
        if not isinstance(alias, exp.TableAlias) or not alias.args.get("columns"):
            return columns
        names = alias.args["columns"]
        if len(names) != len(columns):
            self._context.add(
                TypeMismatch(
                    f'"{alias.name}" names {len(names)} columns, but the query gives {len(columns)}'
                ),
                alias,
            )
        return [(n.name, dtype) for n, (_, dtype) in zip(names, columns, strict=False)]

    def values(self, node: exp.Values, outer: Scope | None) -> tuple[exp.Expr, Columns]:
        scope = Scope(outer)
        rows = [r if isinstance(r, exp.Tuple) else exp.Tuple(expressions=[r]) for r in node.expressions]
        node.set("expressions", [self._expressions.resolve(r, scope) for r in rows])
        width = len(node.expressions[0].expressions) if node.expressions else 0
        columns: Columns = []
        for i in range(width):
            types = [
                self._context.type_of(r.expressions[i])
                for r in node.expressions
                if len(r.expressions) == width
            ]
            columns.append((f"col{i + 1}", widest(types) if None not in types else None))
        return node, self.renamed(node, columns)

    def resolve(self, node: exp.Expr, scope: Scope) -> Side:
        """Resolves one input: a name, a source, a query in parentheses, VALUES."""
        self._context.refuse_others(node, _ITEM, "after an input")
        columns: Columns
        if isinstance(node, exp.Table) and isinstance(node.this, exp.Values):
            node.this.set("alias", node.args.get("alias"))
            node = node.this
        if isinstance(node, exp.Table) and (numbers := range_of(node)) is not None:
            node = numbers
        if isinstance(node, exp.Table) and isinstance(node.this, exp.Func) and generates(node.this):
            return self._generator(node.this, node, None, scope)
        if isinstance(node, exp.Table):
            alias = node.alias or node.name
            node, columns = self._table(node, alias, scope)
        elif isinstance(node, exp.Values):
            alias = node.alias
            node, columns = self.values(node, scope)
            _set_alias(node, self._context.unique(alias or "__v"), columns)
        elif isinstance(node, exp.Subquery):
            alias = node.alias
            inner, columns = self._context.query(node.this, Scope(scope.outer, ctes=all_ctes(scope)))
            columns = self.renamed(node, columns)
            names = node.args.get("alias") if isinstance(node.args.get("alias"), exp.TableAlias) else None
            node.set("this", inner)
            _set_alias(
                node, self._context.unique(alias or "__q"), columns if names and names.columns else None
            )
        else:
            message = f"{type(node).__name__.upper()} in FROM is not supported"
            self._context.add(NotSupported(message), node)
            return Side(node, unknown=True)
        return self._seen(node, alias, columns)

    def resolve_lateral(self, node: exp.Lateral, left: Side | None, scope: Scope) -> Side:
        """Resolves ``LATERAL (SELECT …)``, whose query can name the columns of the inputs to its ``left``."""
        query = node.this
        if isinstance(query, exp.Func):
            return self._generator(query, node, left, scope)
        if not isinstance(query, exp.Subquery) or isinstance(query.this, exp.Table):
            message = "LATERAL stands before a query in parentheses"
            self._context.add(SqlError(message), node)
            return Side(node, unknown=True)
        self._context.refuse_others(node, _LATERAL, "after LATERAL")
        around = left.scope(scope) if left is not None else Scope(scope.outer, ctes=all_ctes(scope))
        around.lateral = left is not None
        alias = node.alias
        inner, columns = self._context.query(query.this, around)
        outside = around.tables()
        for found in inner.find_all(exp.AggFunc, exp.Anonymous):
            if found.meta.get("outer") and {c.table.lower() for c in found.find_all(exp.Column)} <= outside:
                message = "an aggregate in LATERAL needs a column of its own query"
                self._context.add(SqlError(message), found)
        columns = self.renamed(node, columns)
        named = node.args.get("alias")
        renamed = columns if isinstance(named, exp.TableAlias) and named.args.get("columns") else None
        made: exp.Expr = exp.Subquery(this=inner)
        if left is not None:
            made = exp.Lateral(this=made)
        _set_alias(made, self._context.unique(alias or "__q"), renamed)
        return self._seen(made, alias, columns)

    def _generator(self, call: exp.Func, node: exp.Expr, left: Side | None, scope: Scope) -> Side:
        """Resolves a function that returns rows: ``LATERAL explode(…)``, or alone in FROM. Spark evaluates it."""
        if not generates(call):
            numbers = range_of(exp.Table(this=call, alias=node.args.get("alias")))
            if numbers is not None:
                return self.resolve(numbers, scope)
            message = f"{call.sql()} in FROM is not supported"
            self._context.add(NotSupported(message), node)
            return Side(node, unknown=True)
        self._context.refuse_others(node, _LATERAL, "after a function")
        around = left.scope(scope) if left is not None else Scope(scope.outer, ctes=all_ctes(scope))
        resolved = self._expressions.resolve(call, around)
        columns = generated(resolved, self._context.type_of)
        if columns is None:
            message = f"what {called(call)} gives here cannot be told"
            hint = "explode takes an ARRAY or a MAP, inline an ARRAY of STRUCT, stack a number first"
            self._context.add(TypeMismatch(message, hint=hint), node)
            return Side(node, unknown=True)
        alias = node.alias
        columns = self.renamed(node, columns)
        made = exp.Lateral(this=resolved) if left is not None else exp.Table(this=resolved)
        _set_alias(made, self._context.unique(alias or "__g"), columns)
        return self._seen(made, alias, columns)

    def _seen(self, node: exp.Expr, alias: str, columns: Columns) -> Side:
        """Returns a resolved input with its columns under an alias."""
        shown = len(columns) - int(node.meta.get("hidden") or 0)
        self._context.is_open |= not columns
        own, name_of = _apart([name for name, _ in columns]), node.alias_or_name
        if own != [name for name, _ in columns]:
            _set_alias(node, name_of, [(name, None) for name in own])
        visible = [
            Visible(alias, name, column_of(name_of, own[i], dtype), i >= shown)
            for i, (name, dtype) in enumerate(columns)
        ]
        return Side(node, [], visible, [alias] if alias else [], not columns)

    def _table(self, node: exp.Table, alias: str, scope: Scope) -> tuple[exp.Expr, Columns]:
        is_uri = bool(node.meta.get("uri"))
        cte = None if is_uri or node.args.get("db") else scope.cte(node.name)
        if cte is not None and node.args.get("version"):
            self._context.add(no_versions(f'"{cte.name}" is a query of WITH'), node.args["version"])
            return node, []
        if cte is not None:
            columns = self.renamed(node, cte.columns)
            renamed = columns if columns is not cte.columns else None
            node.set("this", exp.to_identifier(cte.name, quoted=True))
            _set_alias(node, self._context.unique(alias), renamed)
            return node, columns
        relation = self._relation(node, alias, is_uri)
        if relation is None:
            return node, []
        if relation.kind == "view" and relation.query is not None:
            expression, _ = lower_window(relation.query, self._context.catalog, outputs=True)
            self._context.mentions.table(node, relation)
            self._context.mentions.enter_view()
            inner, columns = self._context.query(expression.copy(), None)
            self._context.mentions.leave_view()
            columns = [(c.name, t) for c, (_, t) in zip(relation.schema, columns, strict=True)]
            columns = self.renamed(node, columns)
            made = exp.Subquery(this=inner)
            _set_alias(made, self._context.unique(alias), columns)
            return made, columns
        if not is_uri:
            self._context.mentions.table(node, relation)
        view, own = f"__t{len(self._context.inputs)}", self._context.unique(alias)
        self._context.inputs.append(Input(view, own, relation))
        fresh = exp.Table(this=exp.to_identifier(view))
        hidden = [(c.name, c.type) for c in relation.schema if c.hidden]
        columns = [(c.name, c.type) for c in relation.schema if not c.hidden]
        declared = node.args.get("alias")
        renamed = None
        if isinstance(declared, exp.TableAlias) and declared.args.get("columns"):
            columns = self.renamed(node, columns)
            renamed = [*columns, *hidden]
        _set_alias(fresh, own, renamed)
        span = span_of(node)
        if span:
            fresh.meta.update(start=span[0], end=span[1] - 1)
        fresh.meta["hidden"] = len(hidden)
        return fresh, [*columns, *hidden]

    def _relation(self, node: exp.Table, alias: str, is_uri: bool) -> Relation | None:
        place = self._context.place(node.this, own=True) if node.this else None
        try:
            at = version_of(node)
        except SqlError as error:
            self._context.add(error, node.args["version"])
            return None
        if not is_uri and isinstance(node.this, exp.Func):
            self._context.add(NotSupported(f"{node.this.sql()} in FROM is not supported"), node)
            return None
        if is_uri:
            if self._context.describe is None:
                self._context.errors.append(NotSupported("a source cannot be read here", place=place))
                return None
            try:
                return self._context.describe(node.name, alias, at)
            except Error as error:
                error.place = error.place or (
                    place if at is None else self._context.place(node.args["version"])
                )
                self._context.errors.append(error)
                return None
        relation = self._context.catalog.find(node.name) if not node.args.get("db") else None
        if relation is not None and node.name.lower() == self._context.catalog.making:
            relation = None
        if relation is None:
            name = ".".join(p.name for p in node.parts)
            self._context.errors.append(self._context.catalog.unknown(name, place=place, source=True))
        if relation is None or at is None:
            return relation
        if not relation.versioned:
            what = f'{relation.kind} "{relation.name}"'
            self._context.add(no_versions(f"{what} does not keep earlier versions"), node.args["version"])
            return None
        return replace(relation, at=at)


def column_of(alias: str, name: str, dtype: pa.DataType | None) -> exp.Column:
    """Returns a column of the resolved query."""
    made = exp.Column(
        this=exp.to_identifier(name, quoted=True),
        table=exp.to_identifier(alias, quoted=True) if alias else None,
    )
    made.meta["dtype"] = dtype
    return made


def _set_alias(node: exp.Expr, alias: str, columns: Columns | None) -> None:
    names = [exp.to_identifier(name, quoted=True) for name, _ in columns or ()]
    node.set("alias", exp.TableAlias(this=exp.to_identifier(alias, quoted=True), columns=names or None))


def _apart(names: list[str]) -> list[str]:
    """Returns the names, with repeated ones replaced by others."""
    taken, used = {name.lower() for name in names}, set[str]()
    numbers: dict[str, int] = {}
    found: list[str] = []
    for name in names:
        n, own = numbers.get(name.lower(), 1), name
        while own.lower() in used or (n > 1 and own.lower() in taken):
            n += 1
            own = f"{name}_{n}"
        numbers[name.lower()] = n
        used.add(own.lower())
        found.append(own)
    return found


def all_ctes(scope: Scope) -> dict[str, Cte]:
    """Returns the queries of WITH that a query in a scope can name."""
    found: dict[str, Cte] = {}
    for level in reversed(list(scope.around())):
        found.update(level.ctes)
    return found
