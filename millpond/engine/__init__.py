"""Runs statements over streams: contains everything that uses PySpark."""
