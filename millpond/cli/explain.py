"""Implements ``millpond explain``: prints the plan of every statement of a SQL file."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from millpond.cli.error_report import render, reporting, say
from millpond.cli.sqlfile import read_sql
from millpond.engine_rule import Engine

EXAMPLES = """
Examples:

  millpond explain app.sql

  millpond explain app.sql --format mermaid > app.mmd

  millpond explain app.sql --format svg > app.svg

  millpond explain app.sql --format json
"""


class Form(StrEnum):
    text = "text"
    json = "json"
    mermaid = "mermaid"
    svg = "svg"


def explain(
    file: Annotated[Path, typer.Argument(help="The SQL file.", metavar="APP.SQL")],
    format: Annotated[
        Form,
        typer.Option(
            help="In words, as JSON with the graph of the app, or the graph as a picture: for Mermaid, or SVG."
        ),
    ] = Form.text,
    engine: Annotated[
        Engine,
        typer.Option(help="The engine that the app will run with: auto, spark or process.", metavar="ENGINE"),
    ] = "auto",
    verbose: Annotated[bool, typer.Option("--verbose", help="Show stack traces.")] = False,
) -> None:
    """Shows how each statement would run: who evaluates it, what it reads, what it guarantees."""
    with reporting(str(file), verbose=verbose):
        text = read_sql(file)
        from millpond.app.check import check_text, explain_text
        from millpond.plan.statement_graph import graph_of
        from millpond.plan.svg import draw_svg

        found = check_text(text, engine=engine)
        if found.errors:
            say("\n\n".join(render(error, str(file)) for error in found.errors))
            raise typer.Exit(1)
        graph = graph_of(found.statements).masked(found.script.mask)
        if format is Form.mermaid:
            print(graph.mermaid())
            return
        if format is Form.svg:
            print(draw_svg(graph))
            return
        explained = list(explain_text(found, engine))
        if format is Form.json:
            plans = [
                {
                    "line": s.place.line if s.place else None,
                    "statement": found.script.mask(s.text),
                    "plan": lines,
                }
                for s, lines in explained
            ]
            print(json.dumps({"statements": plans, **graph.as_json()}))
            return
        for statement, lines in explained:
            place = f"{file}:{statement.place.line}" if statement.place else str(file)
            print(f"{place}  {lines[0]}")
            for line in lines[1:]:
                print(f"    {line}")
