"""Commits changes: the tables of an app, the journal that makes them durable, and the catalog."""
