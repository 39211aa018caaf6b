"""Connects MongoDB: a table backend."""
