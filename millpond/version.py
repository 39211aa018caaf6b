"""Contains the version of Millpond."""

__version__ = "0.1.0"
