"""Renders arrays, maps and structs."""

from __future__ import annotations

from sqlglot import exp

from millpond.sql.render.duckdb.expression import Entry, Expressions
from millpond.sql.render.duckdb.names import Unrenderable, once, text, typed
from millpond.sql.render.duckdb.strings import literal
from millpond.sql.typing import coercion
from millpond.sql.typing.coercion import BIGINT, INT, STRING, is_list, is_map, is_struct


def dot(r: Expressions, node: exp.Expr) -> str:
    return _field(r, node.this, node.expression.name)


def _field(r: Expressions, node: exp.Expr, name: str) -> str:
    struct = r.type(node)
    if is_map(struct) and struct.key_type == STRING:
        return f"map_extract_value({r.sql(node)}, {text(name)})"
    if not is_struct(struct):
        raise Unrenderable("a field of something that is no struct")
    own = next(f for f in struct if f.name.lower() == name.lower())
    # Without COALESCE, a CAST would read the field in all rows, also in those that CASE or WHERE excludes.
    found = f"coalesce(struct_extract({r.sql(node)}, {text(own.name)}), NULL)"
    # DuckDB has no type for a literal NULL.
    return found if isinstance(node, exp.Column) else typed(found, own.type)


def bracket(r: Expressions, node: exp.Expr) -> str:
    """Renders ``a[0]``, ELEMENT_AT and TRY_ELEMENT_AT; a missing index raises, a missing key is NULL."""
    container, (key,) = r.type(node.this), node.expressions
    if is_struct(container):
        return _field(r, node.this, key.name)
    return _item(r, node.this, key, from_one=False, safe=False)


def _item(r: Expressions, node: exp.Expr, key: exp.Expr, *, from_one: bool, safe: bool) -> str:
    container, value = r.type(node), r.sql(node)
    if is_map(container):
        if r.type(key) != container.key_type:
            raise Unrenderable("a key of another type")
        return f"map_extract_value({value}, {r.sql(key)})"
    if not is_list(container) or not coercion.is_integer(r.type(key)):
        raise Unrenderable("an index that is no integer")
    return once(value, lambda v: _element(v, r.to(key, BIGINT), from_one, safe))


def element_at(safe: bool) -> Entry:
    def entry(r: Expressions, node: exp.Expr) -> str:
        container, key = node.expressions
        return _item(r, container, key, from_one=True, safe=safe)

    return entry


def _element(value: str, index: str, from_one: bool, safe: bool) -> str:
    wrong = f"CAST({text('not an index of the array: ')} || {index} AS BIGINT)"
    if from_one:
        inside = f"{index} <> 0 AND abs({index}) <= len({value})"
        place = index
    else:
        inside, place = f"{index} >= 0 AND {index} < len({value})", f"{index} + 1"
    missing = f"WHEN {value} IS NULL OR {index} IS NULL{f' OR {index} <> 0' if safe else ''} THEN NULL"
    return f"{value}[CASE WHEN {inside} THEN {place} {missing} ELSE {wrong} END]"


def get(r: Expressions, node: exp.Expr) -> str:
    array, index = node.expressions
    if not coercion.is_integer(r.type(index)):
        raise Unrenderable("an index that is no integer")
    value, place = r.sql(array), r.to(index, INT)
    return f"{value}[CASE WHEN {place} >= 0 THEN CAST({place} AS BIGINT) + 1 END]"


def array(r: Expressions, node: exp.Expr) -> str:
    result = r.type(node)
    items = ", ".join(r.to(e, result.value_type) for e in node.expressions)
    return typed(f"[{items}]", result)


def make_map(r: Expressions, node: exp.Expr) -> str:
    result = r.type(node)
    keys = ", ".join(r.to(e, result.key_type) for e in node.expressions[::2])
    values = ", ".join(r.to(e, result.item_type) for e in node.expressions[1::2])
    if any(not isinstance(e, exp.Literal) for e in node.expressions[::2]):
        raise Unrenderable("a MAP whose keys are not written out")
    if len({e.name for e in node.expressions[::2]}) * 2 < len(node.expressions):
        raise Unrenderable("a MAP with a key twice")
    return typed(f"map([{keys}], [{values}])", result)


def struct(r: Expressions, node: exp.Expr) -> str:
    if len({e.name.lower() for e in node.expressions}) < len(node.expressions):
        raise Unrenderable("a struct with fields of equal names")
    fields = ", ".join(f"{text(e.name)}: {r.sql(e.expression)}" for e in node.expressions)
    return typed(f"{{{fields}}}", r.type(node))


def argument_of(node: exp.Expr) -> exp.Expr:
    """Returns the one argument of a call."""
    found: exp.Expr = node.expressions[0] if isinstance(node, exp.Anonymous) else node.this
    return found


def size(r: Expressions, node: exp.Expr) -> str:
    argument = argument_of(node)
    name = "cardinality" if is_map(r.type(argument)) else "len"
    return typed(f"{name}({r.sql(argument)})", INT)


def contains(r: Expressions, node: exp.Expr) -> str:
    """Renders ARRAY_CONTAINS: NULL if the value is not found and the array has a NULL."""
    array, sought = node.expressions
    container = r.type(array)
    if not is_list(container) or r.type(sought) != container.value_type:
        raise Unrenderable("ARRAY_CONTAINS of another type")
    items, value = r.sql(array), r.sql(sought)
    return (
        f"(CASE WHEN {items} IS NULL OR {value} IS NULL THEN NULL "
        f"WHEN list_contains({items}, {value}) THEN TRUE "
        f"WHEN list_count({items}) < len({items}) THEN NULL ELSE FALSE END)"
    )


def of_list(template: str) -> Entry:
    def entry(r: Expressions, node: exp.Expr) -> str:
        argument = argument_of(node)
        if not is_list(r.type(argument)):
            raise Unrenderable("a function of arrays on something else")
        return typed(template.format(x=r.sql(argument)), r.type(node))

    return entry


def joined(r: Expressions, node: exp.Expr) -> str:
    array, *rest = node.expressions
    if r.type(array) != coercion.list_of(STRING) or len(rest) > 1:
        raise Unrenderable("ARRAY_JOIN of other than strings")
    return f"array_to_string({r.sql(array)}, {text(literal(rest[0], 'a separator'))})"


def map_part(name: str) -> Entry:
    def entry(r: Expressions, node: exp.Expr) -> str:
        argument = argument_of(node)
        return f"{name}({r.sql(argument)})"

    return entry


def contains_key(r: Expressions, node: exp.Expr) -> str:
    container, key = node.expressions
    if not is_map(r.type(container)) or r.type(key) != r.type(container).key_type:
        raise Unrenderable("MAP_CONTAINS_KEY of another type")
    return f"list_contains(map_keys({r.sql(container)}), {r.sql(key)})"


def sort_array(r: Expressions, node: exp.Expr) -> str:
    """Renders SORT_ARRAY: NULLs are the least."""
    array, *rest = node.expressions
    if not is_list(r.type(array)) or (rest and not isinstance(rest[0], exp.Boolean)):
        raise Unrenderable("a sort in a direction that is not written out")
    up = not rest or bool(rest[0].this)
    return f"list_sort({r.sql(array)}, '{'ASC' if up else 'DESC'}', 'NULLS {'FIRST' if up else 'LAST'}')"


def array_sort(r: Expressions, node: exp.Expr) -> str:
    """Renders ARRAY_SORT: NULLs are last."""
    items = node.expressions if isinstance(node, exp.Anonymous) else [node.this]
    if len(items) > 1 or not is_list(r.type(items[0])):
        raise Unrenderable("a sort with a function")
    return f"list_sort({r.sql(items[0])}, 'ASC', 'NULLS LAST')"


array_max, array_min = of_list("list_max({x})"), of_list("list_min({x})")
array_compact = of_list("list_filter({x}, lambda v: v IS NOT NULL)")

ENTRIES: dict[type[exp.Expr], Entry] = {
    exp.Dot: dot,
    exp.Bracket: bracket,
    # These are created where paths and lists of aggregates are lowered.
    exp.ArraySize: size,
    exp.ArrayMax: array_max,
    exp.ArrayMin: array_min,
    exp.ArrayCompact: array_compact,
    exp.ArraySort: array_sort,
}
