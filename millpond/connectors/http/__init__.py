"""Reads responses of web servers as a source."""
