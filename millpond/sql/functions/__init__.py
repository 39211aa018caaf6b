"""The functions of the language: a row for each in the module of its family; ``base.py`` says what a row is."""

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
