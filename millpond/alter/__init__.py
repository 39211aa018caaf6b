"""Runs ALTER TABLE, and finds what a change of columns breaks or takes with it."""
