"""Functions of arrays, with their lambdas."""

from __future__ import annotations

from sqlglot import exp

from millpond.sql import measures
from millpond.sql.functions._builders import listed
from millpond.sql.functions.base import Function
from millpond.sql.render.duckdb import nested as duckdb
from millpond.sql.typing import functions as types
from millpond.sql.typing.coercion import BIGINT, BOOLEAN

# fmt: off
FUNCTIONS: tuple[Function, ...] = (
    Function("aggregate",
        "Folds an array: begins with a value, and goes on with a lambda of the value so far and each "
        "element.", "aggregate(array(1, 2, 3), 0, (a, x) -> a + x) = 6", also=("reduce",), arity="3-4",
        grows="folded"),
    Function("array", "An array of the arguments.", "array(1, 2)[0] = 1", arity="any", type=types.array,
        duckdb=duckdb.array, node=exp.Array, build=listed(exp.Array), grows="joined"),
    Function("array_append", "The array with a value put at its end.",
        "array_append(array(1), 2) = array(1, 2)", arity="2", grows="joined"),
    Function("array_compact", "The array without its NULLs.",
        "array_compact(array(1, NULL, 2)) = array(1, 2)", arity="1", type=types.of_array(types.compacted),
        duckdb=duckdb.array_compact),
    Function("array_contains",
        "Whether an array has a value; NULL if it is not found and the array has a NULL.",
        "array_contains(array(1, 2), 2)", arity="2", type=types.member(lambda a: BOOLEAN),
        duckdb=duckdb.contains),
    Function("array_distinct", "The array with each value once.",
        "array_distinct(array(1, 2, 1)) = array(1, 2)", arity="1", type=types.of_array(types.compacted)),
    Function("array_except", "The values of the first array that are not in the second, each once.",
        "array_except(array(1, 2), array(2)) = array(1)", arity="2"),
    Function("array_insert", "The array with a value inserted at a position, counted from 1.",
        "array_insert(array(1, 3), 2, 2) = array(1, 2, 3)", arity="3", grows=measures.inserted),
    Function("array_intersect", "The values that are in both arrays, each once.",
        "array_intersect(array(1, 2), array(2, 3)) = array(2)", arity="2"),
    Function("array_join",
        "The texts of an array with a separator between them; NULLs are left out, or replaced by a third "
        "argument.", "array_join(array('a', 'b'), '-') = 'a-b'", arity="2-3", type=types.array_join,
        duckdb=duckdb.joined, grows=measures.glued),
    Function("array_max", "The greatest value of an array.", "array_max(array(1, 3, 2)) = 3", arity="1",
        type=types.of_array(types.ordered_element), duckdb=duckdb.array_max),
    Function("array_min", "The least value of an array.", "array_min(array(1, 3, 2)) = 1", arity="1",
        type=types.of_array(types.ordered_element), duckdb=duckdb.array_min),
    Function("array_position", "Where a value is first found in an array, counted from 1; 0 if nowhere.",
        "array_position(array('a', 'b'), 'b') = 2", arity="2", type=types.member(lambda a: BIGINT)),
    Function("array_prepend", "The array with a value put at its start.",
        "array_prepend(array(2), 1) = array(1, 2)", arity="2", grows="joined"),
    Function("array_remove", "The array without a value.", "array_remove(array(1, 2, 1), 1) = array(2)",
        arity="2", type=types.member(lambda a: a)),
    Function("array_repeat", "An array with a value n times.", "array_repeat('a', 2) = array('a', 'a')",
        arity="2", grows=measures.filled),
    Function("array_size", "How many elements an array has.", "array_size(array(1, 2)) = 2", arity="1",
        type=types.size, duckdb=duckdb.size),
    Function("array_sort",
        "The array in ascending order with NULLs last, or in the order of a lambda that compares.",
        "array_sort(array(3, 1, 2)) = array(1, 2, 3)", arity="1-2", type=types.of_array(types.compacted),
        duckdb=duckdb.array_sort),
    Function("array_union", "The values of both arrays, each once.",
        "array_union(array(1, 2), array(2, 3)) = array(1, 2, 3)", arity="2", grows="joined"),
    Function("arrays_overlap", "Whether two arrays have a value in common.",
        "arrays_overlap(array(1, 2), array(2, 3))", arity="2"),
    Function("arrays_zip", "One array of structs of the elements at the same positions.",
        "size(arrays_zip(array(1, 2), array('a', 'b'))) = 2", arity="any", grows="joined"),
    Function("element_at",
        ("The element of an array at a position, counted from 1 or from the end, or the value of "
"a key of a map."), "element_at(array('a', 'b'), -1) = 'b'", arity="2", type=types.element_at,
        duckdb=duckdb.element_at(safe=False)),
    Function("exists", "Whether a lambda holds for an element of an array.",
        "exists(array(1, 2), x -> x > 1)", arity="2"),
    Function("filter", "The elements of an array for which a lambda holds.",
        "filter(array(1, 2, 3), x -> x > 1) = array(2, 3)", arity="2"),
    Function("flatten", "The elements of the arrays in an array, as one array.",
        "flatten(array(array(1), array(2, 3))) = array(1, 2, 3)", arity="1",
        type=types.of_array(types.flattened)),
    Function("forall", "Whether a lambda holds for every element of an array.",
        "forall(array(1, 2), x -> x > 0)", arity="2"),
    Function("get", "The element of an array at a position, counted from 0; NULL if there is none.",
        "get(array('a', 'b'), 1) = 'b'", takes="(any, int) ?", type=types.get, duckdb=duckdb.get),
    Function("sequence", "The values from one to another, optionally with a step, as an array.",
        "sequence(1, 3) = array(1, 2, 3)", arity="2-3", grows=measures.sequence),
    Function("shuffle", "The array in an order by chance.", "size(shuffle(array(1, 2, 3))) = 3",
        kind="volatile", arity="1-2"),
    Function("size", "How many elements an array or a map has.", "size(array(1, 2)) = 2",
        also=("cardinality",), arity="1", type=types.size, duckdb=duckdb.size),
    Function("slice", "The part of an array from a position, counted from 1, with a length.",
        "slice(array(1, 2, 3), 2, 2) = array(2, 3)", arity="3"),
    Function("sort_array", "The array in ascending order with NULLs first, or in descending order.",
        "sort_array(array(3, 1, 2), FALSE) = array(3, 2, 1)", arity="1-2", type=types.sort_array,
        duckdb=duckdb.sort_array),
    Function("transform", "What a lambda gives for each element of an array.",
        "transform(array(1, 2), x -> x * 10) = array(10, 20)", arity="2", grows=measures.mapped),
    Function("try_element_at", "As element_at, but NULL for a missing position.",
        "try_element_at(array(1), 5) IS NULL", arity="2", type=types.element_at,
        duckdb=duckdb.element_at(safe=True)),
    Function("zip_with", "The results of a lambda for the elements of two arrays at the same positions.",
        "zip_with(array(1, 2), array(10, 20), (x, y) -> x + y) = array(11, 22)", arity="3",
        grows=measures.mapped),
)
# fmt: on
