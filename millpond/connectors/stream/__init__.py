"""Reads the app's own streams, as a source."""
