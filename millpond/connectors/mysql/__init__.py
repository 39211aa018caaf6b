"""Reads MySQL and MariaDB: tables, queries and the binary log as a source."""
