"""How to talk to databases. Imported when the first one is asked: a driver is needed only by those who use it."""
