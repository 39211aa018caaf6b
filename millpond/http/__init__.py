"""The app over HTTP: statements, tables, streams, changes as they come, and what a monitor wants to know."""
