"""Reads files of this machine as a source; their listing is shared with object stores."""
