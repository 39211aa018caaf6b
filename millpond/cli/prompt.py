"""Implements the prompt of the shell: history, completion of words, tables and columns, several lines until a
semicolon.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

from millpond.cli.sessions import Session
from millpond.cli.splitter import is_finished
from millpond.errors import Error
from millpond.sql.functions import known_functions
from millpond.sql.printer import print_name

KEYWORDS = (
    "SELECT FROM WHERE JOIN LEFT RIGHT FULL INNER CROSS ON USING GROUP BY HAVING ORDER LIMIT OFFSET UNION ALL "
    "INTERSECT EXCEPT DISTINCT AS AND OR NOT IN EXISTS ANY BETWEEN LIKE ILIKE IS NULL CASE WHEN THEN ELSE END "
    "CAST WITH CREATE STREAM TABLE VIEW PRIMARY KEY INSERT INTO VALUES DROP SHOW TABLES STREAMS QUERIES FUNCTIONS "
    "UPDATE SET DELETE MERGE MATCHED UPSERT TRUNCATE REPLACE MATERIALIZED INDEX CASCADE WINDOW TUMBLING HOPPING "
    "SESSION WATERMARK EMIT CHANGES FINAL BEGIN COMMIT ROLLBACK PAUSE RESUME START STOP QUERY REPLAY FORMAT JSON "
    "MERMAID SVG DESCRIBE EXTENDED EXPLAIN COUNT SUM AVG MIN MAX BIGINT INT STRING DOUBLE DECIMAL BOOLEAN DATE "
    "TIMESTAMP HISTORY VERSION OPTIMIZE VACUUM RETAIN HOURS"
).split()
_WORD = re.compile(r"[A-Za-z_]\w*$")


def make_prompt(session: Session, state: Path | None) -> Callable[[], str]:
    """Returns a function that reads the next statements. The history is stored in the state directory, if
    there is one.
    """
    keys = KeyBindings()

    @Condition
    def finished() -> bool:
        return is_finished(prompt.default_buffer.text)

    @keys.add("enter", filter=finished)
    def accept(event: KeyPressEvent) -> None:
        event.current_buffer.validate_and_handle()

    prompt: PromptSession[str] = PromptSession(
        "millpond> ",
        multiline=True,
        prompt_continuation=lambda width, number, wrapped: "... ".rjust(width),
        history=_history(state),
        completer=SqlCompleter(session),
        complete_while_typing=False,
        key_bindings=keys,
    )
    return prompt.prompt


class SqlCompleter(Completer):
    """Completes what is typed: with keywords, and with the names that the app knows."""

    def __init__(self, session: Session):
        self._session = session
        self._known: dict[str, tuple[str, ...]] = {}

    def get_completions(self, document: Document, event: CompleteEvent) -> Iterator[Completion]:
        match = _WORD.search(document.text_before_cursor)
        word = match[0] if match else ""
        for name, kind in self._candidates(word):
            if name.lower().startswith(word.lower()) and name != word:
                text = print_name(name) if kind in ("name", "column") else name
                yield Completion(text, start_position=-len(word), display=name, display_meta=kind)

    def _candidates(self, word: str) -> Iterator[tuple[str, str]]:
        self._refresh()
        columns = dict.fromkeys(c for found in self._known.values() for c in found)
        yield from ((name, "name") for name in self._known)
        yield from ((name, "column") for name in columns)
        if word:
            yield from ((k if word[0].isupper() else k.lower(), "keyword") for k in KEYWORDS)
            known = {k.lower() for k in KEYWORDS}
            yield from ((f, "function") for f in sorted(known_functions() - known))

    def _refresh(self) -> None:
        """Queries the names, and the columns of new ones."""
        try:
            names = [*self._names("SHOW TABLES", "name"), *self._names("SHOW STREAMS", "name")]
            self._known = {
                n: self._known.get(n) or tuple(self._names(f"DESCRIBE {print_name(n)}", "column"))
                for n in names
            }
        except Error:
            return  # completion works without what it cannot query

    def _names(self, sql: str, column: str) -> Iterable[str]:
        return [str(n) for t in self._session.ask(sql).tables for n in t[column].to_pylist()]


def _history(state: Path | None) -> History:
    return FileHistory(str(state / "history")) if state is not None and state.is_dir() else InMemoryHistory()
