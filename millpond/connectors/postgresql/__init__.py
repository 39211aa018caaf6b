"""PostgreSQL: tables, queries and logged changes as a source; a place for tables."""
