"""Serves the app over HTTP: statements, tables, streams, changes, health and metrics."""
