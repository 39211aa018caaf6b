"""Runs the operators of views that are kept by changes: each turns changes of its inputs into changes of its rows."""
