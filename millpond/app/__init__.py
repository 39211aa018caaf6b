"""Implements the app: checks and runs statements, restores state, describes and reports."""
