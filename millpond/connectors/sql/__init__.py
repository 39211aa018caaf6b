"""Reads any database that SQLAlchemy supports, as a source."""
