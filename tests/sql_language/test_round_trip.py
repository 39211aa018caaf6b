"""print_statement gives text that parses to an equal statement."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlglot import exp

from millpond.options import Setting
from millpond.sql import statements as s
from millpond.sql.functions import known_functions
from millpond.sql.parse import parse, parse_condition
from millpond.sql.printer import print_statement
from millpond.types import TIMESTAMP, TIMESTAMP_NTZ

EXAMPLES = [
    line.removesuffix(";")
    for line in (Path(__file__).parent / "examples.sql").read_text(encoding="utf-8").splitlines()
    if line and not line.startswith("-- ")
]


def check(statement: s.Statement) -> None:
    text = print_statement(statement)
    assert parse(text).require() == (statement,), text


def test_there_are_examples_of_everything() -> None:
    assert len(EXAMPLES) >= 150
    kinds = {type(each) for text in EXAMPLES for each in parse(text).statements}
    every = {c for c in vars(s).values() if isinstance(c, type) and issubclass(c, s.Statement)}
    assert kinds == every - {
        s.Statement,
        s.Block,  # it is made of the statements between BEGIN and COMMIT
        s.NamedQuery,  # it stands after EXPLAIN ANALYZE
    }


@pytest.mark.parametrize("text", EXAMPLES)
def test_examples(text: str) -> None:
    (statement,) = parse(text).require()
    assert not list(_expressions(statement, exp.Command))
    check(statement)


def _expressions(statement: s.Statement, kind: type[exp.Expression]) -> list[exp.Expression]:
    found: list[exp.Expression] = []
    for value in vars(statement).values():
        node = value.expression if isinstance(value, s.Query) else value
        if isinstance(node, exp.Expression):
            found += node.find_all(kind)
    return found


@pytest.mark.parametrize("count", range(5))
def test_function_calls_keep_their_arguments(count: int) -> None:
    """No function of Spark loses an argument, whatever sqlglot makes of the call."""
    arguments = ["a1", "b2", "c3", "d4"][:count]
    for name in sorted(known_functions()):
        parsed = parse(f"SELECT {name}({', '.join(arguments)}) FROM t")
        for statement in parsed.statements:
            text = print_statement(statement)
            assert parse(text).require() == (statement,), text
            assert all(a in text.lower() for a in arguments), text


names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True)
column_names = names | st.text(
    st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Z")), min_size=1, max_size=8
).filter(lambda n: "://" not in n)
texts = st.text(st.characters(codec="utf-8"), max_size=12)
options = st.lists(st.builds(Setting, texts.filter(str.strip), texts), max_size=3).map(tuple)

_simple = st.sampled_from(
    [
        *(pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.string()),
        *(pa.binary(), pa.date32(), TIMESTAMP, TIMESTAMP_NTZ, pa.duration("us"), pa.decimal128(38, 18)),
    ]
)
types = st.recursive(
    _simple,
    lambda inner: (
        inner.map(lambda t: pa.list_(pa.field("element", t)))
        | st.tuples(inner, inner).map(lambda kv: pa.map_(*kv))
        | st.dictionaries(column_names, inner, min_size=1, max_size=3).map(
            lambda d: pa.struct(list(d.items()))
        )
    ),
    max_leaves=4,
)


@st.composite
def columns(draw: st.DrawFn) -> tuple[s.ColumnDef, ...]:
    chosen = draw(st.lists(column_names, min_size=1, max_size=4, unique_by=str.lower))
    return tuple(s.ColumnDef(n, draw(types), draw(st.booleans())) for n in chosen)


@st.composite
def conditions(draw: st.DrawFn) -> exp.Expression:
    left = draw(
        st.sampled_from(["a", "t.b", "p.*.q", "x[*].y", "**.z", "u[0].v", "COUNT(*)", "f(a, 1)", "?", ":n"])
    )
    right = draw(
        st.sampled_from(["1", "-1.5", "NULL", "'it''s'", "DATE '2020-01-01'", "a + b * c", "(SELECT 1)"])
    )
    operator = draw(st.sampled_from(["=", "<>", ">", "<=", "<=>", "LIKE", "IN"]))
    text = f"{left} {operator} ({right})" if operator == "IN" else f"{left} {operator} {right}"
    if draw(st.booleans()):
        text = f"({text} OR NOT c IS NULL) AND d BETWEEN 1 AND 2"
    return parse_condition(text)


windows = st.builds(
    s.WindowClause,
    st.sampled_from(["tumbling", "session"]),
    st.sampled_from([None, parse_condition("ts"), parse_condition("t.ts")]),
    st.floats(0.001, 1e6),
) | st.builds(s.WindowClause, st.just("hopping"), st.none(), st.floats(0.001, 1e6), st.floats(0.001, 1e6))


@st.composite
def queries(draw: st.DrawFn) -> s.Query:
    source = exp.Table(this=exp.to_identifier(draw(names | st.just("kafka://x")), quoted=True))
    select = exp.select("a", "b").from_(source).where(draw(conditions()), copy=False)
    if draw(st.booleans()):
        select = select.limit(3)
    return s.Query(select, draw(st.none() | windows), draw(st.sampled_from([None, "changes", "final"])))


@st.composite
def tables(draw: st.DrawFn) -> s.CreateTable:
    defined = draw(columns())
    key = tuple(c.name for c in defined[: draw(st.integers(0, len(defined)))])
    marked = tuple(s.ColumnDef(c.name, c.type, c.nullable, c.name in key) for c in defined)
    replace = draw(st.booleans())
    return s.CreateTable(
        draw(names),
        marked,
        key,
        draw(st.none() | queries()),
        draw(options),
        not replace and draw(st.booleans()),
        replace,
    )


assignments = st.lists(st.tuples(column_names, conditions()), min_size=1, max_size=3).map(tuple)
source_tables = st.builds(lambda n: exp.Table(this=exp.to_identifier(n, quoted=True)), names)
made = st.one_of(
    tables(),
    st.builds(s.CreateStream, names, columns(), st.none(), st.none() | queries(), options),
    st.builds(
        s.CreateView, names, st.lists(column_names, max_size=2).map(tuple), queries(), st.booleans(), options
    ),
    st.builds(s.Select, queries(), options, st.none() | names),
    st.builds(
        s.Insert,
        names,
        st.just(False),
        st.lists(column_names, max_size=2).map(tuple),
        queries(),
        settings=options,
    ),
    st.builds(s.Upsert, names, queries(), conditions(), options, st.none() | names),
    st.builds(
        s.Update, names, st.none() | names, assignments, source_tables, where=conditions(), settings=options
    ),
    st.builds(s.Delete, names, st.none() | names, st.none() | source_tables, where=st.none() | conditions()),
    st.builds(
        s.Drop, st.sampled_from(["stream", "table", "view", "query"]), names, st.booleans(), st.booleans()
    ),
    st.builds(s.AlterTable, names, st.builds(s.RenameColumn, column_names, column_names)),
)


@settings(max_examples=300, deadline=None)
@given(made)
def test_generated_statements(statement: s.Statement) -> None:
    check(statement)


@settings(max_examples=100, deadline=None)
@given(made)
def test_explain_of_generated_statements(statement: s.Statement) -> None:
    check(s.Explain(statement, True))
    check(s.Explain(statement, format="svg"))


@settings(max_examples=300, deadline=None)
@given(st.text(st.characters(codec="utf-8"), max_size=40) | st.lists(st.sampled_from(EXAMPLES)).map(" ".join))
def test_any_text_gives_statements_or_errors(text: str) -> None:
    parsed = parse(text, {})
    for error in parsed.errors:
        assert error.place is not None
        assert "\x1b" not in str(error) or "\x1b" in text
