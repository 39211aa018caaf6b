"""Represents a query whose names are known."""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from millpond.sql.catalog import Relation
from millpond.types import Schema


@dataclass(frozen=True, slots=True)
class Input:
    """Represents an input of a query: its view name in the tree, its alias, what it is."""

    view: str
    alias: str
    relation: Relation


@dataclass(frozen=True, slots=True)
class Resolved:
    """Represents a query whose names are all known."""

    expression: exp.Expr
    schema: Schema
    inputs: tuple[Input, ...]

    @property
    def running(self) -> bool:
        return any(i.relation.running for i in self.inputs)

    def input(self, view: str) -> Input | None:
        return next((i for i in self.inputs if i.view == view), None)
