"""A statement in the SQL of an engine."""
