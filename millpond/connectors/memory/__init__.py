"""Reads tables and streams of other apps in the same process, as a source."""
