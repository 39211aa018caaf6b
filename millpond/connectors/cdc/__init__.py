"""What the sources share that follow the log of changes of a database."""
