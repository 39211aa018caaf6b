"""Reads and changes tables: queries on DuckDB, results, the Table API, transactions."""
