"""Spark's own SQL tests, statement by statement, on Spark and here.

Their inputs come in a jar that ``make setup`` fetches. What the files put into tables and views is there on both sides;
everything runs with the settings that Spark begins with.
"""
