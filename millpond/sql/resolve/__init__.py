"""Resolves a parsed query: every name in the result is known."""

from __future__ import annotations

from millpond.sql.resolve.model import Input, Resolved
from millpond.sql.resolve.resolver import Resolver

__all__ = ["Input", "Resolved", "Resolver"]
