"""Writes rows to the output of the process."""
