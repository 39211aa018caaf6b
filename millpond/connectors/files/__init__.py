"""Files of this machine as a source; how they are listed is shared with object stores."""
