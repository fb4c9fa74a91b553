"""One turn of the cluster queue: it takes what has changed and the time, and returns what to write. No I/O."""
