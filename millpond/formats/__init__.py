"""Bytes to Arrow: one file per format, found by name."""
