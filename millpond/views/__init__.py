"""Maintains materialized views: tables that follow queries over tables."""
