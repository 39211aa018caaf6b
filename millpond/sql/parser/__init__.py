"""The parser, one file for each family of statements; ``statement.py`` puts them together."""
