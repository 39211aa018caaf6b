"""Connects to Delta Lake."""
