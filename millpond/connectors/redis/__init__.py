"""Connects Redis: a table backend."""
