"""SQL text to checked statements."""
