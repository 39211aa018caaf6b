"""Arrays, maps and structs."""

from __future__ import annotations

from sqlglot import exp

from millpond.sql.render.duckdb.casts import cast
from millpond.sql.render.duckdb.expression import Entry, Expressions
from millpond.sql.render.duckdb.names import Unrenderable, text, typed
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
    own = next(f.name for f in struct if f.name.lower() == name.lower())
    return f"struct_extract({r.sql(node)}, {text(own)})"


def bracket(r: Expressions, node: exp.Expr) -> str:
    """``a[0]``, ELEMENT_AT and TRY_ELEMENT_AT; a missing place raises, a missing key is NULL."""
    container, (key,) = r.type(node.this), node.expressions
    if is_struct(container):
        return _field(r, node.this, key.name)
    value = r.sql(node.this)
    if is_map(container):
        return f"map_extract_value({value}, {r.to(key, container.key_type)})"
    if not coercion.is_integer(r.type(key)):
        raise Unrenderable("an index that is no integer")
    return _element(value, r.to(key, BIGINT), bool(node.args.get("offset")), bool(node.args.get("safe")))


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
    value, place = r.sql(array), r.to(index, BIGINT)
    return f"{value}[CASE WHEN {place} >= 0 THEN {place} + 1 END]"


def array(r: Expressions, node: exp.Expr) -> str:
    result = r.type(node)
    items = ", ".join(r.to(e, result.value_type) for e in node.expressions)
    return typed(f"[{items}]", result)


def var_map(r: Expressions, node: exp.Expr) -> str:
    keys, values = r.sql(node.args["keys"]), r.sql(node.args["values"])
    return typed(f"map({keys}, {values})", r.type(node))


def struct(r: Expressions, node: exp.Expr) -> str:
    fields = ", ".join(f"{text(e.name)}: {r.sql(e.expression)}" for e in node.expressions)
    return typed(f"{{{fields}}}", r.type(node))


def size(r: Expressions, node: exp.Expr) -> str:
    argument = node.expressions[0] if isinstance(node, exp.Anonymous) else node.this
    name = "cardinality" if is_map(r.type(argument)) else "len"
    return typed(f"{name}({r.sql(argument)})", INT)


def contains(r: Expressions, node: exp.Expr) -> str:
    """NULL when the value is not found and the array has a NULL."""
    container = r.type(node.this)
    if not is_list(container):
        raise Unrenderable("ARRAY_CONTAINS of no array")
    common = coercion.meet(container.value_type, r.type(node.expression))
    if common != container.value_type:
        raise Unrenderable("ARRAY_CONTAINS of another type")
    items, value = r.sql(node.this), cast(r.sql(node.expression), r.type(node.expression), common)
    return (
        f"(CASE WHEN {items} IS NULL OR {value} IS NULL THEN NULL "
        f"WHEN list_contains({items}, {value}) THEN TRUE "
        f"WHEN list_count({items}) < len({items}) THEN NULL ELSE FALSE END)"
    )


def of_list(template: str) -> Entry:
    def entry(r: Expressions, node: exp.Expr) -> str:
        argument = node.expressions[0] if isinstance(node, exp.Anonymous) else node.this
        if not is_list(r.type(argument)):
            raise Unrenderable("a function of arrays on something else")
        return typed(template.format(x=r.sql(argument)), r.type(node))

    return entry


def joined(r: Expressions, node: exp.Expr) -> str:
    if r.type(node.this) != coercion.list_of(STRING) or node.args.get("null") is not None:
        raise Unrenderable("ARRAY_JOIN of other than strings")
    return f"array_to_string({r.sql(node.this)}, {r.to(node.expression, STRING)})"


def map_part(name: str) -> Entry:
    def entry(r: Expressions, node: exp.Expr) -> str:
        argument = node.expressions[0] if isinstance(node, exp.Anonymous) else node.this
        return f"{name}({r.sql(argument)})"

    return entry


def contains_key(r: Expressions, node: exp.Expr) -> str:
    container = r.type(node.this)
    return f"list_contains(map_keys({r.sql(node.this)}), {r.to(node.args['key'], container.key_type)})"


def sorted_array(r: Expressions, node: exp.Expr) -> str:
    ascending, nulls = node.args.get("asc"), node.args.get("nulls_first")
    if node.expression or (ascending is not None and not isinstance(ascending, exp.Boolean)):
        raise Unrenderable("a sort with a function")
    up = ascending is None or bool(ascending.this)
    first = bool(nulls.this) if isinstance(nulls, exp.Boolean) else True
    return (
        f"list_sort({r.sql(node.this)}, '{'ASC' if up else 'DESC'}', 'NULLS {'FIRST' if first else 'LAST'}')"
    )


ENTRIES: dict[type[exp.Expr], Entry] = {
    exp.Dot: dot,
    exp.Bracket: bracket,
    exp.Array: array,
    exp.VarMap: var_map,
    exp.Struct: struct,
    exp.ArraySize: size,
    exp.ArrayContains: contains,
    exp.ArrayMax: of_list("list_max({x})"),
    exp.ArrayMin: of_list("list_min({x})"),
    exp.ArrayCompact: of_list("list_filter({x}, lambda v: v IS NOT NULL)"),
    exp.ArrayToString: joined,
    exp.ArraySort: sorted_array,
    exp.MapKeys: map_part("map_keys"),
    exp.MapContainsKey: contains_key,
}

NAMED: dict[str, Entry] = {"CARDINALITY": size, "GET": get, "MAP_VALUES": map_part("map_values")}
