"""Shares code among databases, as sources and as table backends. A driver is imported at first use."""
