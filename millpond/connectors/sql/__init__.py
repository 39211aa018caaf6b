"""Any database that SQLAlchemy reaches, as a source."""
