"""Files of an app at random, and random edits of them: what ``tests/test_upgrade_random.py`` runs."""

from __future__ import annotations

import random
from copy import deepcopy
from dataclasses import dataclass, field


@dataclass
class Column:
    name: str
    type: str
    default: int | None = None

    def text(self) -> str:
        return f"{self.name} {self.type}" + (f" DEFAULT {self.default}" if self.default is not None else "")


@dataclass
class Made:
    """A statement of the file: ``columns`` of numbers, that others may read."""

    kind: str
    name: str
    columns: list[Column]
    body: str = ""
    key: str | None = None
    options: str = ""
    style: int = 0

    def text(self) -> str:
        name, body = self.name, self.body
        if self.style % 2 and " FROM " in body and "GROUP BY" not in body:
            head, _, tail = body.partition(" FROM ")
            source, _, rest = tail.partition(" ")
            body = f"{head}\n  FROM {source} AS some_{self.style} {rest}"
        match self.kind:
            case "stream":
                return f"CREATE STREAM {name} ({', '.join(c.text() for c in self.columns)}){self.options};"
            case "table":
                columns = [c.text() for c in self.columns]
                if self.key is not None:
                    columns.append(f"PRIMARY KEY ({self.key})")
                return f"CREATE TABLE {name} ({', '.join(columns)}){self.options};"
            case "derived":
                return f"CREATE STREAM {name} AS {body};"
            case "view":
                return f"CREATE VIEW {name} AS {body};"
            case "insert":
                return f"INSERT INTO {name} {body};"
        key = f" (PRIMARY KEY ({self.key}))" if self.key is not None else ""
        return f"CREATE TABLE {name}{key} AS {body};"


DIMENSION = """CREATE TABLE dim (dim_k BIGINT PRIMARY KEY, dim_v BIGINT);
INSERT INTO dim VALUES (0, 3), (1, 1), (2, 4), (4, 1);"""
"""A table that no edit changes: rows of a stream that are joined with it are the same at any time."""


@dataclass
class File:
    statements: list[Made] = field(default_factory=list)
    topic: str | None = None
    style: int = 0

    def text(self, *, queries: bool = True) -> str:
        text = "\n".join([DIMENSION, *(s.text() for s in self.statements if queries or s.kind != "insert")])
        if self.topic is None or not queries:
            return text
        options = ("", " WITH ('retention' = '9d')", " WITH ('batch.max.rows' = 2)")[self.style % 3]
        alias = ("", f" AS x{self.style}")[self.style % 2]
        return f"""CREATE STREAM numbers (n BIGINT){options};
{text}
INSERT INTO {self.topic} SELECT n FROM numbers{alias}
  WITH ('delivery' = 'exactly-once', 'query.name' = 'out');"""

    def named(self, *kinds: str) -> list[Made]:
        return [s for s in self.statements if s.kind in kinds]


class Editor:
    def __init__(self, seed: int):
        self.random = random.Random(seed)
        self.count = 0

    def name(self, start: str) -> str:
        self.count += 1
        return f"{start}{self.count}"

    def number(self) -> int:
        return self.random.randint(0, 4)

    def columns(self) -> list[Column]:
        names = self.random.sample("abcdef", self.random.randint(2, 4))
        return [Column(n, self.random.choice(["INT", "BIGINT"])) for n in names]

    def first(self) -> File:
        file = File([Made("stream", self.name("s"), self.columns()) for _ in range(2)])
        file.statements += [Made("table", self.name("t"), self.columns()) for _ in range(2)]
        file.statements[-1].key = file.statements[-1].columns[0].name
        for _ in range(6):
            self.add(file)
        return file

    # edits

    def add(self, file: File) -> None:
        kind = self.random.choice(
            ["derived", "of_stream", "of_stream", "view", "of_table", "of_table", "insert"]
        )
        made = self.query(file, kind, self.name(kind[:4]))
        if made is not None:
            file.statements.append(made)

    def query(self, file: File, kind: str, name: str, before: int | None = None) -> Made | None:
        there = File(file.statements[:before])
        streams, tables = (
            there.named("stream", "derived"),
            there.named("table", "of_stream", "of_table", "view"),
        )
        if kind == "insert":
            targets = [t for t in there.named("table") if t.key is None]
            if not streams or not targets:
                return None
            source, target = self.random.choice(streams), self.random.choice(targets)
            picked = [self.random.choice(source.columns).name for _ in target.columns[:1]]
            body = f"({target.columns[0].name}) SELECT CAST({picked[0]} AS INT) FROM {source.name}"
            return Made("insert", target.name, [], body)
        source = self.random.choice(streams if kind in ("derived", "of_stream") else tables)
        one, two = (self.random.choice(source.columns).name for _ in range(2))
        if kind in ("derived", "of_stream") and self.random.random() < 0.2:
            return self.join(kind, name, source, one, two)
        if kind == "of_stream" and self.random.random() < 0.15:
            window = f"window(timestamp_seconds({two}), '2 seconds')"
            body = f"SELECT {one} AS g, COUNT(*) AS n FROM {source.name} GROUP BY {one}, {window}"
            return Made(kind, name, [Column(c, "BIGINT") for c in ("g", "n")], body)
        where = f" WHERE {one} > {self.number()}" if self.random.random() < 0.5 else ""
        if kind in ("of_stream", "of_table") and self.random.random() < 0.5:
            function = self.random.choice(["SUM", "MAX", "MIN", "COUNT"])
            having = f" HAVING COUNT(*) > {self.number() // 2}" if self.random.random() < 0.4 else ""
            extra = f", {function}({two}) + {self.number()} AS y" if self.random.random() < 0.7 else ""
            body = f"SELECT {one} AS g, COUNT(*) AS n{extra} FROM {source.name}{where} GROUP BY {one}{having}"
            return Made(
                kind, name, [Column(c, "BIGINT") for c in ("g", "n", *(("y",) if extra else ()))], body
            )
        if self.random.random() < 0.2 and kind != "derived":
            return Made(kind, name, list(source.columns), f"SELECT * FROM {source.name}{where}")
        shown = self.random.sample(["x", "y", "z"], 2)
        body = f"SELECT {one} AS {shown[0]}, {two} + {self.number()} AS {shown[1]} FROM {source.name}{where}"
        return Made(kind, name, [Column(c, "BIGINT") for c in shown], body)

    def join(self, kind: str, name: str, source: Made, one: str, two: str) -> Made:
        how = self.random.choice(["JOIN", "LEFT JOIN"])
        body = f"SELECT {two} AS x, dim_v AS y FROM {source.name} {how} dim ON {one} = dim_k"
        return Made(kind, name, [Column(c, "BIGINT") for c in ("x", "y")], body)

    def edit(self, file: File) -> File:
        file = deepcopy(file)
        for _ in range(self.random.choice([1, 1, 2, 3])):
            self.random.choice(
                [
                    self.add,
                    self.drop,
                    self.change,
                    self.change,
                    self.rename,
                    self.rewrite,
                    self.alter,
                    self.alter,
                ]
            )(file)
        return file

    def drop(self, file: File) -> None:
        if len(file.statements) > 4:
            file.statements.remove(self.random.choice(file.statements))

    def change(self, file: File) -> None:
        at = self.random.randrange(len(file.statements))
        known = file.statements[at]
        if known.kind in ("stream", "table"):
            return
        made = self.query(file, known.kind, known.name, at)
        if made is not None:
            file.statements[at] = made

    def rename(self, file: File) -> None:
        known = self.random.choice(file.statements)
        if known.kind not in ("stream", "insert") and self.random.random() < 0.5:
            known.name = self.name("r")
        elif known.kind == "table":
            self.random.choice(known.columns).name = self.random.choice("ghij")

    def rewrite(self, file: File) -> None:
        file.style += 1
        self.random.choice(file.statements).style += 1

    def alter(self, file: File) -> None:
        table = self.random.choice(file.named("table", "table", "stream") or [file.statements[0]])
        names = {c.name for c in table.columns}
        match self.random.randrange(8):
            case 0 | 1 | 2:
                free = sorted(set("abcdefgh") - names)
                default = self.number() if table.kind == "table" and self.random.random() < 0.5 else None
                table.columns.append(Column(self.random.choice(free), "INT", default))
            case 3:
                table.columns.insert(0, Column(self.random.choice(sorted(set("klm") - names)), "INT"))
            case 4:
                if len(table.columns) > 2:
                    table.columns.remove(self.random.choice(table.columns))
            case 5:
                self.random.choice(table.columns).type = self.random.choice(["INT", "BIGINT", "DATE"])
            case 6:
                if table.kind == "table":
                    self.random.choice(table.columns).default = self.number()
            case 7:
                if table.kind == "stream":
                    table.options = f" WITH ('batch.max.rows' = {1 + self.number()}, 'retention' = '9d')"
                else:
                    table.options = f" WITH ('hot.records' = {1 + self.number()})"


@dataclass
class LiveEdit:
    """Changes an app that runs: a statement, and the file that says the same afterwards."""

    statement: str
    file: File
    name: str
    renamed: tuple[str, str] | None = None
    """The old and the new name of a column."""

    @property
    def kind(self) -> str:
        return next(s.kind for s in self.file.statements if s.name == self.name)

    @property
    def columns(self) -> list[str]:
        return [c.name for s in self.file.statements for c in s.columns if s.name == self.name]


def live_edit(editor: Editor, file: File) -> LiveEdit:
    """Returns a statement for a running app, at random."""
    chance, file = editor.random, deepcopy(file)
    tables = file.named("table")
    if tables and chance.random() < 0.5:
        return _alter(editor, file, chance.choice(tables))
    known = chance.choice([s for s in file.statements if s.kind != "insert"])
    if known.kind in ("stream", "table"):
        editor.alter(File([known]))
    else:
        at = file.statements.index(known)
        known = file.statements[at] = editor.query(file, known.kind, known.name, at) or known
    return LiveEdit(known.text().replace("CREATE", "CREATE OR REPLACE", 1), file, known.name)


def _alter(editor: Editor, file: File, table: Made) -> LiveEdit:
    chance, alter = editor.random, f"ALTER TABLE {table.name}"
    names, column = {c.name for c in table.columns}, editor.random.choice(table.columns)
    match chance.randrange(6):
        case 0:
            default = editor.number() if chance.random() < 0.5 else None
            table.columns.append(Column(chance.choice(sorted(set("abcdefgh") - names)), "INT", default))
            return LiveEdit(f"{alter} ADD COLUMN {table.columns[-1].text()}", file, table.name)
        case 1:
            old, column.name = column.name, chance.choice(sorted(set("ghijnop") - names))
            table.key = column.name if table.key == old else table.key
            statement = f"{alter} RENAME COLUMN {old} TO {column.name}"
            return LiveEdit(statement, file, table.name, (old, column.name))
        case 2:
            table.columns.remove(column)
            return LiveEdit(f"{alter} DROP COLUMN {column.name}", file, table.name)
        case 3:
            column.type = chance.choice(["BIGINT", "BIGINT", "DATE"])
            return LiveEdit(f"{alter} ALTER COLUMN {column.name} TYPE {column.type}", file, table.name)
        case 4:
            column.default = editor.number()
            statement = f"{alter} ALTER COLUMN {column.name} SET DEFAULT {column.default}"
            return LiveEdit(statement, file, table.name)
        case _:
            option = f"'hot.records' = {1 + editor.number()}"
            table.options = f" WITH ({option})"
            return LiveEdit(f"{alter} SET ({option})", file, table.name)
