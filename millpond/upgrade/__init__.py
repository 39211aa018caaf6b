"""Upgrades a state directory to a changed file: compares, decides, plans and commits."""
