"""Runs CREATE OR REPLACE of what exists: builds it beside the old one, and swaps both."""
