"""Caches plans of repeated statements, by their text without its literals.

Most of the time is spent on finding the literals, so the frequent forms have a way of their own: one text at the end of
the statement is found by splitting at quotes, one number at the end by taking the digits off, parameters not at all;
a text that was seen before with other literals by one split. Any other is taken apart by a regular expression.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Generic, TypeVar

from millpond.errors import Closed, Error
from millpond.lookup import Run
from millpond.query.result import Result
from millpond.records.values import Unfit
from millpond.sql.holes import form_of
from millpond.sql.template import Parameter, Template, template_of

R = TypeVar("R", bound=Result)
Params = Sequence[Any] | Mapping[str, Any] | None
_DIGITS = "0123456789"
_KEPT_TEXTS = 4096
_LONG, _LONG_TOGETHER = 1_000, 4_000
"""Characters of a value, and of all, of a statement that has a plan. A plan keeps some of them."""
_MISSING: Any = object()
_LITERAL = re.compile(r"((?<!\w)'[^'\\$]*'|(?<![\w.$:`])[0-9]+(?:\.[0-9]+)?(?![\w.]))")


@dataclass(frozen=True, slots=True)
class Plan:
    """Runs a statement: ``run`` takes the values of its text and parameters, and answers. It answers None, or raises
    Unfit, if they need the long way; then nothing was done. ``writes`` says that it changes something, ``public`` that
    everybody may ask it.

    It holds for all values of the Python types that it was made for. If it has ``holes``, it holds for values of the
    same form in these, whose digits may count, and in the others only for the very values it was made for."""

    run: Run
    writes: bool = False
    public: bool = True
    holes: Mapping[int, bool] | None = None
    run_now: Run | None = None
    """As ``run``, for a thread that must not wait: it also answers None where it would have to."""

    def key(self, values: Sequence[Any]) -> tuple[Hashable, ...]:
        """What values must have in common to have one plan."""
        holes = self.holes or {}
        return tuple([form_of(v, holes[at]) if at in holes else repr(v) for at, v in enumerate(values)])

    def covers(self, other: Plan) -> bool:
        """Whether it holds for all values for which the other one would have the same key."""
        if self.holes is None or other.holes is None:
            return self.holes is None
        return all(at in self.holes and self.holes[at] <= digits for at, digits in other.holes.items())


@dataclass(frozen=True, slots=True)
class Asked:
    """A statement that needs a plan: its text, what that is without literals, and the values of both."""

    text: str
    template: Template
    params: Params
    values: tuple[Any, ...]
    current: Callable[[], bool]
    """Whether the plans are still those of the catalog as it is."""


Compile = Callable[[Asked], Plan | None]
"""Makes the plan of a statement; None if it has none. Raises Unfit, or what is wrong with it, if it has none now."""
Lets = Callable[[Plan], bool]
"""Whether somebody may run a plan."""


class _Kept:
    """Plans of one state of the catalog. When there are too many, those that are used again come into the next
    generation, and the others go."""

    __slots__ = ("by_number", "by_params", "by_shape", "by_text", "older", "plans")

    def __init__(self) -> None:
        self.plans: dict[Any, Plan | None] = {}
        self.older: dict[Any, Plan | None] = {}
        self.forget_texts()

    def forget_texts(self) -> None:
        # The text before the one literal, a text or a number, at the end.
        self.by_text: dict[str, Plan] = {}
        self.by_number: dict[str, Plan] = {}
        # What stands between literals, and how each of them is read.
        self.by_shape: dict[tuple[str, ...], tuple[Plan, tuple[Callable[[str], Any], ...]]] = {}
        # The names of the parameters, or how many there are.
        self.by_params: dict[str, tuple[Plan, tuple[str, ...] | int]] = {}

    def get(self, key: Any, half: int) -> Plan | None:
        found = self.plans.get(key, _MISSING)
        if found is _MISSING:
            found = self.older.get(key, _MISSING)
            if found is not _MISSING:
                self.put(key, found, half)
        return found  # type: ignore[no-any-return]

    def put(self, key: Any, plan: Plan | None, half: int) -> None:
        if len(self.plans) >= half:
            self.older, self.plans = self.plans, {}
            self.forget_texts()
        self.plans[key] = plan

    def remember(self, text: str, template: Template, values: tuple[Any, ...], plan: Plan) -> None:
        """Makes the next statement of this form quicker to find."""
        if len(self.by_shape) + len(self.by_params) >= _KEPT_TEXTS:
            self.forget_texts()
        asked = [h.which for h in template.holes if isinstance(h, Parameter)]
        if asked:
            if len(asked) == len(values):
                by_number = asked == list(range(len(asked)))
                names = () if by_number else tuple(map(str, asked))
                self.by_params[text] = (plan, len(asked) if by_number else names)
            return
        pieces = _LITERAL.split(text)
        between, literals = pieces[::2], pieces[1::2]
        found = [text[start:end] for start, end in template.places]
        if literals != found or any("'" in piece for piece in between):
            return
        self.by_shape[tuple(between)] = plan, tuple([_READERS[type(v)] for v in values])
        if len(values) == 1 and not between[1]:
            head = text[: template.places[0][0]]
            if type(values[0]) is str:
                self.by_text[head] = plan
            elif type(values[0]) is int:
                self.by_number[head] = plan


class Plans(Generic[R]):
    """Threads may ask at once; two that need the same plan may both make it."""

    def __init__(self, compile: Compile, size: int = 1024):
        self._compile = compile
        self._half = max(1, size // 2)
        self._kept = _Kept()

    def __len__(self) -> int:
        kept = self._kept
        return len(kept.plans.keys() | kept.older.keys())

    def clear(self) -> None:
        """Forgets all plans: what their texts mean may have changed."""
        self._kept = _Kept()

    def find(self, text: str, params: Params = None, lets: Lets | None = None) -> R | None:
        """The answer of a statement that has a plan; None for one that must go the long way."""
        kept = self._kept
        known = _known(kept, text, params)
        try:
            if known is None or known[0].holes is not None:
                known = self._search(kept, text, params)
                if known is None:
                    return None
            plan, values = known
            return self._answer(plan, plan.run, values, lets)
        except Unfit:
            return None

    def find_now(self, text: str, params: Params, lets: Lets) -> R | None:
        """As ``find``, for a thread that must not wait: it makes no plan, and runs none that may take longer than a
        lookup."""
        known = _known(self._kept, text, params)
        if known is None:
            return None
        plan, values = known
        if plan.run_now is None:
            return None
        try:
            return self._answer(plan, plan.run_now, values, lets)
        except Unfit:
            return None

    def _answer(self, plan: Plan, run: Run, values: Sequence[Any], lets: Lets | None) -> R | None:
        if lets is not None and not lets(plan):
            return None
        try:
            found: R | None = run(*values)
            return found
        except Closed:
            self.clear()
            return None

    def _search(self, kept: _Kept, text: str, params: Params) -> tuple[Plan, tuple[Any, ...]] | None:
        template = template_of(text)
        values = None if template is None else template.values(params)
        if template is None or values is None:
            return None
        sizes = [len(v) for v in values if isinstance(v, str | bytes)]
        if max(sizes, default=0) > _LONG or sum(sizes) > _LONG_TOGETHER:
            return None
        asked = Asked(text, template, params, values, lambda: kept is self._kept)
        key: tuple[Any, ...] = (template.text, *map(type, values))
        first = kept.get(key, self._half)
        plan = self._made(asked) if first is _MISSING else first
        if first is _MISSING and plan is not _MISSING:
            kept.put(key, plan, self._half)
        if plan is None or plan is _MISSING:
            return None
        if plan.holes is None:
            kept.remember(text, template, values, plan)
            return plan, values
        # A column without a name is named after what is written, a literal or a parameter.
        written = tuple([isinstance(hole, Parameter) for hole in template.holes])
        key = (*key, written, *plan.key(values))
        if first is _MISSING:
            kept.put(key, plan, self._half)
            return plan, values
        found = kept.get(key, self._half)
        if found is _MISSING:
            found = self._made(asked)
            if found is None or (found is not _MISSING and found.covers(plan)):
                kept.put(key, found, self._half)
        return None if found is None or found is _MISSING else (found, values)

    def _made(self, asked: Asked) -> Plan | None:
        try:
            return self._compile(asked)
        except Error:
            return _MISSING  # type: ignore[no-any-return]  # the long way says what is wrong


def _known(kept: _Kept, text: str, params: Params) -> tuple[Plan, Sequence[Any]] | None:
    """The plan of a statement whose form was seen before, and the values of this one."""
    plan: Plan | None = None
    if params is not None:
        given = kept.by_params.get(text)
        if given is None:
            return None
        plan, asked = given
        if isinstance(asked, int):
            whole = len(params) == asked and (type(params) is list or type(params) is tuple)
            return (plan, params) if whole else None  # type: ignore[return-value]
        if type(params) is dict and len(params) == len(asked) and all(n in params for n in asked):
            return plan, [params[n] for n in asked]
        return None
    parts = text.split("'", 2)
    if len(parts) == 1:
        head = text.rstrip(_DIGITS)
        if 0 < len(text) - len(head) < 19 and (plan := kept.by_number.get(head)) is not None:
            return plan, (int(text[len(head) :]),)
    elif len(parts) == 3 and not parts[2]:
        value = parts[1]
        if "\\" not in value and "$" not in value and (plan := kept.by_text.get(parts[0])) is not None:
            return plan, (value,)
    pieces = _LITERAL.split(text)
    known = kept.by_shape.get(tuple(pieces[::2]))
    if known is None:
        return None
    try:
        return known[0], [read(piece) for read, piece in zip(known[1], pieces[1::2], strict=True)]
    except ValueError:  # a literal of another kind
        return None


def _text(literal: str) -> str:
    if literal[0] != "'":
        raise ValueError
    return literal[1:-1]


def _whole(literal: str) -> int:
    if len(literal) > 18:
        raise ValueError
    return int(literal)


def _decimal(literal: str) -> Decimal:
    if "." not in literal or len(literal) > 18:
        raise ValueError
    return Decimal(literal)


_READERS: Mapping[type, Callable[[str], Any]] = {str: _text, int: _whole, Decimal: _decimal}
