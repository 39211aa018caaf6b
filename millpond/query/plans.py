"""Caches plans of repeated statements, by their text without its literals.

Most of the time is spent on finding the literals, so frequent forms have a fast path. One string at the end of the
statement is found by splitting at quotes; one number at the end by removing the digits; parameters need no search. A
text that was seen before with other literals is matched by its own pattern, and if many texts begin alike, by one
split. Any other text is parsed by a regular expression.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Generic, Literal, TypeVar

from millpond.errors import Closed, Error
from millpond.lookup import Run
from millpond.predicates import Given
from millpond.query.result import Result
from millpond.records.values import Unfit
from millpond.sql.placeholders import form_of
from millpond.sql.template import Parameter, Template, template_of

R = TypeVar("R", bound=Result)
Params = Sequence[Any] | Mapping[str, Any] | None
_DIGITS = "0123456789"
_KEPT_TEXTS = 4096
_LONG, _LONG_TOGETHER = 1_000, 4_000
"""Maximum characters of a value, and in total, for a statement with a plan. A plan stores some of them."""
_HEAD, _ALIKE = 12, 4
"""Characters by which the pattern of a text is found, and how many patterns with the same beginning are tried."""
_MISSING: Any = object()
_LITERAL = re.compile(r"((?<!\w)'[^'\\$]*'|(?<![\w.$:`])[0-9]+(?:\.[0-9]+)?(?![\w.]))")


@dataclass(frozen=True, slots=True)
class Way:
    """Says which engine evaluates a statement, and why or by what."""

    who: Literal["lookup", "values", "duckdb", "spark"]
    why: str


@dataclass(frozen=True, slots=True)
class Plan:
    """Runs a statement: ``run`` takes the values of its text and parameters, and returns the result. It returns None,
    or raises Unfit, if they need the general path; then nothing was done. ``writes`` says that it changes something,
    ``public`` that everybody may run it.

    It is valid for all values of the Python types that it was made for. If it has ``holes``, it is valid for values of
    the same form in these, whose digits may matter, and in the others only for exactly the values it was made for.
    """

    run: Run
    way: Way
    writes: bool = False
    public: bool = True
    holes: Mapping[int, bool] | None = None
    givens: Sequence[Given] = ()
    """The values that a lookup finds its rows by."""
    run_now: Run | None = None
    """Like ``run``, for a thread that must not wait: it also returns None if it would have to."""

    def key(self, values: Sequence[Any]) -> tuple[Hashable, ...]:
        """Returns what values must have in common to share a plan."""
        holes = self.holes or {}
        return tuple([form_of(v, holes[at]) if at in holes else repr(v) for at, v in enumerate(values)])

    def covers(self, other: Plan) -> bool:
        """Returns whether it is valid for all values for which the other one would have the same key."""
        if self.holes is None or other.holes is None:
            return self.holes is None
        return all(at in self.holes and self.holes[at] <= digits for at, digits in other.holes.items())


@dataclass(frozen=True, slots=True)
class Asked:
    """Contains a statement that needs a plan: its text, the text without literals, and the values of both."""

    text: str
    template: Template
    params: Params
    values: tuple[Any, ...]
    current: Callable[[], bool]
    """Whether the plans are still those of the current catalog."""


Compile = Callable[[Asked], Plan | None]
"""Makes the plan of a statement; None if it has none. Raises Unfit, or the error of the statement, if it
has none now.
"""
Lets = Callable[[Plan], bool]
"""Whether somebody may run a plan."""


_Reads = tuple[tuple[int, Callable[[str], Any]], ...]
_Shape = tuple[re.Pattern[str], Plan, _Reads]


class _Kept:
    """Stores plans of one state of the catalog. When there are too many, those that are used again move to the next
    generation, and the others are dropped.
    """

    __slots__ = ("by_count", "by_names", "by_number", "by_pattern", "by_shape", "by_text", "older", "plans")

    def __init__(self) -> None:
        self.plans: dict[Any, Plan | None] = {}
        self.older: dict[Any, Plan | None] = {}
        self.forget_texts()

    def forget_texts(self) -> None:
        # The text before the one literal, a string or a number, at the end.
        self.by_text: dict[str, Run] = {}
        self.by_number: dict[str, Run] = {}
        # By the beginning of the text: a pattern of the whole, and how its literals that are not strings are read.
        self.by_pattern: dict[str, list[_Shape]] = {}
        # What is between literals, and how each of them is read.
        self.by_shape: dict[tuple[str, ...], tuple[Plan, tuple[Callable[[str], Any], ...]]] = {}
        # How many parameters there are, or their names.
        self.by_count: dict[str, tuple[Plan, int]] = {}
        self.by_names: dict[str, tuple[Plan, tuple[str, ...]]] = {}

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
        """Makes the next statement of this form faster to find."""
        if len(self.by_shape) + len(self.by_count) + len(self.by_names) >= _KEPT_TEXTS:
            self.forget_texts()
        asked = [h.which for h in template.holes if isinstance(h, Parameter)]
        if asked:
            if len(asked) == len(values):
                if asked == list(range(len(asked))):
                    self.by_count[text] = plan, len(asked)
                else:
                    self.by_names[text] = plan, tuple(map(str, asked))
            return
        pieces = _LITERAL.split(text)
        between, literals = pieces[::2], pieces[1::2]
        found = [text[start:end] for start, end in template.places]
        if literals != found or any("'" in piece for piece in between):
            return
        shape = tuple(between)
        known = shape in self.by_shape
        self.by_shape[shape] = plan, tuple([_READERS[type(v)] for v in values])
        if len(between[0]) >= _HEAD and not known:
            alike = self.by_pattern.setdefault(text[:_HEAD], [])
            if len(alike) < _ALIKE:
                alike.append((_pattern(between, values), plan, _reads(values)))
        if len(values) == 1 and not between[1]:
            head = text[: template.places[0][0]]
            if type(values[0]) is str:
                self.by_text[head] = plan.run
            elif type(values[0]) is int:
                self.by_number[head] = plan.run


class Plans(Generic[R]):
    """Finds and makes plans. Thread-safe; two threads that need the same plan may both make it."""

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
        """Returns the result of a statement that has a plan; None for one that must take the general path."""
        kept = self._kept
        found: R | None
        try:
            # The hot path of a program is here, not in a function, whose call would cost as much as the search.
            if params is None and lets is None:
                parts = text.split("'", 2)
                if len(parts) == 3:
                    head, value, rest = parts
                    run = None if rest else kept.by_text.get(head)
                    if run is not None and "\\" not in value and "$" not in value:
                        found = run(value)
                        return found
                elif len(parts) == 1:
                    head = text.rstrip(_DIGITS)
                    run = kept.by_number.get(head)
                    if run is not None and 0 < len(text) - len(head) < 19:
                        found = run(int(text[len(head) :]))
                        return found
            elif lets is None and (type(params) is list or type(params) is tuple):
                given = kept.by_count.get(text)
                if given is not None and len(params) == given[1]:
                    found = given[0].run(*params)
                    return found
            known = _known(kept, text, params) or self._search(kept, text, params)
            if known is None:
                return None
            plan, values = known
            if lets is not None and not lets(plan):
                return None
            found = plan.run(*values)
            return found
        except Unfit:
            return None
        except Closed:
            self.clear()
            return None

    def planned(self, text: str) -> tuple[Plan, Sequence[Any]] | None:
        """Returns the plan that ``find`` runs, and its values; None if it takes the general path. Nothing is run."""
        try:
            return self._search(self._kept, text, None)
        except Unfit:
            return None

    def find_now(self, text: str, params: Params, lets: Lets) -> R | None:
        """Returns the same as ``find``, for a thread that must not wait: it makes no plan, and runs none that may take
        longer than a lookup.
        """
        known = _known(self._kept, text, params)
        if known is None:
            return None
        plan, values = known
        if plan.run_now is None or not lets(plan):
            return None
        try:
            found: R | None = plan.run_now(*values)
            return found
        except Unfit:
            return None
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
        # A column without a name is named after its text, a literal or a parameter.
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
    """Returns the plan of a statement whose form was seen before, and the values of this one."""
    if params is not None:
        return _bound(kept, text, params)
    for pattern, plan, reads in kept.by_pattern.get(text[:_HEAD], ()):
        match = pattern.fullmatch(text)
        if match is not None:
            values: list[Any] = [*match.groups()]
            for at, read in reads:
                values[at] = read(values[at])
            return plan, values
    pieces = _LITERAL.split(text)
    known = kept.by_shape.get(tuple(pieces[::2]))
    if known is None:
        return None
    try:
        return known[0], [read(piece) for read, piece in zip(known[1], pieces[1::2], strict=True)]
    except ValueError:  # a literal of another kind
        return None


def _bound(
    kept: _Kept, text: str, params: Sequence[Any] | Mapping[str, Any]
) -> tuple[Plan, Sequence[Any]] | None:
    """Returns the same for a statement with parameters."""
    if type(params) is list or type(params) is tuple:
        given = kept.by_count.get(text)
        return (given[0], params) if given is not None and len(params) == given[1] else None
    named = kept.by_names.get(text)
    if named is None or type(params) is not dict:
        return None
    plan, names = named
    whole = len(params) == len(names) and all(n in params for n in names)
    return (plan, [params[n] for n in names]) if whole else None


def _pattern(between: Sequence[str], values: Sequence[Any]) -> re.Pattern[str]:
    """Returns a pattern for the texts that differ in their literals alone; of these, the short ones."""
    pieces = [re.escape(between[0])]
    for value, piece in zip(values, between[1:], strict=True):
        pieces += [_LITERALS[type(value)], re.escape(piece)]
    return re.compile("".join(pieces))


def _reads(values: Sequence[Any]) -> _Reads:
    return tuple([(at, type(value)) for at, value in enumerate(values) if type(value) is not str])


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
_LITERALS = {str: r"'([^'\\$]*)'", int: "([0-9]{1,18})", Decimal: r"([0-9]{1,9}\.[0-9]{1,8})"}
