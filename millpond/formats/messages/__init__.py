"""Decodes and encodes messages, such as those of a topic: one file per format, found by its name."""
