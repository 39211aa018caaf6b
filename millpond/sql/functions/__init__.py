"""Declares the functions of the language: one row each, in the module of its family; ``base.py`` defines a row."""

from __future__ import annotations

from millpond.sql.functions.base import (
    FOR_CLIENTS,
    Aggregate,
    Function,
    FunctionClass,
    Generator,
    WindowFunction,
    by_name,
    by_node,
    fold_of,
    folds,
    function_classes,
    functions,
    known_functions,
    wrong_number,
)

__all__ = [
    "FOR_CLIENTS",
    "Aggregate",
    "Function",
    "FunctionClass",
    "Generator",
    "WindowFunction",
    "by_name",
    "by_node",
    "fold_of",
    "folds",
    "function_classes",
    "functions",
    "known_functions",
    "wrong_number",
]
