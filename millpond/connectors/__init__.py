"""Connects outside systems: a folder for each, with its ``source``, ``sink`` and ``table`` in files of these names."""
