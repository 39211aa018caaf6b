"""Paths over random nested values: SQL, the methods of tables, and a plain walk in Python give the same."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond import Table
from millpond.errors import NotSupported, TypeMismatch

pytestmark = pytest.mark.slow

LEAVES: dict[str, st.SearchStrategy[Any]] = {
    "INT": st.integers(-3, 3),
    "BIGINT": st.sampled_from([-(2**40), 0, 5, 2**40]),
    "DECIMAL(6,2)": st.sampled_from([Decimal("-1.50"), Decimal("0.00"), Decimal("1.25"), Decimal("7.10")]),
    "DOUBLE": st.sampled_from([-0.5, 0.25, 1.0, 3.0]),
    "STRING": st.sampled_from(["", "a", "b", "ä"]),
}
Type = tuple[str, Any]
"""("leaf", SQL type), ("array", element), ("map", value), ("struct", {name: type})."""


def types(leaf: str) -> st.SearchStrategy[Type]:
    def nested(inner: st.SearchStrategy[Type]) -> st.SearchStrategy[Type]:
        fields = st.dictionaries(st.sampled_from(["x", "y", "z"]), inner, min_size=1, max_size=3)
        return st.one_of(
            inner.map(lambda t: ("array", t)),
            inner.map(lambda t: ("map", t)),
            fields.map(lambda f: ("struct", f)),
        )

    return nested(st.recursive(st.just(("leaf", leaf)), nested, max_leaves=4))


def sql(dtype: Type) -> str:
    kind, inner = dtype
    if kind == "struct":
        return f"STRUCT<{', '.join(f'{n}: {sql(t)}' for n, t in inner.items())}>"
    return {
        "leaf": lambda: inner,
        "array": lambda: f"ARRAY<{sql(inner)}>",
        "map": lambda: f"MAP<STRING, {sql(inner)}>",
    }[kind]()


def values(dtype: Type) -> st.SearchStrategy[Any]:
    kind, inner = dtype
    found: st.SearchStrategy[Any]
    if kind == "leaf":
        found = LEAVES[inner]
    elif kind == "array":
        found = st.lists(values(inner), max_size=3)
    elif kind == "map":
        found = st.dictionaries(st.sampled_from(["x", "k"]), values(inner), max_size=2)
    else:
        found = st.fixed_dictionaries({name: values(t) for name, t in inner.items()})
    return st.one_of(st.none(), found, found)


STEP = st.sampled_from([".*", "[*]", ".**", "[0]", "[1]", ".x", ".Y", ".k"])


@st.composite
def paths(draw: st.DrawFn) -> list[str]:
    steps = draw(st.lists(STEP, min_size=1, max_size=3))
    if not any("*" in step for step in steps):
        steps[draw(st.integers(0, len(steps) - 1))] = draw(st.sampled_from([".*", ".**", "[*]"]))
    return steps


def children(value: Any, dtype: Type) -> list[tuple[Any, Type]]:
    kind, inner = dtype
    if value is None or kind == "leaf":
        return []
    if kind == "struct":
        return [(value[name], t) for name, t in inner.items()]
    return [(v, inner) for v in (value.values() if kind == "map" else value)]


def types_of(dtype: Type, steps: list[str], by_key: bool = False) -> list[tuple[Type, bool]]:
    """The types of what a path can find, and whether a name on the way is a key of a map."""
    if not steps:
        return [(dtype, by_key)]
    step, rest = steps[0], steps[1:]
    kind, inner = dtype
    inside = list(inner.values()) if kind == "struct" else [] if kind == "leaf" else [inner]
    if step == ".**":
        own = (
            [(dtype, by_key)]
            if kind == "leaf" and not rest
            else types_of(dtype, rest, by_key)
            if rest
            else []
        )
        return [*own, *(found for t in inside for found in types_of(t, steps, by_key))]
    if step in (".*", "[*]"):
        return [found for t in inside for found in types_of(t, rest, by_key)]
    if step in ("[0]", "[1]"):
        return types_of(inner, rest, by_key) if kind == "array" else []
    if kind == "array":
        return types_of(inner, steps, by_key) if inner[0] in ("struct", "map") else []
    if kind == "map":
        return types_of(inner, rest, True)
    if kind == "struct" and step[1:].lower() in inner:
        return types_of(inner[step[1:].lower()], rest, by_key)
    return []


def meant(found: list[tuple[Any, Type]], dtype: Type, steps: list[str]) -> list[Any]:
    """What an array of SQL has of it: where keys of maps are of another type than declared fields, these alone."""
    possible = types_of(dtype, steps)
    declared = [t for t, by_key in possible if not by_key]
    fits = all(t == possible[0][0] for t, _ in possible) or not declared
    return [v for v, t in found if fits or t == declared[0]]


def walk(value: Any, dtype: Type, steps: list[str]) -> list[tuple[Any, Type]]:
    """What a path finds, with its type."""
    if not steps:
        return [(value, dtype)]
    step, rest = steps[0], steps[1:]
    kind, inner = dtype
    if step == ".**":
        own = [(value, dtype)] if kind == "leaf" and not rest else []
        if rest and not (kind == "array" and rest[0] in (".x", ".Y", ".k")):
            own = walk(value, dtype, rest)
        return [*own, *(found for child, t in children(value, dtype) for found in walk(child, t, steps))]
    if step in (".*", "[*]"):
        return [found for child, t in children(value, dtype) for found in walk(child, t, rest)]
    if value is None:
        return []
    if step in ("[0]", "[1]"):
        at = int(step[1])
        return walk(value[at], inner, rest) if kind == "array" and at < len(value) else []
    name = step[1:]
    if kind == "array":
        inside = [(v, inner) for v in value if v is not None and inner[0] in ("struct", "map")]
        return [found for v, t in inside for found in walk(v, t, steps)]
    if kind == "map":
        return walk(value[name], inner, rest) if name in value else []
    if kind == "struct" and name.lower() in inner:
        return walk(value[name.lower()], inner[name.lower()], rest)
    return []


def same(a: Any, b: Any) -> bool:
    return repr(_plain(a)) == repr(_plain(b))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return sorted((k, _plain(v)) for k, v in value.items())
    return [_plain(v) for v in value] if isinstance(value, list) else value


def expected(name: str, distinct: bool, found: list[Any], leaf: str) -> Any:
    there = [v for v in found if v is not None]
    if distinct:
        there = list({repr(v): v for v in there}.values())
    if name == "COUNT":
        return len(there)
    if not there:
        return None
    if name in ("MIN", "MAX"):
        return (min if name == "MIN" else max)(there)
    total = sum(there[1:], there[0])
    if name == "SUM":
        return total
    if leaf.startswith("DECIMAL"):
        return (total / len(there)).quantize(Decimal("0.000001"), ROUND_HALF_UP)
    return total / len(there)


@st.composite
def cases(draw: st.DrawFn) -> tuple[str, Type, list[Any], list[list[str]]]:
    leaf = draw(st.sampled_from(sorted(LEAVES)))
    dtype = draw(types(leaf))
    return (
        leaf,
        dtype,
        draw(st.lists(values(dtype), max_size=4)),
        draw(st.lists(paths(), min_size=1, max_size=3)),
    )


def check(case: tuple[str, Type, list[Any], list[list[str]]]) -> None:
    leaf, dtype, rows, asked = case
    table = Table({"id": "INT", "c": sql(dtype)}, key="id")
    table.bulk_insert([{"id": i, "c": value} for i, value in enumerate(rows)])
    for written in asked:
        path = "c" + "".join(written)
        steps = [s for i, s in enumerate(written) if s != ".**" or written[max(i - 1, 0) : i] != [".**"]]
        walked = [walk(value, dtype, steps) for value in rows]
        assert same(table.sql_wildcard_values(path), [v for found in walked for v, _ in found]), path
        by_row = [meant(found, dtype, steps) for found in walked]
        found = [v for values_ in by_row for v in values_]
        try:
            arrays = table.sql_column_values(path)
        except TypeMismatch as error:
            assert "no common type" in error.message
            continue
        assert same(arrays, by_row), path
        nested = any(isinstance(v, dict | list) for v in found)
        is_leaf = not nested and any(v is not None for v in found)
        names = (
            ["COUNT"] if nested else ["COUNT", "MIN", "MAX", *([] if leaf == "STRING" else ["SUM", "AVG"])]
        )
        for name in names:
            for distinct in (False, True):
                text = f"{name}({'DISTINCT ' * distinct}{path})"
                wanted = expected(name, distinct, found, leaf)
                for answer in _answers(table, text, is_leaf=is_leaf):
                    assert answer == wanted, text
                some = [v for values_ in by_row[1:] for v in values_]
                later = expected(name, distinct, some, leaf)
                if is_leaf:
                    assert table.sql_scalar(f"{text} FILTER (WHERE id > 0)") == later, text
                    assert table.sql_wildcard_aggregate(text, "id > 0") == later, text


def _answers(table: Table, text: str, *, is_leaf: bool) -> list[Any]:
    """What SQL and the method say; where a path can find no number, SUM and AVG may be refused."""
    try:
        return [table.sql_scalar(text), table.sql_wildcard_aggregate(text)]
    except (TypeMismatch, NotSupported) as error:
        # So may MIN and MAX where it can find arrays or structs, whose order Spark knows.
        assert not is_leaf
        with pytest.raises(type(error)):
            table.sql_wildcard_aggregate(text)
        return []


test_paths = settings(max_examples=25, deadline=None)(given(case=cases())(check))
test_many_paths = pytest.mark.chaos(settings(max_examples=1500, deadline=None)(given(case=cases())(check)))
