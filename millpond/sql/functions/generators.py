"""Functions that give rows."""

from __future__ import annotations

from sqlglot import exp

from millpond.sql import measures
from millpond.sql.functions._builders import explode_outer
from millpond.sql.functions.base import Function, Generator
from millpond.sql.resolve import generators as columns

# fmt: off
FUNCTIONS: tuple[Function, ...] = (
    Generator("explode", "A row for each element of an array, or each entry of a map.",
        "SELECT sum(col) = 3 FROM explode(array(1, 2))", arity="1", node=exp.Explode,
        columns=columns.exploded(place=False)),
    Generator("explode_outer", "As explode, but a row of NULL where there is nothing.",
        "SELECT count(*) = 1 FROM explode_outer(CAST(array() AS ARRAY<INT>))", arity="1",
        node=exp.ExplodeOuter, build=explode_outer, columns=columns.exploded(place=False)),
    Generator("inline", "A row for each struct of an array.",
        "SELECT sum(a) = 3 FROM inline(array(named_struct('a', 1), named_struct('a', 2)))", arity="1",
        columns=columns.inlined),
    Generator("inline_outer", "As inline, but a row of NULL where there is nothing.",
        "SELECT sum(a) = 1 FROM inline_outer(array(named_struct('a', 1)))", arity="1",
        columns=columns.inlined),
    Generator("json_tuple", "A row with a column for each of the keys of a JSON object, as texts.",
        "SELECT c1 = '2' FROM json_tuple('{\"a\": 1, \"b\": 2}', 'a', 'b')", arity="2+",
        columns=columns.tupled),
    Generator("posexplode", "As explode, with the position of each element, counted from 0.",
        "SELECT max(pos) = 1 FROM posexplode(array('a', 'b'))", arity="1", node=exp.Posexplode,
        columns=columns.exploded(place=True)),
    Generator("posexplode_outer", "As posexplode, but a row of NULL where there is nothing.",
        "SELECT max(pos) = 1 FROM posexplode_outer(array('a', 'b'))", arity="1", node=exp.PosexplodeOuter,
        columns=columns.exploded(place=True)),
    Generator("range", "A row for each whole number from one to another, which is left out.",
        "SELECT sum(id) = 3 FROM range(3)", arity="any"),
    Generator("stack", "The values in so many rows.", "SELECT count(*) = 2 FROM stack(2, 1, 'a', 2, 'b')",
        arity="2+", grows=measures.stacked, columns=columns.stacked),
    Generator("variant_explode", "A row for each element of a variant that is an array or object.",
        "SELECT count(*) = 2 FROM variant_explode(parse_json('[1, 2]'))", arity="any"),
    Generator("variant_explode_outer", "As variant_explode, but a row of NULL where there is nothing.",
        "SELECT count(*) = 2 FROM variant_explode_outer(parse_json('[1, 2]'))", arity="any"),
)
# fmt: on
