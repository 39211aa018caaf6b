"""Object stores as a source."""
