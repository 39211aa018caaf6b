"""INSERT, UPDATE, DELETE and MERGE that run once."""
