"""Maintains materialized views: tables that are kept equal to queries over tables."""
