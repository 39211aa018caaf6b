"""The figures F1–F17, measured beside a peer in the same run. ``python -m bench`` runs what is there."""
