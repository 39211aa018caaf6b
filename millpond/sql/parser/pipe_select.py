"""Builds the SELECT that grows while the operators of a pipe are parsed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum

from sqlglot import exp

from millpond.sql.nodes import Path

_OPEN = frozenset({"with_", "expressions", "from_", "joins", "laterals", "where"})


class Stage(IntEnum):
    """Says how complete a SELECT is: which clause came last, in the order of evaluation."""

    INPUT = 0
    FILTERED = 1
    PROJECTED = 2
    ORDERED = 3
    LIMITED = 4


@dataclass
class Pipe:
    """Represents what was parsed so far, as a SELECT that takes the next operator or becomes the input of a new one."""

    select: exp.Select
    stage: Stage = Stage.INPUT
    names: tuple[str, ...] = ()
    """The names that can qualify a column."""
    lost: set[str] = field(default_factory=set)
    """The names that could, before several inputs became one query."""
    computed: set[str] = field(default_factory=set)
    """Columns that do not belong to the input that ``names`` names."""
    columns: list[str] | None = None
    """The input columns, if the text determines them."""
    outputs: list[str] | None = None

    @classmethod
    def of(cls, query: exp.Expr) -> Pipe:
        """Returns a pipe that begins with this query."""
        while isinstance(query, exp.Subquery) and not any(v for k, v in query.args.items() if k != "this"):
            query = query.this
        if isinstance(query, exp.Values):
            alias = query.args.get("alias")
            columns = [c.name for c in alias.columns] if isinstance(alias, exp.TableAlias) else []
            return cls(_star_of(query), names=_names(query), columns=columns or None)
        if isinstance(query, exp.Subquery):
            return cls(_star_of(query), names=_names(query))
        if isinstance(query, exp.Select) and _is_open(query):
            stage = Stage.FILTERED if query.args.get("where") else Stage.INPUT
            return cls(query, stage, tuple(_inputs(query)))
        if isinstance(query, exp.Select):
            pipe = cls(query, Stage.PROJECTED, tuple(_inputs(query)))
            pipe.gives(query.expressions)
            pipe.close()
            return pipe
        return cls(_star_of(exp.Subquery(this=query)))

    def reach(self, stage: Stage) -> None:
        """Makes room for a clause: the SELECT so far becomes an input if it already has that clause, or a later one."""
        same = stage in (Stage.INPUT, Stage.FILTERED)
        if stage == Stage.INPUT and self.select.args.get("laterals"):
            self.close()
        before = Stage.PROJECTED if stage == Stage.ORDERED else stage
        if self.stage > before or (self.stage == before and not same):
            self.close()
        self.stage = stage

    def close(self, alias: exp.Expr | None = None) -> None:
        """Makes the SELECT so far the input of a new one."""
        names = self.names
        if alias is None and len(names) == 1:
            alias = exp.to_identifier(names[0], quoted=True)
        if self.stage >= Stage.PROJECTED:
            self.columns = self.outputs
        table = exp.TableAlias(this=alias) if alias is not None else None
        self.select = _star_of(exp.Subquery(this=self.select, alias=table))
        self.names = (alias.name,) if alias is not None else ()
        self.lost |= {name.lower() for name in names if name not in self.names}
        self.outputs = None
        self.stage = Stage.INPUT

    @property
    def source(self) -> exp.Expr:
        """Returns the first input of the SELECT."""
        source: exp.Expr = self.select.args["from_"].this
        return source

    def query(self) -> exp.Query:
        """Returns the whole pipe as one query."""
        only = self.source
        bare = not any(v for k, v in self.select.args.items() if k not in ("expressions", "from_"))
        if self.stage == Stage.INPUT and bare and isinstance(only, exp.Subquery):
            inner = only.this
            names = only.args.get("alias")
            more = any(v for k, v in only.args.items() if k not in ("this", "alias"))
            if isinstance(inner, exp.Query) and not more and not (names and names.args.get("columns")):
                return inner
        return self.select

    def begin(self, query: exp.Query) -> None:
        """Continues with another query that was made of this one."""
        columns = self.outputs if self.stage >= Stage.PROJECTED else self.columns
        self.lost |= {name.lower() for name in self.names}
        self.select, self.stage, self.names = _star_of(exp.Subquery(this=query)), Stage.INPUT, ()
        self.computed, self.columns, self.outputs = set(), columns, None

    def operand(self) -> exp.Query:
        """Returns the whole pipe as one side of UNION or another set operation."""
        query = self.query()
        plain = isinstance(query, exp.Select) and not any(
            query.args.get(k) for k in ("order", "sort", "cluster", "distribute", "limit", "offset", "with_")
        )
        return query if plain else exp.Subquery(this=query)

    def filter(self, condition: exp.Expr) -> None:
        before = self.select.args.get("where")
        if before is not None:
            condition = exp.And(this=_whole(before.this), expression=_whole(condition))
        self.select.set("where", exp.Where(this=condition))

    def join(self, join: exp.Join) -> None:
        """Adds a join. Items between commas are one input of it."""
        for earlier in self.select.args.get("joins") or ():
            if earlier.meta.pop("comma", None):
                earlier.set("kind", "CROSS")
        self.select.append("joins", join)
        self.names += _names(join.this)
        self.columns = None

    def rename(self, name: exp.Expr | None) -> None:
        """Names the whole pipe, and forgets the names of its inputs."""
        only = self.source
        if name is None:
            only.set("alias", None)
            self.lost |= {n.lower() for n in self.names}
            self.names, self.computed, self.columns = (), set(), None
            return
        plain = not any(v for k, v in self.select.args.items() if k not in ("expressions", "from_"))
        if self.stage == Stage.INPUT and plain and isinstance(only, exp.Table) and not only.args.get("alias"):
            self.lost |= {n.lower() for n in self.names}
            only.set("alias", exp.TableAlias(this=name))
        else:
            self.close(name)
        self.names = (name.name,)
        self.computed = set()

    def gives(self, items: list[exp.Expr]) -> None:
        """Records which columns are returned, and which of them are computed."""
        computed: set[str] = set()
        outputs: list[str] | None = []
        for item in items:
            value = item.this if isinstance(item, exp.Alias) else item
            if item.is_star:
                computed |= self.computed
                bare = isinstance(item, exp.Star) and not item.args.get("except_")
                outputs = outputs + self.columns if bare and outputs is not None and self.columns else None
                continue
            name = item.alias_or_name if isinstance(item, exp.Alias | exp.Column) else ""
            outputs = [*outputs, name] if name and outputs is not None else None
            if not isinstance(item, exp.Column) or value.name.lower() in self.computed:
                computed.add(name.lower())
        self.computed = computed - {""}
        self.outputs = outputs

    def replace(self, column: exp.Expr, value: exp.Expr) -> None:
        """Replaces the value of a column, which keeps its place."""
        self.select.set("expressions", [exp.Star(replace=[exp.Alias(this=value, alias=column)])])
        self.computed = self.computed | {column.name.lower()}
        self.outputs = self.columns

    def misses(self, column: exp.Expr, first: str) -> str | None:
        """Returns why a column cannot be qualified this way, or None."""
        visible = {name.lower() for name in self.names}
        if first.lower() in self.lost - visible:
            return f'"{first}" is no input of this operator any more'
        if [first.lower()] == [name.lower() for name in self.names] and column.name.lower() in self.computed:
            return f'"{column.name}" is computed, and is no column of "{first}"'
        return None


def qualified_columns(node: exp.Expr) -> Iterator[tuple[exp.Expr, str]]:
    """Yields the columns with a qualifier that names no input of a query inside the node, and that qualifier."""
    outside = node.find_ancestor(exp.Select)
    for found in node.find_all(exp.Column, Path):
        parts = found.parts if isinstance(found, exp.Column) else found.expressions
        if len(parts) < 2:
            continue
        first = parts[0].name
        around = found.find_ancestor(exp.Select)
        while (
            around is not outside
            and around is not None
            and first.lower() not in {n.lower() for n in _inputs(around)}
        ):
            around = around.find_ancestor(exp.Select)
        if around is None or around is outside:
            yield found, first


def _star_of(source: exp.Expr) -> exp.Select:
    return exp.Select(expressions=[exp.Star()], from_=exp.From(this=source))


def _is_open(select: exp.Select) -> bool:
    """Returns whether a SELECT only combines inputs, so that the next operator may become part of it."""
    items = select.expressions
    star = len(items) == 1 and isinstance(items[0], exp.Star) and not any(items[0].args.values())
    return (
        star
        and not any(v for k, v in select.args.items() if k not in _OPEN)
        and bool(select.args.get("from_"))
    )


def _inputs(select: exp.Select) -> Iterator[str]:
    source = select.args.get("from_")
    for one in (source, *(select.args.get("joins") or ()), *(select.args.get("laterals") or ())):
        if one is not None:
            yield from _names(one if isinstance(one, exp.Lateral) else one.this)


def _names(source: exp.Expr) -> tuple[str, ...]:
    """Returns the names of an input: several, if it is a join in parentheses."""
    inner = source.this if isinstance(source, exp.Subquery) else None
    if isinstance(inner, exp.Table):
        own = _names(inner)
    else:
        own = (source.alias_or_name,) if source.alias_or_name else ()
    return (*own, *(n for join in source.args.get("joins") or () for n in _names(join.this)))


def _whole(condition: exp.Expr) -> exp.Expr:
    return exp.Paren(this=condition) if isinstance(condition, exp.Or) else condition
