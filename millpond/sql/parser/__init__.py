"""Contains the parser, one file for each family of statements; ``statement.py`` combines them."""
