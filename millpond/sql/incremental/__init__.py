"""Splits the query of a view into operators that are kept by changes of its inputs."""
