"""Redis: a place for tables."""
