"""Runs statements over streams, batch by batch."""
