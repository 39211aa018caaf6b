"""Checks statements by kind."""
