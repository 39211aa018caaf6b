"""Plans of repeated queries, found by their text without its literals.

Most of the time is spent on finding the literals, so the frequent forms have a way of their own: one text at the end of
the statement is found by splitting at quotes, one number at the end by taking the digits off, parameters not at all.
Any other statement is taken apart by a regular expression.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Generic, TypeVar

from millpond.errors import Closed
from millpond.lookup import Run
from millpond.query.result import Result
from millpond.records.values import Unfit
from millpond.sql.template import Parameter, Template, template_of

R = TypeVar("R", bound=Result)
Params = Sequence[Any] | Mapping[str, Any] | None
Compile = Callable[[str, tuple[Any, ...]], Run | None]
"""Makes the plan of a text without literals for values like these; None if it has none."""
_DIGITS = "0123456789"
_KEPT_TEXTS = 4096
_MISSING: Any = object()


class _Kept:
    """Plans of one state of the catalog. When there are too many, those that are used again come into the next
    generation, and the others go."""

    __slots__ = ("by_number", "by_params", "by_parts", "by_text", "older", "plans")

    def __init__(self) -> None:
        self.plans: dict[Any, Run | None] = {}
        self.older: dict[Any, Run | None] = {}
        self.forget_texts()

    def forget_texts(self) -> None:
        # The text before the one literal, a text or a number, at the end.
        self.by_text: dict[str, Run] = {}
        self.by_number: dict[str, Run] = {}
        # What stands between texts in quotes: the values, and which of them the texts are.
        self.by_parts: dict[tuple[str, ...], tuple[Run, tuple[Any, ...], tuple[int, ...]]] = {}
        # The names of the parameters, or how many there are.
        self.by_params: dict[str, tuple[Run, tuple[str, ...] | int]] = {}

    def age(self) -> None:
        self.older, self.plans = self.plans, {}
        self.forget_texts()

    def remember(self, text: str, template: Template, values: tuple[Any, ...], run: Run) -> None:
        """Makes the next statement of this form quicker to find."""
        if len(self.by_parts) + len(self.by_params) >= _KEPT_TEXTS:
            self.forget_texts()
        asked = [h.which for h in template.holes if isinstance(h, Parameter)]
        if asked:
            if len(asked) == len(values):
                by_number = asked == list(range(len(asked)))
                names = () if by_number else tuple(map(str, asked))
                self.by_params[text] = (run, len(asked) if by_number else names)
            return
        parts = text.split("'")
        if len(parts) == 1:
            head = text.rstrip(_DIGITS)
            if head + ":__v0" == template.text and len(values) == 1:
                self.by_number[head] = run
        elif [v for v in values if type(v) is str] == parts[1::2]:
            self.by_parts[tuple(parts[::2])] = (
                run,
                values,
                tuple(i for i, v in enumerate(values) if type(v) is str),
            )
            if len(values) == 1 and not parts[2]:
                self.by_text[parts[0]] = run


class Plans(Generic[R]):
    """Threads may ask at once; plans are made under ``lock``."""

    def __init__(self, compile: Compile, lock: AbstractContextManager[Any], size: int = 1024):
        self._compile = compile
        self._lock = lock
        self._half = max(1, size // 2)
        self._kept = _Kept()

    def __len__(self) -> int:
        kept = self._kept
        return len(kept.plans.keys() | kept.older.keys())

    def clear(self) -> None:
        """Forgets all plans: what their texts mean may have changed."""
        self._kept = _Kept()

    def find(self, text: str, params: Params = None) -> R | None:
        """The answer of a statement that has a plan; None for one that must go the long way."""
        kept = self._kept
        found: R | None = None
        try:
            if params is None:
                parts = text.split("'", 2)
                if len(parts) == 3:
                    head, value, rest = parts
                    if rest:
                        found = self._by_parts(kept, text)
                    elif (
                        (run := kept.by_text.get(head)) is not None and "\\" not in value and "$" not in value
                    ):
                        found = run(value)
                elif len(parts) == 1:
                    head = text.rstrip(_DIGITS)
                    run = kept.by_number.get(head)
                    if run is not None and 0 < len(text) - len(head) < 19:
                        found = run(int(text[len(head) :]))
            elif (known := kept.by_params.get(text)) is not None:
                run, asked = known
                if isinstance(asked, int):
                    if len(params) == asked and (type(params) is list or type(params) is tuple):
                        found = run(*params)
                elif type(params) is dict and len(params) == len(asked) and all(n in params for n in asked):
                    found = run(*[params[n] for n in asked])
            if found is not None:
                return found
            return self._search(kept, text, params)
        except Unfit:
            return None
        except Closed:
            self.clear()
            return None

    def _by_parts(self, kept: _Kept, text: str) -> R | None:
        parts = text.split("'")
        known = kept.by_parts.get(tuple(parts[::2]))
        if known is None or "\\" in text or "$" in text:
            return None
        run, constants, places = known
        values = list(constants)
        for at, value in zip(places, parts[1::2], strict=True):
            values[at] = value
        found: R | None = run(*values)
        return found

    def _search(self, kept: _Kept, text: str, params: Params) -> R | None:
        template = template_of(text)
        values = None if template is None else template.values(params)
        if template is None or values is None:
            return None
        key = (template.text, *map(type, values))
        run = kept.plans.get(key, _MISSING)
        if run is _MISSING:
            run = kept.older.get(key, _MISSING)
            if run is _MISSING:
                with self._lock:
                    if kept is not self._kept:
                        return None
                    run = self._compile(template.text, values)
            if len(kept.plans) >= self._half:
                kept.age()
            kept.plans[key] = run
        if run is None:
            return None
        kept.remember(text, template, values, run)
        return run(*values)  # type: ignore[no-any-return]
