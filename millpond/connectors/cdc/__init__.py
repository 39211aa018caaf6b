"""Shares code among the sources that read the changelog of a database."""
