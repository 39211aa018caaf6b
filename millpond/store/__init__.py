"""The commit: tables, what changes them, and what the journal keeps of them."""
