"""Write docs/reference/: what the declarations in the code say about options, types and the rest; into its page of
statements, which people write, which of them run; and into docs/limits.md what differs from Spark.

Run by ``make docs``. Nothing here is a list of its own: a page that is wrong is put right in the code it comes from.
``tests/test_docs.py`` fails when the files are not what this gives.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import itertools
import re
import sys
import tomllib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
from sqlglot import exp

from millpond import errors
from millpond.connectors.sink import sinks
from millpond.connectors.source import sources
from millpond.formats.base import COMPRESSIONS, formats
from millpond.options import Option
from millpond.plan.connectors import Connectors
from millpond.sql import statements as st
from millpond.sql.catalog import Catalog
from millpond.sql.check import Checker
from millpond.sql.functions import Aggregate, Function, base, known_functions
from millpond.sql.options import (
    CHANGES_OPTIONS,
    COMMON_TABLE_OPTIONS,
    RUNNING_OPTIONS,
    SELECT_OPTIONS,
    STREAM_OPTIONS,
    TTL_OPTIONS,
)
from millpond.sql.parser.columns import _DECIMALS, _TYPES
from millpond.sql.windowing import WINDOW_OPTIONS
from millpond.tables.registry import backend_names, find_backend
from millpond.types import type_name

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "reference"
STATEMENTS = FOLDER / "statements.md"
LIMITS = ROOT / "docs" / "limits.md"
DIFFERENCES = ROOT / "tests" / "oracle" / "differences.toml"
_LISTED = re.compile(r"(?<=<!-- differences -->\n).*(?=<!-- end of differences -->)", re.DOTALL)
_STATEMENT_LIST = re.compile(r"(?<=<!-- statements -->\n).*(?=<!-- end of statements -->)", re.DOTALL)
_SECTION = re.compile(r"^## (.+)\n\n(.+?\.)(?:\s|$)", re.MULTILINE)
"""The title of a section, and its first sentence."""
_HEADINGS: dict[type[st.Statement], str] = {
    st.Begin: "BEGIN, COMMIT, ROLLBACK",
    st.Commit: "BEGIN, COMMIT, ROLLBACK",
    st.Rollback: "BEGIN, COMMIT, ROLLBACK",
    st.ControlQuery: "PAUSE, RESUME, STOP, START QUERY",
}
_NOTE = "<!-- Written by tools/reference.py (make docs). Do not edit. -->\n\n"


def main() -> int:
    FOLDER.mkdir(parents=True, exist_ok=True)
    wanted = pages()
    for name, text in wanted.items():
        (FOLDER / name).write_text(text, encoding="utf-8")
    for file in FOLDER.glob("*.md"):
        if file.name not in wanted:
            file.unlink()
    LIMITS.write_text(limits(), encoding="utf-8")
    print(f"wrote {len(wanted)} pages to {FOLDER.relative_to(ROOT)}")
    return 0


def pages() -> dict[str, str]:
    """The text of every page by the name of its file."""
    made: dict[str, Callable[[], Iterator[str]]] = {
        "commands.md": _commands,
        "errors.md": _errors,
        "functions.md": _functions,
        "options.md": _options,
        "routes.md": _routes,
        "types.md": _types,
    }
    written = {name: _NOTE + "\n".join(lines()).rstrip() + "\n" for name, lines in made.items()}
    return {**written, STATEMENTS.name: statements()}


def limits() -> str:
    """docs/limits.md with the list of what differs from Spark, which the generators of tests go by."""
    listed = tomllib.loads(DIFFERENCES.read_text(encoding="utf-8"))["differs"]
    lines = "".join(f"- {' '.join(entry['reason'].split())}\n" for entry in listed)
    return _LISTED.sub(lambda _: lines, LIMITS.read_text(encoding="utf-8"))


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield "| " + " | ".join(head) + " |"
    yield "|" + "---|" * len(head)
    for row in rows:
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |"
    yield ""


# options


def _options() -> Iterator[str]:
    yield "# Options"
    yield ""
    yield "Set options with `WITH ('name' = 'value', …)`. Quotes are single or double; names ignore case."
    yield "An unknown option is an error that names the known ones. In a query over several sources, write"
    yield "`'alias.option'` to say which source it is for."
    yield ""
    yield from _section("Every table", COMMON_TABLE_OPTIONS)
    yield from _section("Every table, except with `'extension' = 'cache'` or `'redis'`", TTL_OPTIONS)
    yield from _section("Every running statement", RUNNING_OPTIONS)
    yield from _section("SELECT that runs continuously", SELECT_OPTIONS)
    yield from _section("`EMIT CHANGES` of a table into a sink or a stream", CHANGES_OPTIONS)
    named = backend_names()
    for name in sorted(set(named.values())):
        others = [n for n, file in sorted(named.items()) if file == name and n != name]
        title = f"Tables with `'extension' = '{name}'`" + (
            f" (also `{'`, `'.join(others)}`)" if others else ""
        )
        yield from _section(title, find_backend(name).options)
    yield from _section("Streams", STREAM_OPTIONS)
    yield from _section("Queries with a window", WINDOW_OPTIONS, "Set them in the WITH of the statement.")
    for source in sources():
        if source.kind == "stream":
            continue  # the embedded log: no statement names it
        schemes = ", ".join(f"`{s}://`" for s in source.schemes)
        meaning = (
            "Statements that read it run continuously."
            if source.endless is True
            else "A table follows it, as its options say; a query reads it once."
        )
        yield from _section(f"Sources: {schemes}", source.options, meaning)
    for sink in sinks():
        schemes = ", ".join(f"`{s}://`" for s in sink.schemes)
        yield from _section(f"Sinks: {schemes}", sink.options, "For `INSERT INTO` a URI.")
    yield "## File formats"
    yield ""
    yield from _table(
        ("format", "suffixes"), [(f"`{f.name}`", ", ".join(f"`{s}`" for s in f.suffixes)) for f in formats()]
    )
    packed = " and ".join(f"`{suffix}`" for suffix in COMPRESSIONS)
    yield f"{packed} after a suffix are unpacked."


def _section(title: str, options: Sequence[Option], about: str = "") -> Iterator[str]:
    yield f"## {title}"
    yield ""
    if about:
        yield about
        yield ""
    if not options:
        yield "No options."
        yield ""
        return
    rows = []
    for option in options:
        words = [f"`{c}`" for c in option.choices]
        kind = " or ".join(words if option.kind == "choice" else [option.kind, *words])
        names = ", ".join(f"`{n}`" for n in (option.name, *option.aliases))
        live = ". *Live*: ALTER TABLE … SET changes it" if option.live else ""
        free = (
            ". *Free*: a changed file may have another value, and what is stored goes on"
            if option.free
            else ""
        )
        rows.append((names, kind, _default(option), option.help.rstrip(".") + live + free))
    yield from _table(("option", "value", "default", "meaning"), rows)


def _default(option: Option) -> str:
    match option.kind, option.default:
        case _, None:
            return "–"
        case "bool", value:
            return f"`{str(value).lower()}`"
        case "duration", value:
            return f"`{value:g}s`"
        case _, "":
            return "empty"
        case _, value:
            return f"`{value}`"


# errors


def _errors() -> Iterator[str]:
    yield "# Errors"
    yield ""
    yield "Every error is a `millpond.Error` with `message`, `code`, `hint`, `line` and `column`; the last three may be"
    yield "None. `except millpond.Error` takes them all; the classes are in `millpond.errors`."
    yield ""
    yield "```text"
    yield inspect.cleandoc(errors.__doc__ or "").split("\n\n", 1)[1].rstrip()
    yield "```"
    yield ""
    found = [
        c
        for c in vars(errors).values()
        if isinstance(c, type) and issubclass(c, errors.Error) and c.__module__ == errors.__name__
    ]
    yield from _table(
        ("class", "code", "is a", "a retry may help"),
        [
            (f"`{c.__name__}`", f"`{c.code}`", f"`{c.__mro__[1].__name__}`", "yes" if c.retryable else "")
            for c in found
        ],
    )


# statements


def statements() -> str:
    """docs/reference/statements.md with the list of its statements and whether they run."""
    page = STATEMENTS.read_text(encoding="utf-8")
    about = dict(_SECTION.findall(page))
    rows = [
        (f"[{title}](#{_anchor(title)})", "yes" if runs else "no", about[title].rstrip("."))
        for title, runs in statement_titles().items()
    ]
    listed = "\n".join(_table(("statement", "runs in this version", "meaning"), rows))
    return _STATEMENT_LIST.sub(lambda _: listed, page)


def statement_titles() -> dict[str, bool]:
    """The heading of every statement that the parser knows, and whether this version runs it."""
    kinds = [c for c in vars(st).values() if isinstance(c, type) and issubclass(c, st.Statement)]
    kinds = [c for c in kinds if c not in (st.Statement, st.Block, st.NamedQuery)]  # parts of others
    return {_HEADINGS.get(kind) or _words(kind): runs(kind) for kind in kinds}


def _anchor(title: str) -> str:
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def runs(kind: type[st.Statement]) -> bool:
    """Whether the checker knows the statement: it refuses the others. That those run, the page's examples show."""
    return Checker(Catalog(), Connectors()).knows(kind)


def _words(kind: type[st.Statement]) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", kind.__name__).upper()


# types, functions


def _types() -> Iterator[str]:
    yield "# Types"
    yield ""
    yield "The types are those of Spark SQL, stored as the Arrow types in the last column. CHAR and VARCHAR take a"
    yield "length and do not enforce it."
    yield ""
    spellings: dict[pa.DataType, list[str]] = {}
    for name, dtype in _TYPES.items():
        spellings.setdefault(dtype, []).append(name)
    rows = [
        (f"`{type_name(t)}`", ", ".join(f"`{n}`" for n in names if n != type_name(t)) or "–", f"`{t}`")
        for t, names in spellings.items()
    ]
    others = ", ".join(f"`{n}(p,s)`" for n in _DECIMALS if n != "DECIMAL")
    rows += [
        ("`DECIMAL(p,s)`", others, f"`{pa.decimal128(10, 2)}` for p = 10, s = 2; p is 1 to 38"),
        (f"`{type_name(pa.duration('us'))}`", "–", f"`{pa.duration('us')}`"),
        ("`ARRAY<T>`", "`ARRAY(T)`", "`list<T>`"),
        ("`MAP<K, V>`", "`MAP(K, V)`", "`map<K, V>`"),
        ("`STRUCT<a: T, …>`", "–", "`struct<a: T, …>`"),
    ]
    yield from _table(("type", "also spelled", "Arrow"), rows)


def _functions() -> Iterator[str]:
    known = sorted(known_functions())
    here = sum(len(row.names) for row in base.functions() if row.duckdb is not None)
    yield "# Functions"
    yield ""
    yield f"The {len(known)} functions that a query may name: Spark's, by Spark's rules (ANSI mode). A query on tables"
    yield f"in which only the {here} in **bold** occur is answered in this process, within milliseconds, where the"
    yield "types of its arguments permit; with any other Spark is asked. So it is with batches of running queries on"
    yield "one machine, and on a cluster with batches up to 10,000 rows; larger ones are Spark's there."
    yield ""
    yield "Each has a class, by what its value depends on; `SHOW FUNCTIONS` lists it. It is in brackets where it is"
    yield "not `pure`."
    yield ""
    yield from _table(
        ("class", "depends on", "in the app's SQL", "for HTTP clients"),
        [
            ("pure", "the arguments", "yes", "yes"),
            ("volatile", "also the time, chance, or how rows are divided", "not in live tables", "yes"),
            ("session", "who runs the app, where, with which version", "not in live tables", "no"),
            ("outside", "files, hosts, the JVM, the environment, logs", "no", "no"),
            ("python", "a function of the app (`@app.function`)", "yes", "if it is `public=True`"),
        ],
    )
    yield "An argument is brought to the type that is shown, as Spark does it; `…` stands for arguments whose types"
    yield "hang on one another. Each example is a condition that holds, or a query that gives `true`. Those of"
    yield "aggregates and of functions with `OVER` read this table:"
    yield ""
    yield "```sql"
    yield f"CREATE TABLE t ({base.EXAMPLE_COLUMNS});"
    rows = base.EXAMPLE_ROWS.replace("), (", "),\n                     (")
    yield f"INSERT INTO t VALUES {rows};"
    yield "```"
    yield ""
    for family, found in base.families().items():
        module = importlib.import_module(f"{base.__package__}.{family}")
        yield f"## {family.capitalize() if family != 'json' else 'JSON and other formats'}"
        yield ""
        yield str(module.__doc__)
        yield ""
        live = any(isinstance(row, Aggregate) and row.node is not None for row in found)
        head = ("function", "what it gives", "over a stream", "example") if live else _FUNCTION_HEAD
        cells = [_function(row, live=live) for row in found]
        yield from _table(head, cells)


_FUNCTION_HEAD = ("function", "what it gives", "example")


def _function(row: Function, *, live: bool) -> tuple[str, ...]:
    written = row.takes.rpartition(")")[0] + ")" if row.takes else _PARAMETERS.get(row.counts, "(…)")
    names = [f"{name}{written}" for name in row.names]
    shown = ", ".join(f"**`{name}`**" if row.duckdb is not None else f"`{name}`" for name in names)
    said = shown if row.kind == "pure" else f"{shown} ({row.kind})"
    example = f"`{row.example}`" if row.example else "–"
    return (said, row.doc, _kept(row), example) if live else (said, row.doc, example)


_PARAMETERS = {"0": "()"}


def _kept(row: Function) -> str:
    """What a live aggregate keeps of a group."""
    if not isinstance(row, Aggregate) or row.node is None:
        return "–"
    column, counted = exp.column("x"), None
    if row.lowers is not None:
        counted, _ = row.lowers(row.node(this=column, expression=column), None)
    distinct = counted is not None and isinstance(counted.this, exp.Distinct)
    return "a few values, merged" if (row.keeps or row.lowers) and not distinct else "the values"


# commands


def _commands() -> Iterator[str]:
    from typer.testing import CliRunner

    from millpond.cli.main import app

    runner = CliRunner()
    names = [
        command.name or command.callback.__name__ for command in app.registered_commands if command.callback
    ]
    yield "# Commands"
    yield ""
    for name in ["", *names]:
        said = runner.invoke(app, [*name.split(), "--help"], prog_name="millpond", terminal_width=100)
        yield f"## millpond {name}".rstrip()
        yield ""
        yield "```text"
        yield from (line.rstrip() for line in said.output.rstrip().splitlines())
        yield "```"
        yield ""


# routes


def _routes() -> Iterator[str]:
    from millpond.http.openapi import ALWAYS, MEANINGS
    from millpond.http.routes import ROUTES
    from millpond.http.settings import TOKENS, Limits, Role

    yield "# Routes"
    yield ""
    yield "The routes of `millpond run --http` and `app.serve()`. `/openapi.json` describes them to programs."
    yield "[Over HTTP](../http.md) has examples."
    yield ""
    yield from _table(
        ("route", "role", "meaning"),
        [(f"`{r.method} {r.path}`", _role(r.role, Role), r.help.rstrip(".")) for r in ROUTES],
    )
    for route in ROUTES:
        yield f"## {route.method} {route.path}"
        yield ""
        yield route.help
        yield ""
        if route.params:
            yield from _table(
                ("parameter", "in", "meaning"),
                [(f"`{p.name}`", p.where, p.help.rstrip(".")) for p in route.params],
            )
        if route.body is not None:
            fields = ", ".join(f"`{name}`" for name in route.body.get("properties", {}))
            media = ", ".join(f"`{m}`" for m in route.body_media)
            yield f"Body: {media}" + (f" with the fields {fields}." if fields else ".")
            yield ""
        yield f"Answer: {', '.join(f'`{m}`' for m in route.media)}."
        yield ""
    yield "## Statuses"
    yield ""
    used = sorted({200, *ALWAYS, *(status for r in ROUTES for status in r.errors)})
    yield from _table(("status", "meaning"), [(str(status), MEANINGS[status].rstrip(".")) for status in used])
    yield "## Limits"
    yield ""
    yield "`app.serve(limits={…})` replaces them by name."
    yield ""
    about = _attribute_docs(Limits)
    yield from _table(
        ("limit", "default", "meaning"),
        [(f"`{f.name}`", f"{f.default:,}", about[f.name].rstrip(".")) for f in dataclasses.fields(Limits)],
    )
    yield "## Tokens"
    yield ""
    yield from _table(
        ("variable", "role"), [(f"`{name}`", role.name.lower()) for name, role in TOKENS.items()]
    )


def _role(role: object, roles: type) -> str:
    return "anybody" if role == roles.NONE else str(role.name).lower()  # type: ignore[attr-defined]


def _attribute_docs(kind: type) -> dict[str, str]:
    """The texts that stand under the fields of a class."""
    (body,) = ast.parse(inspect.cleandoc("\n" + inspect.getsource(kind))).body
    assert isinstance(body, ast.ClassDef)
    return {
        before.target.id: " ".join(str(after.value.value).split())
        for before, after in itertools.pairwise(body.body)
        if isinstance(before, ast.AnnAssign)
        and isinstance(before.target, ast.Name)
        and isinstance(after, ast.Expr)
        and isinstance(after.value, ast.Constant)
    }


if __name__ == "__main__":
    sys.exit(main())
