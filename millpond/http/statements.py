"""Runs statements over HTTP: ``POST /sql`` and ``POST /explain``."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

from millpond import allowance
from millpond.errors import Error
from millpond.http.access import check_kinds, check_running
from millpond.http.body import check_values, parse_object, read_body
from millpond.http.failures import Refused, bad_request
from millpond.http.owner import SCOPE, OwnerSession
from millpond.http.responses import (
    ARROW,
    JSON,
    LINES,
    MERMAID,
    SVG,
    TEXT,
    answer_few,
    answer_rows,
    as_json,
    wanted,
)
from millpond.http.restrictions import Locate
from millpond.http.settings import Role
from millpond.query.plans import Plan
from millpond.query.result import LookupResult
from millpond.sql import statements as st
from millpond.sql.checked import Checked
from millpond.sql.growth import check_growth
from millpond.sql.patterns import check_patterns, has_patterns

if TYPE_CHECKING:
    from millpond.http.service import Service


Fields = dict[str, type | tuple[type, ...]]
_FIELDS: Fields = {"sql": str, "params": (list, dict)}
_OWNER_FIELDS: Fields = {**_FIELDS, "only_reads": bool}
_FORMS = {JSON: "json", TEXT: "text", MERMAID: "mermaid", SVG: "svg"}


class HttpPermissions:
    """Checks what a role may run and name."""

    def __init__(self, service: Service, role: Role):
        self._service = service
        self._role = role
        self.limits = service.limits.of_texts()
        self._locate: Locate

    def planned(self, plan: Plan) -> bool:
        if not plan.public or (plan.writes and self._role < Role.WRITE):
            return False
        if plan.writes:
            _free()
        return True

    def parsed(self, statements: Sequence[st.Statement], locate: Locate) -> None:
        if not statements:
            raise bad_request("there is no statement", 'send {"sql": "SELECT …"}')
        check_kinds(self._role, statements)
        self._service.allowed.check(statements)
        self._service.calls.check(statements, locate)
        check_growth(statements, locate)
        self._locate = locate

    def checked(self, statements: Sequence[Checked]) -> None:
        allowance.check()
        if not all(isinstance(c.statement, st.Select) for c in statements):
            _free()
        for checked in statements:
            statement = checked.statement
            if isinstance(statement, st.Select) and (checked.running or checked.live):
                raise Refused(
                    422,
                    "not_supported",
                    "this query has no end: its rows keep coming",
                    hint="make a table of it, and follow that: GET /tables/{table}/changes",
                )
            check_running(self._role, checked)
            if has_patterns(statement) and self._asks_spark(checked):
                check_patterns(statement, self._locate)

    def _asks_spark(self, checked: Checked) -> bool:
        way = self._service.evaluator.way
        return checked.runs or any(way(query)[0] == "spark" for query in checked.queries)


def _free() -> None:
    """Lifts the limits for statements that change the app or keep running: a copy of a table may be large."""
    given = allowance.current()
    if given is not None:
        given.free()


class ExplainPermissions(HttpPermissions):
    """Allows one statement, which is explained and not run."""

    def parsed(self, statements: Sequence[st.Statement], locate: Locate) -> None:
        if len(statements) != 1 or not isinstance(statements[0], st.Explain):
            raise bad_request("one statement can be explained at a time")
        super().parsed(statements, locate)


async def run_sql(service: Service, request: Request) -> Response:
    owner: OwnerSession | None = request.scope.get(SCOPE)
    body = parse_object(
        await read_body(request, service.limits, service.limits.statement_body),
        _FIELDS if owner is None else _OWNER_FIELDS,
    )
    check_values(body.get("params"), service.limits)
    if not isinstance(body.get("sql"), str):
        raise bad_request('the field "sql" is missing', 'send {"sql": "SELECT …", "params": […]}')
    media = wanted(request, JSON, LINES, ARROW)
    if owner is not None:
        return await owner.answer(
            body["sql"], body.get("params"), reads=bool(body.get("only_reads")), media=media
        )
    permissions = HttpPermissions(service, request.scope["millpond.role"])
    text, params = body["sql"], body.get("params")
    result = service.ask_now(text, params, permissions)
    if isinstance(result, LookupResult):
        return answer_few(result, media) or await answer_rows(result.to_arrow(), media, service.in_thread)
    if result is None:
        result = await service.run(service.ask, text, params, permissions)
    if result.count is not None:
        return as_json({"count": result.count})
    rows = await service.run(result.to_arrow)
    return await answer_rows(rows, media, service.in_thread)


async def explain(service: Service, request: Request) -> Response:
    body = parse_object(await read_body(request, service.limits, service.limits.statement_body), {"sql": str})
    text = body.get("sql")
    if not isinstance(text, str):
        raise bad_request('the field "sql" is missing', 'send {"sql": "SELECT …"}')
    form = request.query_params.get("format")
    if form not in (None, *_FORMS.values()):
        raise bad_request(f'"{form}" is no format', f"format={', '.join(_FORMS.values())}")
    media = next((m for m, f in _FORMS.items() if f == form), None) or wanted(request, *_FORMS)
    permissions = ExplainPermissions(service, request.scope["millpond.role"])
    try:
        result = await service.run(service.ask, f"EXPLAIN FORMAT {_FORMS[media]}\n{text}", None, permissions)
    except Error as error:
        _line_up(error)
        raise
    plan = "\n".join(result.to_arrow().column("plan").to_pylist())
    return Response(plan + "\n", media_type=media)


def _line_up(error: Error) -> None:
    """Moves the place of an error to that in the text that the client sent."""
    if error.place is not None:
        error.place = dataclasses.replace(error.place, line=max(1, error.place.line - 1))
    for inner in getattr(error, "errors", ()):
        _line_up(inner)
