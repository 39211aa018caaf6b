"""Running statements: what becomes of each batch of a stream."""
