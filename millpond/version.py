"""The version of Millpond."""

__version__ = "0.1.0"
