"""Writes the text of a statement with another name of a column or table that it uses.

The rest of the text stays, with its variables and comments, and output columns keep their names: ``SELECT a`` becomes
``SELECT b AS a``. What the new text means is not checked here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from sqlglot import exp
from sqlglot.tokens import Token, TokenType

from millpond.errors import Place
from millpond.sql import statements as st
from millpond.sql.autoname import auto_name
from millpond.sql.parse import parse, tokenize
from millpond.sql.printer import print_name
from millpond.sql.references import ColumnReference, References, StarReference
from millpond.sql.resolve.stars import star_of

_OPENS = (TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE)
_CLOSES = (TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE)
_AFTER_LIST = frozenset(
    "FROM WHERE GROUP HAVING ORDER SORT LIMIT OFFSET UNION EXCEPT INTERSECT WINDOW QUALIFY EMIT ERROR WITH LATERAL |>"
    " INTO".split()
)


@dataclass(frozen=True, slots=True)
class Renamed:
    """Says that a table, or a ``column`` of it, has the name ``new``."""

    table: str
    new: str
    column: str | None = None


def rename_in(text: str, renamed: Renamed, references: References) -> str:
    """Returns the text with the new name. ``references`` are those of the text, as it was checked before."""
    if renamed.column is None:
        return _Text(text).with_table(renamed.table, renamed.new, references)
    return _Text(text).with_column(renamed.table, renamed.column, renamed.new, references)


class _Text:
    """Represents a text that gets other names."""

    def __init__(self, text: str):
        parsed = parse(text)
        self._script = parsed.script
        self._statements = parsed.require()
        self._tokens = tokenize(parsed.script)
        self._edits: dict[int, tuple[int, str]] = {}

    def with_column(self, table: str, old: str, new: str, references: References) -> str:
        wanted = (table.lower(), old.lower())
        for found in references.columns.values():
            if (found.table, found.column) == wanted:
                self._edits[found.start] = (found.end, _qualified(found, new))
        for chunk, statement in zip(self._chunks(), self._statements, strict=True):
            for at in _columns_of_target(chunk, statement, table, old):
                if chunk[at].start not in references.columns:
                    self._edits[chunk[at].start] = (chunk[at].end + 1, print_name(new))
        self._keep_outputs()
        for star in references.stars.values():
            if any((c.table, c.column) == wanted for c in star.columns) and not star.replaces:
                self._write_out(star, wanted, new)
        return self._edited()

    def with_table(self, old: str, new: str, references: References) -> str:
        for found in references.tables.values():
            if found.table == old.lower():
                known = self._script.expanded[found.start : found.end]
                alias = "" if found.aliased else f" AS {known}"
                self._edits[found.start] = (found.end, print_name(new) + alias)
        for chunk, statement in zip(self._chunks(), self._statements, strict=True):
            for at, aliased in _targets(chunk, statement, old):
                token = chunk[at]
                known = self._script.expanded[token.start : token.end + 1]
                alias = f" AS {known}" if aliased else ""
                self._edits.setdefault(token.start, (token.end + 1, print_name(new) + alias))
        return self._edited()

    def _chunks(self) -> list[list[Token]]:
        """Returns the tokens of each statement."""
        found: list[list[Token]] = [[]]
        for token in self._tokens:
            if token.token_type == TokenType.SEMICOLON:
                found.append([])
            else:
                found[-1].append(token)
        return [chunk for chunk in found if chunk]

    def _keep_outputs(self) -> None:
        """Adds aliases to output columns whose names would be others."""
        items = list(self._select_items())
        edited = set(self._edits)
        for select in (s for root in _trees(self._statements) for s in root.find_all(exp.Select)):
            for projection in select.expressions:
                if isinstance(projection, exp.Alias | exp.Aliases) or star_of(projection) is not None:
                    continue
                starts = {n.meta["start"] for n in projection.find_all(exp.Identifier) if "start" in n.meta}
                around = [i for i in items if starts and all(i[0] <= s < i[1] for s in starts)]
                if starts & edited and around:
                    _, end = min(around, key=lambda i: i[1] - i[0])
                    self._add(end, f" AS {print_name(auto_name(projection))}")

    def _select_items(self) -> Iterator[tuple[int, int]]:
        """Yields the offsets of each item of each SELECT list."""
        for number, token in enumerate(self._tokens):
            if token.token_type == TokenType.SELECT:
                yield from _items(self._tokens, number + 1)

    def _write_out(self, star: StarReference, wanted: tuple[str, str], new: str) -> None:
        """Replaces ``*`` by the columns that it has."""
        listed = []
        for column in star.columns:
            name = new if (column.table, column.column) == wanted else column.column
            named = f"{print_name(column.alias)}." if column.alias else ""
            alias = f" AS {print_name(column.output)}" if name.lower() != column.output.lower() else ""
            shown = print_name(name) if alias else print_name(column.output)
            listed.append(f"{named}{shown}{alias}")
        self._edits[star.start] = (_end_of_star(self._tokens, star.at), ", ".join(listed))

    def _add(self, at: int, text: str) -> None:
        """Inserts a text, also after another edit that ends there."""
        before = next((start for start, (end, _) in self._edits.items() if end == at), None)
        if before is None:
            self._edits[at] = (at, text)
        else:
            end, made = self._edits[before]
            self._edits[before] = (end, made + text)

    def _edited(self) -> str:
        text = self._script.original
        for start in sorted(self._edits, reverse=True):
            end, made = self._edits[start]
            first = self._script.original_offset(start)
            last = self._script.original_offset(end, end=True) if end > start else first
            text = text[:first] + made + text[last:]
        return text


def _qualified(found: ColumnReference, new: str) -> str:
    return f"{print_name(found.owner)}.{print_name(new)}" if found.owner else print_name(new)


def _items(tokens: list[Token], at: int) -> Iterator[tuple[int, int]]:
    """Yields the offsets of the items of the SELECT list that begins at a token."""
    while at < len(tokens) and tokens[at].token_type in (TokenType.DISTINCT, TokenType.ALL):
        at += 1
    depth, first = 0, at
    while at < len(tokens):
        token = tokens[at]
        word = token.text.upper().split()[0] if token.text.split() else ""
        excepts = at > 0 and tokens[at - 1].token_type == TokenType.STAR and word == "EXCEPT"
        ends = word in _AFTER_LIST and token.token_type != TokenType.IDENTIFIER and not excepts
        closes = token.token_type in _CLOSES
        if not depth and (closes or ends or token.token_type in (TokenType.COMMA, TokenType.SEMICOLON)):
            if at > first:
                yield tokens[first].start, tokens[at - 1].end + 1
            if token.token_type != TokenType.COMMA:
                return
            first = at + 1
        depth += (token.token_type in _OPENS) - closes
        at += 1
    if at > first:
        yield tokens[first].start, tokens[at - 1].end + 1


def _end_of_star(tokens: list[Token], offset: int) -> int:
    """Returns the offset after the star at an offset, with its EXCEPT."""
    at = next(i for i, t in enumerate(tokens) if t.start == offset)
    end = at
    if at + 1 < len(tokens) and tokens[at + 1].text.upper() in ("EXCEPT", "EXCLUDE"):
        depth = 0
        for end in range(at + 2, len(tokens)):
            depth += (tokens[end].token_type in _OPENS) - (tokens[end].token_type in _CLOSES)
            if not depth:
                break
    return tokens[end].end + 1


def _columns_of_target(tokens: list[Token], s: st.Statement, table: str, column: str) -> Iterator[int]:
    """Yields the tokens that name a column of the table that a statement changes, outside its queries."""
    if isinstance(s, st.CreateIndex) and s.table.lower() == table.lower():
        listed = next(i for i, t in enumerate(tokens) if t.token_type == TokenType.L_PAREN)
        yield from (i for i in range(listed, len(tokens)) if _is(tokens, i, column))
    if not isinstance(s, st.WRITES) or s.target.lower() != table.lower():
        return
    alias = s.expression.this.alias if isinstance(s, st.Merge) else getattr(s, "alias", None)
    owners = {table.lower(), (alias or table).lower()}
    for at in range(len(tokens)):
        if not _is(tokens, at, column):
            continue
        qualified = _word(tokens, at - 1) == "." and tokens[at - 2].text.lower() in owners
        before = _word(tokens, at - 3 if qualified else at - 1)
        assigned = _word(tokens, at + 1) == "=" and before in ("SET", ",")
        if qualified or assigned or _in_list(tokens, at):
            yield at


def _in_list(tokens: list[Token], at: int) -> bool:
    """Returns whether a token is in the list of columns of INSERT or UPSERT."""
    while at >= 0 and tokens[at].token_type != TokenType.L_PAREN:
        if tokens[at].token_type == TokenType.R_PAREN:
            return False
        at -= 1
    return _word(tokens, at - 1) == "INSERT" or _word(tokens, at - 2) == "INTO"


def _targets(tokens: list[Token], s: st.Statement, table: str) -> Iterator[tuple[int, bool]]:
    """Yields the tokens that name a table outside queries, and whether the text needs its name as an alias."""
    bare = isinstance(s, st.Update | st.Delete) and s.alias is None
    bare = bare or (isinstance(s, st.Merge) and not s.expression.this.alias)
    upserts = isinstance(s, st.Upsert) and s.target.lower() == table.lower()
    for at in range(len(tokens)):
        if not _is(tokens, at, table):
            continue
        before, first = _word(tokens, at - 1), _word(tokens, at - 2)
        if before == "INTO":
            yield at, first == "MERGE" and bare
        elif before == "UPDATE" or (before == "FROM" and first == "DELETE"):
            yield at, bare
        elif (before == "ON" and isinstance(s, st.CreateIndex)) or (upserts and _word(tokens, at + 1) == "."):
            yield at, False


def _is(tokens: list[Token], at: int, name: str) -> bool:
    token = tokens[at]
    return token.token_type not in (TokenType.STRING, TokenType.NUMBER) and token.text.lower() == name.lower()


def _word(tokens: list[Token], at: int) -> str:
    return tokens[at].text.upper() if 0 <= at < len(tokens) else ""


def _trees(value: Any) -> Iterator[exp.Expr]:
    """Yields the expressions in statements."""
    if isinstance(value, exp.Expr):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from _trees(item)
    elif is_dataclass(value) and not isinstance(value, Place):
        for each in fields(value):
            yield from _trees(getattr(value, each.name))
