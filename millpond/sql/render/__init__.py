"""Renders statements in the SQL of an engine."""
