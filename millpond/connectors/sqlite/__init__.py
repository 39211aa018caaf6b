"""SQLite: a place for tables."""
