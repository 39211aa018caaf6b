"""Runs UPDATE, DELETE and MERGE once."""
