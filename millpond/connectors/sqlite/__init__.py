"""Connects SQLite: a table backend."""
