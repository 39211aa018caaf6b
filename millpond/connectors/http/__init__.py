"""Answers of web servers as a source."""
