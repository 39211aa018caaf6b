"""Turns SQL text into checked statements."""
