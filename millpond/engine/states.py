"""Defines the states of a running statement, and the legal transitions between them."""

from __future__ import annotations

from enum import StrEnum

from millpond.errors import SqlError


class Overtaken(Exception):
    """Says that the position of a statement is already behind the batch that it was to apply."""


class State(StrEnum):
    RUNNING = "running"
    RETRYING = "retrying"
    """It failed with an error that may be temporary, and is retried."""
    PAUSED = "paused"
    STOPPED = "stopped"
    FAILED = "failed"


_MOVES = {
    "pause": ({State.RUNNING, State.RETRYING}, State.PAUSED),
    "resume": ({State.PAUSED}, State.RUNNING),
    "stop": ({State.RUNNING, State.RETRYING, State.PAUSED, State.FAILED}, State.STOPPED),
    "start": ({State.STOPPED, State.FAILED}, State.RUNNING),
    "fail": ({State.RUNNING, State.RETRYING}, State.FAILED),
    "retry": ({State.RUNNING, State.RETRYING}, State.RETRYING),
    "recover": ({State.RUNNING, State.RETRYING}, State.RUNNING),
}
_ASKED = ("pause", "resume", "stop", "start")


def can_move(state: State, by: str) -> bool:
    return state in _MOVES[by][0]


def is_done(state: str, by: str) -> bool:
    """Returns whether a query is already in the state that PAUSE, RESUME, STOP or START leads to."""
    return state == _MOVES[by][1]


def moved(state: State, by: str) -> State:
    """Returns the state after a transition. Raises SqlError for an illegal one."""
    legal, to = _MOVES[by]
    if state not in legal:
        words = [f"{m.upper()} QUERY" for m in _ASKED if state in _MOVES[m][0]]
        raise SqlError(f"it is {state}: {by.upper()} does nothing", hint=f"possible: {', '.join(words)}")
    return to


def asked(query: str, state: str, by: str) -> State:
    """Returns the state of a query after PAUSE, RESUME, STOP or START."""
    try:
        return moved(State(state), by)
    except SqlError as error:
        raise SqlError(f'query "{query}": {error.message}', hint=error.hint) from None
