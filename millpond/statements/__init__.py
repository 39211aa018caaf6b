"""Contains what the statements of an app have in common: checks, declares, saves, starts and drops them."""
