"""Reads object stores as a source."""
