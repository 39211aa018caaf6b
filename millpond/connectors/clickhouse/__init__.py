"""Reads ClickHouse: tables and queries as a source."""
