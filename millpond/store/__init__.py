"""The commit: tables, transactions, what changes them, and what the journal keeps of them."""
