"""Connects PostgreSQL: tables, queries and change capture as a source, and a table backend."""
