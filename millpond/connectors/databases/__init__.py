"""What databases share, as sources and as places for tables. A driver is imported by those who use it, at first use."""
