"""Turns checked statements into plans, and explains them."""
