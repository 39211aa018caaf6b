"""Functions of maps and structs."""

from __future__ import annotations

from sqlglot import exp

from millpond.sql import measures
from millpond.sql.functions._builders import listed, named_struct
from millpond.sql.functions.base import Function
from millpond.sql.render.duckdb import nested as duckdb
from millpond.sql.typing import functions as types

# fmt: off
FUNCTIONS: tuple[Function, ...] = (
    Function("map", "A map of keys and values, given in turn.", "map('a', 1)['a'] = 1", arity="even",
        type=types.make_map, duckdb=duckdb.make_map, eager=True, grows="joined"),
    Function("map_concat", "A map of all entries of several maps.",
        "map_concat(map('a', 1), map('b', 2))['b'] = 2", arity="any", grows="joined"),
    Function("map_contains_key", "Whether a map has a key.", "map_contains_key(map('a', 1), 'a')", arity="2",
        type=types.contains_key, duckdb=duckdb.contains_key),
    Function("map_entries", "The entries of a map, as an array of structs.",
        "map_entries(map('a', 1))[0].value = 1", arity="1"),
    Function("map_filter", "The entries of a map for which a lambda of key and value holds.",
        "map_keys(map_filter(map('a', 1, 'b', 2), (k, v) -> v > 1)) = array('b')", arity="2"),
    Function("map_from_arrays", "A map of an array of keys and an array of values.",
        "map_from_arrays(array('a'), array(1))['a'] = 1", arity="2", grows="joined"),
    Function("map_from_entries", "A map of an array of structs of key and value.",
        "map_from_entries(array(struct('a', 1)))['a'] = 1", arity="1"),
    Function("map_keys", "The keys of a map, as an array.", "map_keys(map('a', 1)) = array('a')", arity="1",
        type=types.map_keys, duckdb=duckdb.map_part("map_keys")),
    Function("map_values", "The values of a map, as an array.", "map_values(map('a', 1)) = array(1)",
        arity="1", type=types.map_values, duckdb=duckdb.map_part("map_values")),
    Function("map_zip_with", "What a lambda gives for each key and its values in two maps.",
        "map_zip_with(map('a', 1), map('a', 2), (k, x, y) -> x + y)['a'] = 3", arity="3", grows=measures.mapped),
    Function("named_struct", "A struct of names and values, given in turn.",
        "named_struct('a', 1, 'b', 2).b = 2", arity="even", type=types.struct, duckdb=duckdb.struct,
        node=exp.Struct, build=named_struct, grows="joined"),
    Function("str_to_map", "A map of a text such as 'a:1,b:2'; the separators can be given.",
        "str_to_map('a:1,b:2')['b'] = '2'", takes="(string![, string!, string!]) map<string,string>"),
    Function("struct", "A struct of the arguments; a column keeps its name, another value is col1, col2, …",
        "struct(1, 'a').col2 = 'a'", arity="any", type=types.struct, duckdb=duckdb.struct, node=exp.Struct,
        build=listed(exp.Struct), grows="joined"),
    Function("transform_keys", "The map with what a lambda of key and value gives as keys.",
        "map_keys(transform_keys(map('a', 1), (k, v) -> upper(k))) = array('A')", arity="2",
        grows=measures.mapped),
    Function("transform_values", "The map with what a lambda of key and value gives as values.",
        "transform_values(map('a', 1), (k, v) -> v + 1)['a'] = 2", arity="2", grows=measures.mapped),
)
# fmt: on
