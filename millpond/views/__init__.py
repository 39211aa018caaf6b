"""Materialized views: tables that follow queries over tables."""
