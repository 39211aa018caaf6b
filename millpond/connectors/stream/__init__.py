"""The app's own streams, as a source."""
