"""What may stand beside an aggregate."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from sqlglot import exp

from millpond.errors import Place, SqlError

_AGGREGATES = frozenset(
    "any any_value approx_count_distinct approx_percentile array_agg avg bit_and bit_or bit_xor bool_and bool_or "
    "collect_list collect_set collect corr count count_if count_min_sketch covar_pop covar_samp every first "
    "first_value grouping grouping_id histogram_numeric kurtosis last last_value listagg max max_by mean median "
    "min min_by mode percentile percentile_approx percentile_cont percentile_disc regr_avgx regr_avgy regr_count "
    "regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy skewness some std stddev stddev_pop stddev_samp "
    "string_agg sum try_avg try_sum var_pop var_samp variance".split()
)


def is_aggregate(node: exp.Expr) -> bool:
    """Whether the node itself is an aggregate call (not one in OVER)."""
    if isinstance(node, exp.Anonymous):
        aggregate = node.name.lower() in _AGGREGATES
    else:
        aggregate = isinstance(node, exp.AggFunc) and not isinstance(
            node, exp.RowNumber | exp.Lag | exp.Lead | exp.NthValue
        )
    if not aggregate:
        return False
    parent = node.parent
    while isinstance(parent, exp.Filter | exp.WithinGroup | exp.IgnoreNulls | exp.RespectNulls):
        parent = parent.parent
    return not (isinstance(parent, exp.Window))


def _nodes(node: exp.Expr) -> Iterator[exp.Expr]:
    """The nodes of an expression, without those of its subqueries."""
    yield node
    for child in node.iter_expressions():
        if not isinstance(child, exp.Query):
            yield from _nodes(child)


def contains_aggregate(node: exp.Expr) -> bool:
    return any(is_aggregate(n) for n in _nodes(node))


def contains_window(node: exp.Expr) -> bool:
    return any(isinstance(n, exp.Window) for n in _nodes(node))


def is_aggregated(select: exp.Select) -> bool:
    """Whether a SELECT groups its rows."""
    if select.args.get("group") is not None or select.args.get("having") is not None:
        return True
    return any(contains_aggregate(p) for p in select.expressions)


def check_grouping(select: exp.Select, place: Callable[[exp.Expr], Place | None]) -> Iterator[SqlError]:
    """A column beside an aggregate must be grouped by."""
    if not is_aggregated(select):
        return
    group = select.args.get("group")
    keys = [k for e in group.expressions for k in _keys(e)] if group is not None else []
    clauses: list[exp.Expr] = list(select.expressions)
    having = select.args.get("having")
    if having is not None:
        clauses.append(having.this)
    for clause in clauses:
        for node in _nodes(clause):
            if is_aggregate(node) and any(is_aggregate(n) for n in _nodes(node) if n is not node):
                yield SqlError(
                    "an aggregate cannot stand inside another one", place=place(node) or place(select)
                )
                return
    own = {i.alias_or_name.lower() for i in _inputs(select)}
    for clause in clauses:
        for column in _ungrouped(clause, keys):
            if column.table.lower() in own:
                yield SqlError(
                    f'column "{column.name}" is neither grouped by nor inside an aggregate',
                    hint=f"add it to GROUP BY, or use any_value({column.name})",
                    place=place(column) or place(select),
                )


def _keys(node: exp.Expr) -> Iterator[exp.Expr]:
    """The expressions that a part of GROUP BY groups by: ROLLUP, CUBE and GROUPING SETS hold several."""
    if isinstance(node, exp.Rollup | exp.Cube | exp.GroupingSets | exp.Tuple):
        for inner in node.expressions:
            yield from _keys(inner)
    else:
        yield node.this if isinstance(node, exp.Paren) else node


def _inputs(select: exp.Select) -> Iterator[exp.Expr]:
    from_ = select.args.get("from_")
    if from_ is not None:
        yield from_.this
    for join in select.args.get("joins") or ():
        yield join.this
    yield from select.args.get("laterals") or ()


def without_filter(node: exp.Expr) -> exp.Expr:
    while isinstance(node, exp.Filter | exp.WithinGroup | exp.IgnoreNulls | exp.RespectNulls):
        node = node.this
    return node


def _ungrouped(node: exp.Expr, keys: list[exp.Expr]) -> Iterator[exp.Column]:
    if any(node == k for k in keys) or is_aggregate(without_filter(node)):
        return
    if isinstance(node, exp.Column):
        yield node
        return
    for child in node.iter_expressions():
        if not isinstance(child, exp.Query):
            yield from _ungrouped(child, keys)
