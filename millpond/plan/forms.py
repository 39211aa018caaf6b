"""Renders EXPLAIN in its forms: words, JSON, a Mermaid diagram or SVG."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from millpond.plan.statement_graph import graph_of_one
from millpond.plan.statement_plan import Planned
from millpond.plan.svg import draw_svg
from millpond.sql.checked import CheckedFold, CheckedQuery
from millpond.sql.statements import ExplainFormat
from millpond.steps import Step
from millpond.types import type_name


def explained(
    planned: Planned,
    lines: Sequence[str],
    form: ExplainFormat,
    mask: Callable[[str], str],
    steps: Sequence[Step] | None = None,
) -> list[str]:
    """Renders the plan of ``lines``, and the measured ``steps``, in a form: one text, or the lines themselves. Secrets
    are masked first.
    """
    plan = [mask(line) for line in lines]
    if form == "text":
        return [*plan, *(mask(f"step: {step}") for step in steps or ())]
    graph = graph_of_one(planned).masked(mask)
    if form == "mermaid":
        return [graph.mermaid()]
    if form == "svg":
        return [draw_svg(graph)]
    checked = planned.checked
    query = checked.resolved if isinstance(checked, CheckedQuery) else None
    schema = query.schema if query is not None and not isinstance(checked, CheckedFold) else ()
    return [
        json.dumps(
            {
                "statement": mask(checked.statement.text),
                "plan": plan,
                "columns": [{"name": c.name, "type": type_name(c.type)} for c in schema],
                **graph.as_json(),
                **({} if steps is None else {"steps": [masked(step, mask) for step in steps]}),
            },
            ensure_ascii=False,
            indent=2,
        )
    ]


def masked(step: Step, mask: Callable[[str], str]) -> dict[str, Any]:
    fields = step.as_json()
    return {**fields, "step": mask(fields["step"])}
