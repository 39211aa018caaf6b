"""Decodes bytes to Arrow: one file per format, found by its name."""
