"""UPDATE, DELETE and MERGE that run once: what they change."""
